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

    cuzarr_array_free(copy);
    free(memory);
    free(part);
    puts("device: ok");
    return 0;
}
