// Strided copies of many regions, with the bytes of units reversed if requested. Used for scatter and gather of plain
// and byte-swapped elements, copies between nd-buffers, fills (a source with strides 0), and transposes.
//
// copy_linear, for each tile of a block:
//     for each of the thread's elements, consecutive threads taking consecutive ones:
//         split its number into coordinates, both offsets; load
//     swap and store them all
// copy_transposed, if source and target have different fastest dimensions: a square of rows (fastest in the source) by
// columns (fastest in the target) goes through shared memory, so that each side is accessed along its fastest
// dimension.
//
// Floor: 2 x bytes moved / 4.3 TB/s on an H200. The host widens elements to 16 bytes wherever runs and alignment allow, so
// that the index arithmetic (about 12 instructions a dimension) is paid once per 16 bytes.
#include "cuzarr/regions.cuh"

static_assert(sizeof(Region) == 152 && sizeof(Walk) == 144, "as regions/lower.rs has them");

template <int Bytes>
CUZARR_DEVICE void copy_linear(const u8* src, u8* dst, const Region* regions, const Walk& walk, u32 unit) {
    typedef typename Word<Bytes>::Type T;
    const u32 tile_elems = thread_count() * CUZARR_UNROLL;
    for (Tiles tiles(regions, walk); !tiles.done(); tiles.next(regions, walk)) {
        const Region& region = regions[tiles.region];
        u32 first = (u32)(tiles.tile - region.first_tile) * tile_elems + thread_index();
        T values[CUZARR_UNROLL];
        i64 targets[CUZARR_UNROLL];
#pragma unroll
        for (u32 k = 0; k < CUZARR_UNROLL; ++k) {
            u32 index = first + k * thread_count();
            if (index < region.elems) {
                Place place = place_of(region, walk, walk.ndim, index);
                values[k] = *(const T*)(src + place.src);
                targets[k] = place.dst;
            }
        }
#pragma unroll
        for (u32 k = 0; k < CUZARR_UNROLL; ++k) {
            u32 index = first + k * thread_count();
            if (index < region.elems) *(T*)(dst + targets[k]) = swap_bytes(values[k], unit);
        }
    }
}

/// Side of the square in elements. For small elements it is larger, so that rows fill memory sectors.
template <int Bytes>
struct Square { enum { Side = Bytes <= 2 ? 64 : 32 }; };

template <int Bytes>
CUZARR_DEVICE void copy_transposed(const u8* src, u8* dst, const Region* regions, const Walk& walk, u32 unit) {
    typedef typename Word<Bytes>::Type T;
    const u32 side = Square<Bytes>::Side, row_dimension = walk.ndim - 2, column_dimension = walk.ndim - 1;
    // One extra column, so that reading down a column does not hit one bank repeatedly.
    CUZARR_SHARED(T, square, (Square<Bytes>::Side * (Square<Bytes>::Side + 1)));
    for (Tiles tiles(regions, walk); !tiles.done(); tiles.next(regions, walk)) {
        const Region& region = regions[tiles.region];
        u32 index = (u32)(tiles.tile - region.first_tile);
        u32 quotient = divide(region, column_dimension, index);
        u32 first_column = (index - quotient * region.extents[column_dimension]) * side;
        u32 outer = divide(region, row_dimension, quotient);
        u32 first_row = (quotient - outer * region.extents[row_dimension]) * side;
        Place place = place_of(region, walk, row_dimension, outer);
        u32 rows = region.rows - first_row < side ? region.rows - first_row : side;
        u32 columns = region.columns - first_column < side ? region.columns - first_column : side;
        const u8* from = src + place.src + (i64)first_row * walk.src_strides[row_dimension] +
                         (i64)first_column * walk.src_strides[column_dimension];
        u8* to = dst + place.dst + (i64)first_row * walk.dst_strides[row_dimension] +
                 (i64)first_column * walk.dst_strides[column_dimension];
        for (u32 at = thread_index(); at < side * side; at += thread_count()) {
            u32 column = at / side, row = at % side;
            if (row < rows && column < columns) {
                square[row * (side + 1) + column] = *(const T*)(from + (i64)row * walk.src_strides[row_dimension] +
                                                                (i64)column * walk.src_strides[column_dimension]);
            }
        }
        block_barrier();
        for (u32 at = thread_index(); at < side * side; at += thread_count()) {
            u32 row = at / side, column = at % side;
            if (row < rows && column < columns) {
                *(T*)(to + (i64)row * walk.dst_strides[row_dimension] +
                      (i64)column * walk.dst_strides[column_dimension]) =
                    swap_bytes(square[row * (side + 1) + column], unit);
            }
        }
        block_barrier();
    }
}

#define CUZARR_COPY(bytes)                                                                                              \
    CUZARR_KERNEL(copy_linear_##bytes, const u8* src, u8* dst, const Region* regions, Walk walk, u32 unit) {             \
        copy_linear<bytes>(src, dst, regions, walk, unit);                                                              \
    }                                                                                                                   \
    CUZARR_KERNEL(copy_transposed_##bytes, const u8* src, u8* dst, const Region* regions, Walk walk, u32 unit) {         \
        copy_transposed<bytes>(src, dst, regions, walk, unit);                                                          \
    }

CUZARR_COPY(1)
CUZARR_COPY(2)
CUZARR_COPY(4)
CUZARR_COPY(8)
CUZARR_COPY(16)
