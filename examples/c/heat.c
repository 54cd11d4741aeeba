/* The heat equation in two dimensions, by C, in host memory.
 *
 *     heat STORE STEPS
 *
 * STORE is a path or URL of a group with the array "initial": float64, of any shape. The program adds the array
 * "temperature" with one field for each step, and prints the highest temperature at the end. A writer stores the fields of 8
 * steps at a time, while the program computes the next ones.
 *
 *     cc heat.c -o heat $(pkg-config --cflags --libs cuzarr)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuzarr.h"

#define DIFFUSION 0.2

static cuzarr_error *error = NULL;

/* Ends the program if a call failed, with all that its error says. */
static void check(cuzarr_status status)
{
    if (status == CUZARR_STATUS_OK)
        return;
    fprintf(stderr, "heat: %s\n", cuzarr_error_text(error));
    cuzarr_error_free(error);
    exit(1);
}

/* One step: each point moves towards the mean of its neighbours; the border stays. */
static void step(double *next, const double *now, size_t rows, size_t columns)
{
    memcpy(next, now, rows * columns * sizeof *now);
    for (size_t row = 1; row + 1 < rows; row++) {
        for (size_t column = 1; column + 1 < columns; column++) {
            const double *at = now + row * columns + column;
            next[row * columns + column] = at[0] + DIFFUSION * (at[-(long)columns] + at[columns] + at[-1] + at[1] - 4 * at[0]);
        }
    }
}

int main(int count, char **arguments)
{
    if (count != 3) {
        fprintf(stderr, "usage: heat STORE STEPS\n");
        return 2;
    }
    const unsigned long steps = strtoul(arguments[2], NULL, 10);
    cuzarr_group *group = NULL;
    cuzarr_array *initial = NULL, *temperature = NULL;
    check(cuzarr_group_open(arguments[1], "cpu", NULL, &group, &error));
    check(cuzarr_group_array(group, "initial", &initial, &error));

    uint64_t shape[2];
    check(cuzarr_array_shape(initial, 2, shape, &error));
    const size_t rows = shape[0], columns = shape[1], size_bytes = rows * columns * sizeof(double);
    double *now = malloc(size_bytes), *next = malloc(size_bytes);
    if (!now || !next)
        return 1;
    cuzarr_memory memory = {.data = now, .size_bytes = size_bytes, .dtype = "float64"};
    check(cuzarr_array_read(initial, NULL, &memory, NULL, &error));
    cuzarr_array_free(initial);

    char description[256];
    snprintf(description, sizeof description,
             "{\"shape\": [0, %zu, %zu], \"chunks\": [8, %zu, %zu], \"dtype\": \"float64\", \"overwrite\": true,"
             " \"dimension_names\": [\"time\", \"y\", \"x\"], \"attributes\": {\"units\": \"K\"}}",
             rows, columns, rows, columns);
    check(cuzarr_group_create_array(group, "temperature", description, &temperature, &error));
    const cuzarr_array *arrays[1] = {temperature};
    cuzarr_writer *writer = NULL;
    check(cuzarr_writer_open(arrays, NULL, 1, NULL, NULL, &writer, &error));
    const cuzarr_rows field = {.array = 0, .ndim = 2, .shape = shape, .memory = &memory};
    for (unsigned long at = 0; at < steps; at++) {
        step(next, now, rows, columns);
        memory.data = next;
        check(cuzarr_writer_append(writer, &field, 1, false, &error));
        double *last = now;
        now = next;
        next = last;
    }
    check(cuzarr_writer_close(writer, &error));
    cuzarr_writer_free(writer);

    double highest = now[0];
    for (size_t at = 1; at < rows * columns; at++)
        highest = now[at] > highest ? now[at] : highest;
    printf("highest temperature after %lu steps: %.6f\n", steps, highest);
    free(now);
    free(next);
    cuzarr_array_free(temperature);
    cuzarr_group_free(group);
    return 0;
}
