// The heat equation in two dimensions, by C++. With nvcc the fields stay in GPU memory, and cuzarr reads into it and writes from it;
// with another compiler they are in host memory. A writer stores the fields of 8 steps at a time, while the program computes the next
// ones.
//
//     heat STORE STEPS
//
// STORE is a path or URL of a group with the array "initial": float64, of any shape. The program adds the array "temperature" with
// one field for each step, and prints the sum of the last one.
//
//     c++ -std=c++17 heat.cpp -o heat $(pkg-config --cflags --libs cuzarr)
//     nvcc -std=c++17 -x cu heat.cpp -o heat $(pkg-config --cflags --libs cuzarr)
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuzarr.h"

// Handles that free themselves.
using Group = std::unique_ptr<cuzarr_group, decltype(&cuzarr_group_free)>;
using Array = std::unique_ptr<cuzarr_array, decltype(&cuzarr_array_free)>;
using Writer = std::unique_ptr<cuzarr_writer, decltype(&cuzarr_writer_free)>;

// Calls a function of cuzarr, and throws what its error says.
template <class Function, class... Arguments> void call(Function function, Arguments... arguments)
{
    cuzarr_error *error = nullptr;
    if (function(arguments..., &error) != CUZARR_STATUS_OK) {
        std::string text = cuzarr_error_text(error);
        cuzarr_error_free(error);
        throw std::runtime_error(text);
    }
}

#ifdef __CUDACC__

constexpr const char *DEVICE = "cuda:0";

static void check(cudaError_t status)
{
    if (status != cudaSuccess)
        throw std::runtime_error(cudaGetErrorString(status));
}

__global__ void diffuse(double *next, const double *now, size_t rows, size_t columns)
{
    size_t row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows || column >= columns)
        return;
    const double *at = now + row * columns + column;
    bool is_inner = row > 0 && row + 1 < rows && column > 0 && column + 1 < columns;
    double change = is_inner ? 0.2 * (*(at - columns) + at[columns] + at[-1] + at[1] - 4 * at[0]) : 0;
    next[row * columns + column] = at[0] + change;
}

// A field in GPU memory, and the stream on which its kernels run.
class Field {
public:
    Field(size_t rows, size_t columns) : rows(rows), columns(columns) { check(cudaMalloc(&data, size_bytes())); }
    ~Field() { cudaFree(data); }
    Field(const Field &) = delete;
    size_t size_bytes() const { return rows * columns * sizeof(double); }

    // Starts a step, and returns at once: the writer copies the field behind it on the same stream.
    void follow(const Field &last)
    {
        dim3 block(32, 8), grid((unsigned)((columns + 31) / 32), (unsigned)((rows + 7) / 8));
        diffuse<<<grid, block, 0, stream()>>>(data, last.data, rows, columns);
        check(cudaGetLastError());
    }
    double sum() const
    {
        std::vector<double> copy(rows * columns);
        check(cudaMemcpy(copy.data(), data, size_bytes(), cudaMemcpyDeviceToHost));
        return std::accumulate(copy.begin(), copy.end(), 0.0);
    }
    cuzarr_memory memory() const
    {
        cuzarr_memory memory = {};
        memory.data = data;
        memory.size_bytes = size_bytes();
        memory.device = DEVICE;
        memory.stream = reinterpret_cast<std::uintptr_t>(stream());
        return memory;
    }

private:
    static cudaStream_t stream()
    {
        static cudaStream_t made = [] {
            cudaStream_t stream;
            check(cudaStreamCreate(&stream));
            return stream;
        }();
        return made;
    }
    size_t rows, columns;
    double *data = nullptr;
};

#else

constexpr const char *DEVICE = "cpu";

// A field in host memory.
class Field {
public:
    Field(size_t rows, size_t columns) : rows(rows), columns(columns), data(rows * columns) {}

    // One step: each point moves towards the mean of its neighbours; the border stays.
    void follow(const Field &last)
    {
        data = last.data;
        for (size_t row = 1; row + 1 < rows; row++) {
            for (size_t column = 1; column + 1 < columns; column++) {
                const double *at = last.data.data() + row * columns + column;
                data[row * columns + column] += 0.2 * (*(at - columns) + at[columns] + at[-1] + at[1] - 4 * at[0]);
            }
        }
    }
    double sum() const { return std::accumulate(data.begin(), data.end(), 0.0); }
    cuzarr_memory memory()
    {
        cuzarr_memory memory = {};
        memory.data = data.data();
        memory.size_bytes = data.size() * sizeof(double);
        return memory;
    }

private:
    size_t rows, columns;
    std::vector<double> data;
};

#endif

int main(int count, char **arguments)
try {
    if (count != 3) {
        std::fprintf(stderr, "usage: heat STORE STEPS\n");
        return 2;
    }
    const std::uint64_t steps = std::stoull(arguments[2]);
    cuzarr_group *opened = nullptr;
    cuzarr_array *found = nullptr, *made = nullptr;
    call(cuzarr_group_open, arguments[1], DEVICE, nullptr, &opened);
    Group group(opened, cuzarr_group_free);
    call(cuzarr_group_array, group.get(), "initial", &found);
    Array initial(found, cuzarr_array_free);

    std::uint64_t shape[2];
    call(cuzarr_array_shape, initial.get(), size_t{2}, shape);
    Field one(shape[0], shape[1]), other(shape[0], shape[1]);
    Field *now = &one, *next = &other;
    cuzarr_memory memory = now->memory();
    call(cuzarr_array_read, initial.get(), nullptr, &memory, nullptr);

    const std::string rows = std::to_string(shape[0]), columns = std::to_string(shape[1]);
    const std::string description = "{\"shape\": [0, " + rows + ", " + columns + "], \"chunks\": [8, " + rows + ", " +
                                    columns + "], \"dtype\": \"float64\", \"overwrite\": true, \"dimension_names\": [\"time\", \"y\", \"x\"]," +
                                    " \"attributes\": {\"units\": \"K\"}}";
    call(cuzarr_group_create_array, group.get(), "temperature", description.c_str(), &made);
    Array temperature(made, cuzarr_array_free);

    const cuzarr_array *arrays[1] = {temperature.get()};
    cuzarr_writer *begun = nullptr;
    call(cuzarr_writer_open, arrays, nullptr, size_t{1}, nullptr, nullptr, &begun);
    Writer writer(begun, cuzarr_writer_free);
    const cuzarr_rows field = {0, 2, shape, &memory};
    for (std::uint64_t at = 0; at < steps; at++) {
        next->follow(*now);
        memory = next->memory();
        call(cuzarr_writer_append, writer.get(), &field, size_t{1}, false);
        std::swap(now, next);
    }
    call(cuzarr_writer_close, writer.get());
    std::printf("sum after %s steps on %s: %.6f\n", arguments[2], DEVICE, now->sum());
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "heat: %s\n", error.what());
    return 1;
}
