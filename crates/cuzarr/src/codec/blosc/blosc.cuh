// The numbers of Blosc-1 containers, for container.rs and the kernels.
#pragma once

/// Bytes of the header.
#define CUZARR_BLOSC_HEADER 16u
/// Flags of the header, and the number of zstd in its uppermost bits.
#define CUZARR_BLOSC_BYTES 1u
#define CUZARR_BLOSC_COPIED 2u
#define CUZARR_BLOSC_BITS 4u
#define CUZARR_BLOSC_UNSPLIT 16u
#define CUZARR_BLOSC_ZSTD 4u
/// Maximum splits of a block, and minimum bytes of a split.
#define CUZARR_BLOSC_MOST_SPLITS 16u
#define CUZARR_BLOSC_LEAST_SPLIT 128u
