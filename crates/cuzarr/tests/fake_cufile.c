/* A cuFile for tests without a GPU: "device memory" is host memory (simt), files are read and written by plain calls, at
   most 5000 bytes at a time. Every call is a line in the file that CUZARR_FAKE_CUFILE_LOG names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { int code, cuda; } Status;
typedef struct { int kind; union { int descriptor; void *pointer; } handle; const void *operations; } Description;

static void say(const char *call) {
    const char *path = getenv("CUZARR_FAKE_CUFILE_LOG");
    int log = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (log < 0) return;
    char line[64];
    int size = snprintf(line, sizeof line, "%s\n", call);
    if (write(log, line, size) != size) abort();
    close(log);
}

static Status status(int code) { Status answer = {code, 0}; return answer; }

Status cuFileDriverOpen(void) {
    const char *code = getenv("CUZARR_FAKE_CUFILE_OPEN");
    say("open");
    return status(code ? atoi(code) : 0);
}

Status cuFileDriverGetProperties(unsigned *properties) {
    properties[0] = getenv("CUZARR_FAKE_CUFILE_DIRECT") ? 2 : 0;
    return status(0);
}

Status cuFileHandleRegister(void **handle, Description *description) {
    say("register");
    if (description->kind != 1) return status(5022);
    if (getenv("CUZARR_FAKE_CUFILE_REGISTER")) return status(atoi(getenv("CUZARR_FAKE_CUFILE_REGISTER")));
    /* The real one copes with any offset and size of files that are opened for direct access. */
    int given = description->handle.descriptor, mode = fcntl(given, F_GETFL) & O_ACCMODE;
    if (fcntl(given, F_GETFL) & O_NONBLOCK) return status(5019); /* as NVIDIA's does */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", given);
    int *own = malloc(sizeof *own);
    *own = open(path, mode);
    if (*own < 0) return status(5018);
    *handle = own;
    return status(0);
}

void cuFileHandleDeregister(void *handle) {
    say("deregister");
    close(*(int *)handle);
    free(handle);
}

static size_t part(size_t size) { return size < 5000 ? size : 5000; }

ssize_t cuFileRead(void *handle, void *memory, size_t size, off_t from, off_t at) {
    say("read");
    if (getenv("CUZARR_FAKE_CUFILE_READ")) return atoi(getenv("CUZARR_FAKE_CUFILE_READ"));
    return pread(*(int *)handle, (char *)memory + at, part(size), from);
}

ssize_t cuFileWrite(void *handle, const void *memory, size_t size, off_t from, off_t at) {
    say("write");
    if (getenv("CUZARR_FAKE_CUFILE_WRITE")) { errno = ENOSPC; return -1; }
    return pwrite(*(int *)handle, (const char *)memory + at, part(size), from);
}
