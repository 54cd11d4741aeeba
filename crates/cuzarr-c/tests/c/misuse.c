#define _DEFAULT_SOURCE
/* What a C program may do wrong, and what it gets: an error, and never a crash. Run with a folder, under a sanitizer. Its last line
 * is "misuse: ok". */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dlpack.h"

#include "cuzarr.h"

#define REQUIRE(condition)                                                                                           \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                   \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

static cuzarr_error *error = NULL;

/* Ends the program unless the call has this status; frees its error, after a look at its texts. */
static void expect_at(int line, cuzarr_status got, cuzarr_status expected)
{
    if (got != expected) {
        fprintf(stderr, "line %d: got %s, expected %s: %s\n", line, cuzarr_status_name(got), cuzarr_status_name(expected),
                error ? cuzarr_error_text(error) : "no error");
        exit(1);
    }
    REQUIRE((error == NULL) == (got == CUZARR_STATUS_OK) && cuzarr_error_status(error) == got);
    if (error)
        REQUIRE(strlen(cuzarr_error_message(error)) > 0 && strstr(cuzarr_error_text(error), cuzarr_error_message(error)));
    cuzarr_error_free(error);
    error = NULL;
}
#define EXPECT(status, call) expect_at(__LINE__, call, CUZARR_STATUS_##status)

#define ROWS 64
#define COLUMNS 48

static void *read_often(void *array)
{
    for (uint64_t round = 0; round < 50; round++) {
        int16_t row[COLUMNS];
        uint64_t start[2] = {round % ROWS, 0}, shape[2] = {1, COLUMNS};
        cuzarr_region region = {2, start, shape, NULL};
        cuzarr_memory memory = {.data = row, .size_bytes = sizeof row};
        cuzarr_error *own = NULL;
        char *attributes = NULL;
        REQUIRE(cuzarr_array_read(array, &region, &memory, NULL, &own) == CUZARR_STATUS_OK && own == NULL);
        for (int column = 0; column < COLUMNS; column++)
            REQUIRE(row[column] == (int16_t)(start[0] * COLUMNS + column));
        REQUIRE(cuzarr_array_set_attributes(array, "{\"by\": \"a thread\"}", &own) == CUZARR_STATUS_OK);
        REQUIRE(cuzarr_array_attributes(array, &attributes, &own) == CUZARR_STATUS_OK);
        cuzarr_string_free(attributes);
        /* An error of each thread for itself. */
        shape[0] = ROWS + 1;
        REQUIRE(cuzarr_array_read(array, &region, &memory, NULL, &own) == CUZARR_STATUS_SELECTION_INVALID);
        cuzarr_error_free(own);
    }
    return NULL;
}

struct reading {
    cuzarr_array *array;
    cuzarr_cancellation *cancellation;
    atomic_bool has_begun;
};

static void *read_until_cancelled(void *given)
{
    struct reading *reading = given;
    static int16_t elements[ROWS * COLUMNS];
    cuzarr_memory memory = {.data = elements, .size_bytes = sizeof elements};
    cuzarr_error *own = NULL;
    cuzarr_status status;
    while ((status = cuzarr_array_read(reading->array, NULL, &memory, reading->cancellation, &own)) == CUZARR_STATUS_OK)
        reading->has_begun = true;
    REQUIRE(status == CUZARR_STATUS_CANCELLED && cuzarr_error_status(own) == CUZARR_STATUS_CANCELLED);
    cuzarr_error_free(own);
    return NULL;
}

static void cancellation_by_another_thread(cuzarr_array *array)
{
    struct reading reading = {.array = array};
    pthread_t thread;
    EXPECT(OK, cuzarr_cancellation_new(&reading.cancellation, &error));
    REQUIRE(pthread_create(&thread, NULL, read_until_cancelled, &reading) == 0);
    while (!reading.has_begun)
        sched_yield();
    EXPECT(OK, cuzarr_cancellation_cancel(reading.cancellation, &error));
    REQUIRE(pthread_join(thread, NULL) == 0);
    cuzarr_cancellation_free(reading.cancellation);
}

static atomic_int deleted = 0;

static void count_deletion(DLManagedTensorVersioned *tensor)
{
    REQUIRE(tensor->manager_ctx == &deleted);
    deleted++;
}

/* A thread of the library may be the last that lets go of a tensor, a moment after the call. */
static void expect_deleted(int count)
{
    while (deleted < count)
        sched_yield();
    REQUIRE(deleted == count);
}

static void *delete_tensor(void *tensor)
{
    ((DLManagedTensorVersioned *)tensor)->deleter(tensor);
    return NULL;
}

