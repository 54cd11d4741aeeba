// Matrix products of integers, which wrap, and of bools.
//
// Each thread makes one element of the result, from a row of the first matrix and a column of the second. Neighbouring
// threads have elements of one row, so they read neighbours in the second matrix, and share the row in the caches.
//
// Floor: 2 * batch * rows * columns * inner operations / the device's rate for integer operations; cache accesses take
// a part of it.
#include "cuzarr/lines.cuh"

/// The shapes of an integer product. `Whole` in cuda.rs.
struct Products {
    u64 batch, rows, inner, columns;
    i64 first[3], second[3];  // strides in elements, along the batch, the rows and the columns
};

template <class T, class Join>
CUZARR_DEVICE void multiply(const T* first, const T* second, T* result, const Products& of, Join join) {
    for_each_number(of.batch * of.rows * of.columns, [&](u64 at) {
        const i64 column = (i64)(at % of.columns), row = (i64)(at / of.columns % of.rows), number = (i64)(at / of.columns / of.rows);
        const T* a = first + number * of.first[0] + row * of.first[1];
        const T* b = second + number * of.second[0] + column * of.second[2];
        T sum = 0;
        for (u64 place = 0; place < of.inner; ++place) sum = join(sum, a[(i64)place * of.first[2]], b[(i64)place * of.second[1]]);
        result[at] = sum;
    });
}

#define MATMUL_KERNEL(type, name)                                                                                        \
    CUZARR_KERNEL(matmul_##name, const type* first, const type* second, type* result, Products of) {                     \
        multiply(first, second, result, of, [](type sum, type a, type b) { return (type)(sum + (u64)a * b); });          \
    }

MATMUL_KERNEL(u8, 1)
MATMUL_KERNEL(u16, 2)
MATMUL_KERNEL(u32, 4)
MATMUL_KERNEL(u64, 8)

CUZARR_KERNEL(matmul_bool, const u8* first, const u8* second, u8* result, Products of) {
    multiply(first, second, result, of, [](u8 sum, u8 a, u8 b) { return (u8)(sum | (a & b)); });
}
