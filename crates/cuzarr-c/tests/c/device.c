/* Reads into and writes from memory of a device, with strides, streams and DLPack. Run with a folder, under scripts/with-simt: the
 * kernels run on the CPU, and memory of the device "simt" is host memory that only they touch. Its last line is "device: ok". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dlpack.h"

#include "cuzarr.h"

#define REQUIRE(condition)                                                                                           \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fprintf(stderr, "%s:%d: not so: %s: %s\n", __FILE__, __LINE__, #condition,                                \
                    error ? cuzarr_error_text(error) : "no error");                                                  \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)
#define OK(call) REQUIRE((call) == CUZARR_STATUS_OK)

#define ROWS 120
#define COLUMNS 70

static cuzarr_error *error = NULL;

int main(int count, char **arguments)
{
    REQUIRE(count == 2);
    cuzarr_array *array = NULL, *copy = NULL;
    char description[256], path[4096];
    snprintf(description, sizeof description,
             "{\"shape\": [%d, %d], \"dtype\": \"float32\", \"chunks\": [32, 32], \"compressor\": \"zstd\"}", ROWS, COLUMNS);
    snprintf(path, sizeof path, "%s/array", arguments[1]);
    OK(cuzarr_array_create(path, "simt", description, "{\"strict\": true}", &array, &error));
    snprintf(path, sizeof path, "%s/copy", arguments[1]);
    OK(cuzarr_array_create(path, "simt", description, NULL, &copy, &error));

    /* Written from the device, whose memory is aligned as a GPU's is; the stream is the legacy default one by both its names. */
    const size_t size_bytes = ROWS * COLUMNS * sizeof(float);
    float *memory = aligned_alloc(256, (size_bytes + 255) / 256 * 256);
    REQUIRE(memory);
    for (int at = 0; at < ROWS * COLUMNS; at++)
        memory[at] = (float)at / 7;
    cuzarr_memory device = {.data = memory, .size_bytes = size_bytes, .device = "simt", .dtype = "float32", .stream = 0};
    OK(cuzarr_array_write(array, NULL, &device, NULL, &error));
    memset(memory, 0, size_bytes);
    device.stream = 1;
    OK(cuzarr_array_read(array, NULL, &device, NULL, &error));
    for (int at = 0; at < ROWS * COLUMNS; at++)
        REQUIRE(memory[at] == (float)at / 7);

    /* Every third row and second column, columns first in memory, with a step and a conversion of types. */
    double *part = aligned_alloc(256, 40 * 35 * sizeof(double) / 256 * 256 + 256);
    REQUIRE(part);
    uint64_t start[2] = {0, 0}, shape[2] = {40, 35}, step[2] = {3, 2};
    int64_t strides[2] = {8, 40 * 8};
    cuzarr_region region = {2, start, shape, step};
    cuzarr_memory turned = {.data = part, .size_bytes = 40 * 35 * sizeof(double), .strides = strides, .device = "simt",
                            .dtype = "float64", .stream = CUZARR_STREAM_READY};
    OK(cuzarr_array_read(array, &region, &turned, NULL, &error));
    for (int row = 0; row < 40; row++)
        for (int column = 0; column < 35; column++)
            REQUIRE(part[column * 40 + row] == (double)((float)(3 * row * COLUMNS + 2 * column) / 7));

    /* Elements that a kernel could not touch. */
    turned.offset_bytes = 4;
    turned.size_bytes += 8;
    REQUIRE(cuzarr_array_read(array, &region, &turned, NULL, &error) == CUZARR_STATUS_INVALID_ARGUMENT);
    cuzarr_error_free(error);
    error = NULL;

    /* The same call reads to the host and to the device. */
    float row_on_host[COLUMNS];
    uint64_t row_start[2] = {ROWS - 1, 0}, row_shape[2] = {1, COLUMNS};
    cuzarr_region row = {2, row_start, row_shape, NULL};
    cuzarr_memory host = {.data = row_on_host, .size_bytes = sizeof row_on_host};
    memset(memory, 0, size_bytes);
    cuzarr_read reads[2] = {{array, NULL, &device}, {array, &row, &host}};
    OK(cuzarr_read_many(reads, 2, NULL, &error));
    REQUIRE(memory[ROWS * COLUMNS - 1] == (float)(ROWS * COLUMNS - 1) / 7 && row_on_host[0] == (float)((ROWS - 1) * COLUMNS) / 7);

    /* DLPack there and back; the tensor outlives its array. */
    DLManagedTensorVersioned *tensor = NULL;
    OK(cuzarr_array_read_dlpack(array, NULL, NULL, &tensor, &error));
    cuzarr_array_free(array);
    REQUIRE(tensor->dl_tensor.shape[0] == ROWS && tensor->dl_tensor.dtype.code == 2 && tensor->dl_tensor.dtype.bits == 32);
    OK(cuzarr_array_write_dlpack(copy, NULL, tensor, 0, NULL, &error));
    memset(memory, 0, size_bytes);
    OK(cuzarr_array_read(copy, NULL, &device, NULL, &error));
    REQUIRE(memory[1] == 1.0f / 7 && memory[ROWS * COLUMNS - 1] == (float)(ROWS * COLUMNS - 1) / 7);

    /* A writer takes rows of the device, and of the host, in the order of their streams. */
    cuzarr_array *grown = NULL;
    snprintf(path, sizeof path, "%s/grown", arguments[1]);
    snprintf(description, sizeof description,
             "{\"shape\": [0, %d], \"dtype\": \"float32\", \"chunks\": [8, %d], \"compressor\": \"zstd\"}", COLUMNS, COLUMNS);
    OK(cuzarr_array_create(path, "simt", description, NULL, &grown, &error));
    const cuzarr_array *const arrays[1] = {grown};
    cuzarr_writer *writer = NULL;
    OK(cuzarr_writer_open(arrays, NULL, 1, NULL, NULL, &writer, &error));
    const size_t streams[3] = {0, 1, CUZARR_STREAM_READY};
    uint64_t one[2] = {1, COLUMNS}, sixteen[2] = {16, COLUMNS};
    device.size_bytes = COLUMNS * sizeof(float);
    for (int step = 0; step < 30; step++) {
        for (int column = 0; column < COLUMNS; column++)
            memory[column] = row_on_host[column] = (float)(1000 * step + column);
        device.stream = streams[step % 3];
        const cuzarr_rows rows = {0, 2, one, step % 5 ? &device : &host};
        OK(cuzarr_writer_append(writer, &rows, 1, false, &error));
    }
    OK(cuzarr_writer_flush(writer, &error));
    for (int at = 0; at < 16 * COLUMNS; at++)
        memory[at] = (float)at;
    device.size_bytes = 16 * COLUMNS * sizeof(float);
    OK(cuzarr_writer_write(writer, 32, &(cuzarr_rows){0, 2, sixteen, &device}, 1, true, &error));
    device.stream = 0x1000;
    device.device = "cpu";
    REQUIRE(cuzarr_writer_append(writer, &(cuzarr_rows){0, 2, sixteen, &device}, 1, true, &error) == CUZARR_STATUS_INVALID_ARGUMENT);
    cuzarr_error_free(error);
    error = NULL;
    float *other = aligned_alloc(256, size_bytes / 256 * 256 + 256);
    REQUIRE(other);
    cuzarr_memory two_rows = {.data = other, .size_bytes = 2 * COLUMNS * sizeof(float), .device = "simt"};
    for (int at = 0; at < 2 * COLUMNS; at++)
        other[at] = -1;
    OK(cuzarr_writer_write(writer, 30, &(cuzarr_rows){0, 2, (uint64_t[]){2, COLUMNS}, &two_rows}, 1, false, &error));
    OK(cuzarr_writer_close(writer, &error));
    cuzarr_writer_free(writer);
    uint64_t grown_shape[2];
    OK(cuzarr_array_shape(grown, 2, grown_shape, &error));
    REQUIRE(grown_shape[0] == 48);
    two_rows.size_bytes = 48 * COLUMNS * sizeof(float);
    OK(cuzarr_array_read(grown, NULL, &two_rows, NULL, &error));
    for (int row_at = 0; row_at < 48; row_at++)
        for (int column = 0; column < COLUMNS; column++) {
            float expected = row_at < 30 ? (float)(1000 * row_at + column) : row_at < 32 ? -1 : (float)((row_at - 32) * COLUMNS + column);
            REQUIRE(other[row_at * COLUMNS + column] == expected);
        }

    cuzarr_array_free(grown);
    free(other);
    cuzarr_array_free(copy);
    free(memory);
    free(part);
    puts("device: ok");
    return 0;
}