static void dlpack(cuzarr_array *array, cuzarr_group *group)
{
    int16_t rows[2 * COLUMNS];
    for (int at = 0; at < 2 * COLUMNS; at++)
        rows[at] = (int16_t)(1000 + at);
    int64_t extents[2] = {2, COLUMNS};
    uint64_t start[2] = {4, 0}, shape[2] = {2, COLUMNS}, wrong[2] = {3, COLUMNS};
    cuzarr_region region = {2, start, shape, NULL}, other = {2, start, wrong, NULL};
    DLManagedTensorVersioned tensor = {.version = {1, 0}, .manager_ctx = &deleted, .deleter = count_deletion};
    tensor.dl_tensor = (DLTensor){.data = rows, .device = {1, 0}, .ndim = 2, .dtype = {0, 16, 1}, .shape = extents};

    EXPECT(OK, cuzarr_array_write_dlpack(array, &region, &tensor, 0, NULL, &error));
    expect_deleted(1);
    /* Every failure gives the memory back, once. */
    EXPECT(SHAPE_MISMATCH, cuzarr_array_write_dlpack(array, &other, &tensor, 0, NULL, &error));
    EXPECT(SHAPE_MISMATCH, cuzarr_array_read_into_dlpack(array, &other, &tensor, 0, NULL, &error));
    expect_deleted(3);
    EXPECT(INVALID_ARGUMENT, cuzarr_array_write_dlpack(NULL, &region, &tensor, 0, NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_write_dlpack((cuzarr_array *)group, &region, &tensor, 0, NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_write_dlpack(array, &region, &tensor, 7, NULL, &error));
    expect_deleted(6);
    tensor.version.major = 9;
    EXPECT(UNSUPPORTED, cuzarr_array_write_dlpack(array, &region, &tensor, 0, NULL, &error));
    tensor.version.major = 1;
    tensor.dl_tensor.dtype.lanes = 4;
    EXPECT(UNSUPPORTED, cuzarr_array_write_dlpack(array, &region, &tensor, 0, NULL, &error));
    tensor.dl_tensor.dtype.lanes = 1;
    tensor.dl_tensor.ndim = -2;
    EXPECT(INVALID_ARGUMENT, cuzarr_array_read_into_dlpack(array, &region, &tensor, 0, NULL, &error));
    tensor.dl_tensor.ndim = 2;
    expect_deleted(9);
    EXPECT(INVALID_ARGUMENT, cuzarr_array_write_dlpack(array, &region, NULL, 0, NULL, &error));

    memset(rows, 0, sizeof rows);
    EXPECT(OK, cuzarr_array_read_into_dlpack(array, &region, &tensor, 0, NULL, &error));
    expect_deleted(10);
    REQUIRE(rows[0] == 1000 && rows[2 * COLUMNS - 1] == 1000 + 2 * COLUMNS - 1);

    DLManagedTensorVersioned *made = (void *)&tensor;
    EXPECT(INVALID_ARGUMENT, cuzarr_array_read_dlpack(array, &region, NULL, NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_read_dlpack(NULL, &region, NULL, &made, &error));
    REQUIRE(made == NULL);
    EXPECT(OK, cuzarr_array_read_dlpack(array, &region, NULL, &made, &error));
    REQUIRE(made->version.major == 1 && made->dl_tensor.device.device_type == 1 && made->dl_tensor.ndim == 2);
    REQUIRE(((int16_t *)made->dl_tensor.data)[1] == 1001 && made->dl_tensor.shape[0] == 2);
    /* From another thread. */
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, delete_tensor, made) == 0 && pthread_join(thread, NULL) == 0);
}

static void handles(cuzarr_array *array, cuzarr_group *group, const char *path)
{
    size_t size = 0;
    uint64_t shape[8];
    char *text = NULL;
    bool is_cancelled = true;
    int16_t element;
    cuzarr_memory memory = {.data = &element, .size_bytes = sizeof element};
    cuzarr_array *none = (cuzarr_array *)8;
    cuzarr_group *no_group = (cuzarr_group *)8;
    cuzarr_cancellation *cancellation = NULL;

    EXPECT(INVALID_ARGUMENT, cuzarr_array_ndim(NULL, &size, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_ndim(array, NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_ndim((cuzarr_array *)group, &size, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_ndim((cuzarr_array *)((char *)array + 1), &size, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_shape(array, 3, shape, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_shape(array, 2, NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_chunk_shape(array, SIZE_MAX, shape, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_dtype(array, NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_attributes(NULL, &text, &error));
    REQUIRE(text == NULL);
    EXPECT(INVALID_ARGUMENT, cuzarr_array_set_attributes(array, NULL, &error));
    EXPECT(METADATA_INVALID, cuzarr_array_set_attributes(array, "[1]", &error));
    EXPECT(METADATA_INVALID, cuzarr_array_set_attributes(array, "{\"a\": ", &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_set_attributes(array, "\xff\xfe", &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_group_members((cuzarr_group *)array, &text, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_group_array(group, NULL, &none, &error));
    REQUIRE(none == NULL);
    EXPECT(ARRAY_NOT_FOUND, cuzarr_group_array(group, "nothing", &none, &error));
    EXPECT(KEY_INVALID, cuzarr_group_array(group, "../outside", &none, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_group_array(group, "numbers", NULL, &error));
    EXPECT(GROUP_NOT_FOUND, cuzarr_group_open("memory://nowhere", NULL, NULL, &no_group, &error));
    REQUIRE(no_group == NULL);

    EXPECT(INVALID_ARGUMENT, cuzarr_array_open(NULL, NULL, NULL, &none, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_open("\xc3(", NULL, NULL, &none, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_open(path, "tpu", NULL, &none, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_open(path, NULL, NULL, NULL, &error));
    EXPECT(ARRAY_NOT_FOUND, cuzarr_array_open("memory://nowhere", NULL, NULL, &none, &error));
    const char *const options[] = {"{", "[]", "7", "{\"no such\": 1}", "{\"threads\": -1}", "{\"threads\": 1e3}",
                                   "{\"strict\": 1}", "{\"mode\": \"w\"}", "{\"accelerator\": \"cpu\"}",
                                   "{\"storage_options\": 3}", "{\"storage_options\": {\"a\": []}}", ""};
    for (size_t at = 0; at < sizeof options / sizeof *options; at++)
        EXPECT(INVALID_ARGUMENT, cuzarr_array_open(path, "cpu", options[at], &none, &error));
    const char *const descriptions[] = {"{}", "{\"shape\": [1]}", "{\"shape\": 1, \"dtype\": \"int8\"}",
                                        "{\"shape\": [-1], \"dtype\": \"int8\"}",
                                        "{\"shape\": [1], \"dtype\": \"int8\", \"chunk\": [1]}",
                                        "{\"shape\": [1], \"dtype\": \"int8\", \"zarr_format\": 4}",
                                        "{\"shape\": [1], \"dtype\": \"int8\", \"compressor\": \"best\"}"};
    for (size_t at = 0; at < sizeof descriptions / sizeof *descriptions; at++)
        EXPECT(INVALID_ARGUMENT, cuzarr_array_create("memory://new", NULL, descriptions[at], NULL, &none, &error));
    EXPECT(UNKNOWN_DATA_TYPE, cuzarr_array_create("memory://new", NULL, "{\"shape\": [1], \"dtype\": \"int7\"}", NULL, &none, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_create("memory://new", NULL, NULL, NULL, &none, &error));
    EXPECT(CONTAINS_GROUP, cuzarr_array_create(path, NULL, "{\"shape\": [1], \"dtype\": \"int8\"}", NULL, &none, &error));

    EXPECT(INVALID_ARGUMENT, cuzarr_cancellation_new(NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_cancellation_cancel(NULL, &error));
    EXPECT(OK, cuzarr_cancellation_new(&cancellation, &error));
    EXPECT(OK, cuzarr_cancellation_is_cancelled(cancellation, &is_cancelled, &error));
    REQUIRE(!is_cancelled);
    EXPECT(INVALID_ARGUMENT, cuzarr_array_read(array, NULL, &memory, (cuzarr_cancellation *)array, &error));
    EXPECT(OK, cuzarr_cancellation_cancel(cancellation, &error));
    uint64_t one[2] = {1, 1};
    cuzarr_region region = {2, NULL, one, NULL};
    EXPECT(CANCELLED, cuzarr_array_read(array, &region, &memory, cancellation, &error));
    EXPECT(CANCELLED, cuzarr_array_write(array, &region, &memory, cancellation, &error));
    EXPECT(OK, cuzarr_array_read(array, &region, &memory, NULL, &error));

    /* Freeing: NULL, and handles of another kind, which stay alive. */
    cuzarr_array_free(NULL);
    cuzarr_group_free(NULL);
    cuzarr_cancellation_free(NULL);
    cuzarr_error_free(NULL);
    cuzarr_string_free(NULL);
    cuzarr_array_free((cuzarr_array *)cancellation);
    EXPECT(OK, cuzarr_cancellation_is_cancelled(cancellation, &is_cancelled, &error));
    REQUIRE(is_cancelled);
    cuzarr_cancellation_free(cancellation);
    REQUIRE(cuzarr_error_status(NULL) == CUZARR_STATUS_OK && !cuzarr_error_message(NULL) && !cuzarr_error_hint(NULL));
    REQUIRE(!cuzarr_error_text((cuzarr_error *)array));
    /* Errors that nobody wants. */
    REQUIRE(cuzarr_array_ndim(NULL, &size, NULL) == CUZARR_STATUS_INVALID_ARGUMENT);
    REQUIRE(cuzarr_array_ndim(array, &size, NULL) == CUZARR_STATUS_OK && size == 2);
}

static void memory_and_regions(cuzarr_array *array)
{
    static int16_t elements[ROWS * COLUMNS];
    uint64_t start[2] = {0, 0}, shape[2] = {2, 3}, step[2] = {1, 1};
    int64_t strides[2] = {6, 2};
    cuzarr_region region = {2, start, shape, step};
    const cuzarr_memory good = {.data = elements, .size_bytes = sizeof elements, .strides = strides};
    cuzarr_memory memory = good;
    EXPECT(OK, cuzarr_array_read(array, &region, &memory, NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_array_read(array, &region, NULL, NULL, &error));

    const struct {
        cuzarr_region region;
        cuzarr_status expected;
    } regions[] = {
        {{1, start, shape, step}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{0, NULL, NULL, NULL}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{SIZE_MAX, start, shape, step}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{(size_t)1 << 40, start, shape, step}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{2, start, NULL, step}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{2, (uint64_t *)((char *)start + 1), shape, step}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{2, (uint64_t[]){ROWS - 1, 0}, shape, step}, CUZARR_STATUS_SELECTION_INVALID},
        {{2, (uint64_t[]){UINT64_MAX, 0}, shape, step}, CUZARR_STATUS_SELECTION_INVALID},
        {{2, start, (uint64_t[]){UINT64_MAX, UINT64_MAX}, step}, CUZARR_STATUS_SELECTION_INVALID},
        {{2, start, shape, (uint64_t[]){0, 1}}, CUZARR_STATUS_SELECTION_INVALID},
        {{2, start, shape, (uint64_t[]){UINT64_MAX, 1}}, CUZARR_STATUS_SELECTION_INVALID},
    };
    for (size_t at = 0; at < sizeof regions / sizeof *regions; at++) {
        expect_at(__LINE__, cuzarr_array_read(array, &regions[at].region, &memory, NULL, &error), regions[at].expected);
        expect_at(__LINE__, cuzarr_array_write(array, &regions[at].region, &memory, NULL, &error), regions[at].expected);
    }

    const struct {
        cuzarr_memory memory;
        cuzarr_status expected;
    } memories[] = {
        {{.data = NULL, .size_bytes = 64}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{.data = elements, .size_bytes = 11}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{.data = elements, .size_bytes = 12, .offset_bytes = 1}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{.data = elements, .size_bytes = 64, .offset_bytes = SIZE_MAX}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{.data = elements, .size_bytes = 64, .strides = (int64_t[]){-6, 2}}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{.data = elements, .size_bytes = 64, .strides = (int64_t[]){INT64_MAX, 2}}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{.data = elements, .size_bytes = 64, .strides = (int64_t[]){INT64_MIN, 2}}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{.data = elements, .size_bytes = SIZE_MAX, .strides = (int64_t[]){INT64_MAX / 2, 2}}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{.data = elements, .size_bytes = 64, .device = "moon"}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{.data = elements, .size_bytes = 64, .device = "\xff"}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{.data = elements, .size_bytes = 64, .dtype = "integer"}, CUZARR_STATUS_UNKNOWN_DATA_TYPE},
        {{.data = elements, .size_bytes = 64, .dtype = "\xff"}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{.data = elements, .size_bytes = 64, .dtype = "string"}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{.data = elements, .size_bytes = 64, .stream = 0x1000}, CUZARR_STATUS_INVALID_ARGUMENT},
    };
    for (size_t at = 0; at < sizeof memories / sizeof *memories; at++) {
        expect_at(__LINE__, cuzarr_array_read(array, &region, &memories[at].memory, NULL, &error), memories[at].expected);
        expect_at(__LINE__, cuzarr_array_write(array, &region, &memories[at].memory, NULL, &error), memories[at].expected);
    }
    /* Elements of a read must not lie on each other; a write may repeat one. */
    memory.strides = (int64_t[]){0, 2};
    REQUIRE(cuzarr_array_read(array, &region, &memory, NULL, &error) != CUZARR_STATUS_OK);
    cuzarr_error_free(error);
    error = NULL;

    /* Strides from the end, and another type: int16 as float64. */
    double reversed[2][3];
    memory = (cuzarr_memory){.data = reversed, .size_bytes = sizeof reversed, .offset_bytes = sizeof reversed - sizeof(double),
                             .strides = (int64_t[]){-3 * (int64_t)sizeof(double), -(int64_t)sizeof(double)}, .dtype = "float64",
                             .stream = CUZARR_STREAM_READY};
    EXPECT(OK, cuzarr_array_read(array, &region, &memory, NULL, &error));
    REQUIRE(reversed[1][2] == 0 && reversed[1][1] == 1 && reversed[0][2] == COLUMNS && reversed[0][0] == COLUMNS + 2);

    /* No elements, and no memory for them. */
    shape[0] = 0;
    EXPECT(OK, cuzarr_array_read(array, &region, &(cuzarr_memory){.data = NULL}, NULL, &error));
    EXPECT(OK, cuzarr_array_write(array, &region, &(cuzarr_memory){.data = NULL}, NULL, &error));
    shape[0] = 2;

    cuzarr_memory second = good;
    second.data = elements + 100;
    second.size_bytes = 200;
    memory = good;
    cuzarr_read reads[3] = {{array, &region, &memory}, {array, &region, &second}, {NULL, &region, &second}};
    EXPECT(OK, cuzarr_read_many(reads, 2, NULL, &error));
    REQUIRE(elements[4] == COLUMNS + 1 && elements[104] == COLUMNS + 1);
    EXPECT(OK, cuzarr_read_many(NULL, 0, NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_read_many(reads, 3, NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_read_many(NULL, 1, NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_read_many(reads, SIZE_MAX / 8, NULL, &error));
    reads[1].memory = &memory;
    EXPECT(INVALID_ARGUMENT, cuzarr_read_many(reads, 2, NULL, &error));
}

/* The extent of an array along its first dimension, as its handle knows it. */
static uint64_t rows_of(cuzarr_array *array)
{
    uint64_t shape[2];
    size_t ndim;
    EXPECT(OK, cuzarr_array_ndim(array, &ndim, &error));
    EXPECT(OK, cuzarr_array_shape(array, ndim, shape, &error));
    return shape[0];
}

static uint64_t position_of(cuzarr_writer *writer)
{
    uint64_t position, end;
    double waited;
    EXPECT(OK, cuzarr_writer_progress(writer, &position, &end, &waited, &error));
    REQUIRE(position <= end && waited >= 0);
    return position;
}

static void wrong_arguments_of_writers(cuzarr_array *steps, cuzarr_array *times, cuzarr_group *group)
{
    cuzarr_writer *writer = (cuzarr_writer *)8, *second = NULL;
    const cuzarr_array *const both[2] = {steps, times}, *const wrong[2] = {steps, (cuzarr_array *)group}, *const missing[1] = {NULL};
    const cuzarr_array *const twice[2] = {steps, steps};
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_open(NULL, NULL, 1, NULL, NULL, &writer, &error));
    REQUIRE(writer == NULL);
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_open(both, NULL, 0, NULL, NULL, &writer, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_open(both, NULL, SIZE_MAX / 8, NULL, NULL, &writer, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_open(missing, NULL, 1, NULL, NULL, &writer, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_open(wrong, NULL, 2, NULL, NULL, &writer, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_open(twice, NULL, 2, NULL, NULL, &writer, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_open(both, NULL, 2, NULL, NULL, NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_open(both, NULL, 2, NULL, (cuzarr_cancellation *)group, &writer, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_open(both, (size_t[]){0, 1}, 2, NULL, NULL, &writer, &error));
    const char *const options[] = {"{", "[]", "{\"slot\": 3}", "{\"slots\": 0}", "{\"slots\": -1}", "{\"resume\": 1}", "{\"region\": 3}",
                                   "{\"region\": {}}", "{\"region\": {\"start\": [0, 0]}}", "{\"region\": {\"start\": [0], \"shape\": [4]}}",
                                   "{\"region\": {\"start\": [0, 0], \"shape\": [4, 3], \"step\": [1, 1]}}"};
    for (size_t at = 0; at < sizeof options / sizeof *options; at++)
        EXPECT(INVALID_ARGUMENT, cuzarr_writer_open(both, NULL, 1, options[at], NULL, &writer, &error));
    EXPECT(OUT_OF_RANGE, cuzarr_writer_open(both, NULL, 1, "{\"region\": {\"start\": [4, 0], \"shape\": [4, 3]}}", NULL, &writer, &error));
    REQUIRE(writer == NULL);

    EXPECT(OK, cuzarr_writer_open(both, (size_t[]){0, 0}, 2, "{\"slots\": 2, \"resume\": true}", NULL, &writer, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_open(both, NULL, 1, NULL, NULL, &second, &error));
    REQUIRE(second == NULL);

    int32_t step[3] = {1, 2, 3};
    int64_t time = 7;
    const uint64_t row[2] = {1, 3}, two[2] = {2, 3}, narrow[2] = {1, 2}, one[1] = {3};
    const cuzarr_memory memory = {.data = step, .size_bytes = sizeof step}, at_time = {.data = &time, .size_bytes = sizeof time};
    const cuzarr_memory small = {.data = step, .size_bytes = 11}, on_stream = {.data = step, .size_bytes = sizeof step, .stream = 7};
    const struct {
        cuzarr_rows rows;
        cuzarr_status expected;
    } rows[] = {
        {{2, 2, row, &memory}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{SIZE_MAX, 2, row, &memory}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{0, 3, row, &memory}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{0, (size_t)1 << 40, row, &memory}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{0, 2, NULL, &memory}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{0, 2, row, NULL}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{0, 2, row, (cuzarr_memory *)((char *)&memory + 1)}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{0, 2, row, &small}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{0, 2, two, &memory}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{0, 2, row, &on_stream}, CUZARR_STATUS_INVALID_ARGUMENT},
        {{0, 2, narrow, &memory}, CUZARR_STATUS_SHAPE_MISMATCH},
        {{0, 0, NULL, &memory}, CUZARR_STATUS_SHAPE_MISMATCH},
        {{1, 1, one, &memory}, CUZARR_STATUS_INVALID_ARGUMENT},
    };
    for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
        expect_at(__LINE__, cuzarr_writer_append(writer, &rows[at].rows, 1, false, &error), rows[at].expected);
        expect_at(__LINE__, cuzarr_writer_write(writer, 0, &rows[at].rows, 1, true, &error), rows[at].expected);
    }
    const cuzarr_rows good[2] = {{0, 2, row, &memory}, {1, 0, NULL, &at_time}}, same[2] = {good[0], good[0]};
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_append(writer, NULL, 1, false, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_append(writer, good, SIZE_MAX / 8, false, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_append(writer, same, 2, false, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_append(NULL, good, 2, false, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_append((cuzarr_writer *)steps, good, 2, false, &error));
    EXPECT(OUT_OF_RANGE, cuzarr_writer_write(writer, UINT64_MAX, good, 2, false, &error));
    /* All rows of one step are added, or none. */
    const cuzarr_rows uneven[2] = {good[0], {1, 1, one, &(cuzarr_memory){.data = (int64_t[3]){0}, .size_bytes = 24}}};
    EXPECT(SHAPE_MISMATCH, cuzarr_writer_append(writer, uneven, 2, false, &error));
    uint64_t position = 1, end = 1;
    double waited = -1;
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_progress(NULL, &position, &end, &waited, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_progress(writer, NULL, &end, &waited, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_progress(writer, &position, &end, NULL, &error));
    EXPECT(OK, cuzarr_writer_progress(writer, &position, &end, &waited, &error));
    REQUIRE(position == 0 && end == 0 && waited >= 0);
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_flush(NULL, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_close((cuzarr_writer *)group, &error));
    EXPECT(OK, cuzarr_writer_append(writer, NULL, 0, false, &error));

    /* After all this, the writer goes on. What is changed after a call was copied before. */
    for (int at = 0; at < 6; at++) {
        step[0] = 100 * at;
        time = at;
        EXPECT(OK, cuzarr_writer_append(writer, good, 2, false, &error));
    }
    step[0] = -1;
    /* Rows of more blocks than there are slots: rows 4 and 5 have one, row 4000 would take the other. */
    const uint64_t many[2] = {8, 3};
    int32_t block[8][3] = {{0}};
    const cuzarr_rows far = {0, 2, many, &(cuzarr_memory){.data = block, .size_bytes = sizeof block}};
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_write(writer, 4001, &far, 1, false, &error));
    EXPECT(OK, cuzarr_writer_flush(writer, &error));
    REQUIRE(position_of(writer) == 6 && rows_of(steps) == 6 && rows_of(times) == 6);
    EXPECT(OK, cuzarr_writer_close(writer, &error));
    EXPECT(OK, cuzarr_writer_close(writer, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_append(writer, good, 2, false, &error));
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_flush(writer, &error));
    REQUIRE(position_of(writer) == 6);
    cuzarr_writer_free((cuzarr_writer *)steps);
    cuzarr_writer_free(NULL);
    cuzarr_writer_free(writer);

    int32_t stored[6][3];
    uint64_t start[2] = {0, 0}, extent[2] = {6, 3};
    EXPECT(OK, cuzarr_array_read(steps, &(cuzarr_region){2, start, extent, NULL}, &(cuzarr_memory){.data = stored, .size_bytes = sizeof stored},
                                 NULL, &error));
    for (int at = 0; at < 6; at++)
        REQUIRE(stored[at][0] == 100 * at && stored[at][2] == 3);
}

struct writing {
    cuzarr_writer *writer;
    int first;
    atomic_bool is_done;
};

/* Adds every other row. Two threads do so at once: each waits while the other is in a call. */
static void *write_every_other_row(void *given)
{
    struct writing *writing = given;
    for (int at = writing->first; at < 200; at += 2) {
        int32_t row[3] = {at, at, at};
        cuzarr_memory memory = {.data = row, .size_bytes = sizeof row};
        cuzarr_rows rows = {0, 1, (uint64_t[]){3}, &memory};
        cuzarr_error *own = NULL;
        REQUIRE(cuzarr_writer_write(writing->writer, 6 + (uint64_t)at, &rows, 1, false, &own) == CUZARR_STATUS_OK && own == NULL);
    }
    writing->is_done = true;
    return NULL;
}

static void writers_and_threads(cuzarr_array *steps)
{
    cuzarr_writer *writer = NULL;
    const cuzarr_array *const arrays[1] = {steps};
    EXPECT(OK, cuzarr_writer_open(arrays, NULL, 1, "{\"slots\": 100}", NULL, &writer, &error));
    struct writing writing[2] = {{.writer = writer, .first = 0}, {.writer = writer, .first = 1}};
    pthread_t threads[2];
    for (int at = 0; at < 2; at++)
        REQUIRE(pthread_create(&threads[at], NULL, write_every_other_row, &writing[at]) == 0);
    while (!writing[0].is_done || !writing[1].is_done) {
        REQUIRE(position_of(writer) <= 206);
        sched_yield();
    }
    for (int at = 0; at < 2; at++)
        REQUIRE(pthread_join(threads[at], NULL) == 0);
    EXPECT(OK, cuzarr_writer_close(writer, &error));
    REQUIRE(position_of(writer) == 206 && rows_of(steps) == 206);
    cuzarr_writer_free(writer);
    int32_t last[1][3];
    uint64_t start[2] = {205, 0}, extent[2] = {1, 3};
    EXPECT(OK, cuzarr_array_read(steps, &(cuzarr_region){2, start, extent, NULL}, &(cuzarr_memory){.data = last, .size_bytes = sizeof last}, NULL,
                                 &error));
    REQUIRE(last[0][0] == 199);
}

/* Memory that the caller keeps may be freed when the writer is. A writer that is freed without being closed frees its arrays. */
static void writers_that_are_freed_without_close(cuzarr_array *steps)
{
    const cuzarr_array *const arrays[1] = {steps};
    for (int round = 0; round < 20; round++) {
        cuzarr_writer *writer = NULL;
        EXPECT(OK, cuzarr_writer_open(arrays, NULL, 1, NULL, NULL, &writer, &error));
        const uint64_t before = position_of(writer), shape[2] = {4 * 50, 3};
        int32_t *kept = calloc(4 * 50 * 3, sizeof *kept);
        REQUIRE(kept);
        cuzarr_memory memory = {.data = kept, .size_bytes = 4 * 50 * 3 * sizeof *kept};
        EXPECT(OK, cuzarr_writer_append(writer, &(cuzarr_rows){0, 2, shape, &memory}, 1, true, &error));
        if (round % 2) {
            EXPECT(OK, cuzarr_writer_flush(writer, &error));
            free(kept);
            cuzarr_writer_free(writer);
            REQUIRE(rows_of(steps) == before + 4 * 50);
        } else {
            cuzarr_writer_free(writer);
            free(kept);
        }
    }
}

static void writers_that_end(cuzarr_group *group, const char *path)
{
    cuzarr_writer *writer = NULL;
    cuzarr_cancellation *cancellation = NULL;
    cuzarr_array *array = NULL, *closed = NULL;
    char name[4096];
    EXPECT(OK, cuzarr_group_create_array(group, "ended", "{\"shape\": [0], \"dtype\": \"int8\", \"chunks\": [2]}", &array, &error));
    const cuzarr_array *const arrays[1] = {array};
    int8_t row = 1;
    cuzarr_memory memory = {.data = &row, .size_bytes = 1};
    const cuzarr_rows rows = {0, 0, NULL, &memory};

    EXPECT(OK, cuzarr_cancellation_new(&cancellation, &error));
    EXPECT(OK, cuzarr_writer_open(arrays, NULL, 1, "{}", cancellation, &writer, &error));
    EXPECT(OK, cuzarr_writer_append(writer, &rows, 1, false, &error));
    EXPECT(OK, cuzarr_cancellation_cancel(cancellation, &error));
    cuzarr_cancellation_free(cancellation);
    EXPECT(CANCELLED, cuzarr_writer_append(writer, &rows, 1, false, &error));
    EXPECT(CANCELLED, cuzarr_writer_close(writer, &error));
    cuzarr_writer_free(writer);

    /* A thread's failure is the error of the next call, and of all later ones. */
    snprintf(name, sizeof name, "%s/ended", path);
    EXPECT(OK, cuzarr_array_open(name, "cpu", "{\"mode\": \"r\"}", &closed, &error));
    const cuzarr_array *const read_only[1] = {closed};
    EXPECT(OK, cuzarr_writer_open(read_only, NULL, 1, NULL, NULL, &writer, &error));
    cuzarr_array_free(closed);
    EXPECT(OK, cuzarr_writer_append(writer, &rows, 1, false, &error));
    EXPECT(READ_ONLY, cuzarr_writer_flush(writer, &error));
    EXPECT(READ_ONLY, cuzarr_writer_append(writer, &rows, 1, false, &error));
    REQUIRE(position_of(writer) == 0);
    EXPECT(READ_ONLY, cuzarr_writer_close(writer, &error));
    cuzarr_writer_free(writer);

    /* A part of an array of known shape. */
    EXPECT(OK, cuzarr_group_create_array(group, "part", "{\"shape\": [4, 6], \"dtype\": \"int8\", \"chunks\": [2, 3]}", &closed, &error));
    const cuzarr_array *const known[1] = {closed};
    EXPECT(INVALID_ARGUMENT, cuzarr_writer_open(known, NULL, 1, "{\"region\": {\"start\": [0, 1], \"shape\": [4, 3]}}", NULL, &writer, &error));
    EXPECT(OK, cuzarr_writer_open(known, (size_t[]){1}, 1, "{\"region\": {\"start\": [2, 0], \"shape\": [2, 6]}}", NULL, &writer, &error));
    int8_t columns[2][6] = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}}, all[4][6];
    const uint64_t shape[2] = {2, 6};
    memory = (cuzarr_memory){.data = columns, .size_bytes = sizeof columns};
    const cuzarr_rows part = {0, 2, shape, &memory};
    EXPECT(OK, cuzarr_writer_append(writer, &part, 1, false, &error));
    EXPECT(OUT_OF_RANGE, cuzarr_writer_append(writer, &part, 1, false, &error));
    EXPECT(OK, cuzarr_writer_close(writer, &error));
    cuzarr_writer_free(writer);
    EXPECT(OK, cuzarr_array_read(closed, NULL, &(cuzarr_memory){.data = all, .size_bytes = sizeof all}, NULL, &error));
    REQUIRE(rows_of(closed) == 4 && all[1][5] == 0 && all[2][0] == 1 && all[3][5] == 12);
    cuzarr_array_free(closed);
    cuzarr_array_free(array);
}

static void writers(cuzarr_group *group, const char *path)
{
    cuzarr_array *steps = NULL, *times = NULL;
    EXPECT(OK, cuzarr_group_create_array(group, "steps", "{\"shape\": [0, 3], \"dtype\": \"int32\", \"chunks\": [4, 3]}", &steps, &error));
    EXPECT(OK, cuzarr_group_create_array(group, "times", "{\"shape\": [0], \"dtype\": \"int64\", \"chunks\": [16]}", &times, &error));
    wrong_arguments_of_writers(steps, times, group);
    writers_and_threads(steps);
    writers_that_are_freed_without_close(steps);
    cuzarr_array_free(steps);
    cuzarr_array_free(times);
    writers_that_end(group, path);
}

int main(int count, char **arguments)
{
    REQUIRE(count == 2);
    alarm(300);
    cuzarr_group *group = NULL, *second = NULL;
    cuzarr_array *array = NULL, *closed = NULL;
    EXPECT(OK, cuzarr_group_create(arguments[1], "cpu", "{\"attributes\": {\"title\": \"misuse\"}}", NULL, &group, &error));
    EXPECT(CONTAINS_GROUP, cuzarr_group_create(arguments[1], "cpu", NULL, NULL, &second, &error));
    char description[160];
    snprintf(description, sizeof description, "{\"shape\": [%d, %d], \"dtype\": \"int16\", \"chunks\": [5, 7], \"fill_value\": -1}", ROWS, COLUMNS);
    EXPECT(OK, cuzarr_group_create_array(group, "numbers", description, &array, &error));
    EXPECT(CONTAINS_ARRAY, cuzarr_group_create_array(group, "numbers", description, &closed, &error));

    static int16_t elements[ROWS * COLUMNS];
    for (int at = 0; at < ROWS * COLUMNS; at++)
        elements[at] = (int16_t)at;
    const cuzarr_memory memory = {.data = elements, .size_bytes = sizeof elements, .dtype = "int16"};
    EXPECT(OK, cuzarr_array_write(array, NULL, &memory, NULL, &error));

    handles(array, group, arguments[1]);
    memory_and_regions(array);

    pthread_t threads[8];
    for (int at = 0; at < 8; at++)
        REQUIRE(pthread_create(&threads[at], NULL, read_often, array) == 0);
    for (int at = 0; at < 8; at++)
        REQUIRE(pthread_join(threads[at], NULL) == 0);

    cancellation_by_another_thread(array);
    dlpack(array, group);

    /* Reading alone. */
    char path[4096];
    snprintf(path, sizeof path, "%s/numbers", arguments[1]);
    EXPECT(OK, cuzarr_array_open(path, "cpu", "{\"mode\": \"r\", \"threads\": 2}", &closed, &error));
    EXPECT(READ_ONLY, cuzarr_array_write(closed, NULL, &memory, NULL, &error));
    EXPECT(READ_ONLY, cuzarr_array_set_attributes(closed, "{}", &error));
    /* A tensor outlives its array. */
    DLManagedTensorVersioned *tensor = NULL;
    EXPECT(OK, cuzarr_array_read_dlpack(closed, NULL, NULL, &tensor, &error));
    cuzarr_array_free(closed);
    cuzarr_array_free(array);
    REQUIRE(((int16_t *)tensor->dl_tensor.data)[COLUMNS] == COLUMNS);
    tensor->deleter(tensor);

    char *text = NULL;
    EXPECT(OK, cuzarr_group_members(group, &text, &error));
    REQUIRE(strcmp(text, "{\"numbers\":\"array\"}") == 0);
    cuzarr_string_free(text);
    EXPECT(OK, cuzarr_group_attributes(group, &text, &error));
    REQUIRE(strstr(text, "misuse"));
    cuzarr_string_free(text);
    EXPECT(OK, cuzarr_group_set_attributes(group, "{\"title\": \"ended\"}", &error));
    writers(group, arguments[1]);
    cuzarr_group_free(group);
    puts("misuse: ok");
    return 0;
}
