// The predefined distributions of sequences' codes: RFC 8878, section 3.1.1.3.2.2.
#pragma once
#include "codec/zstd/fse.cuh"

CUZARR_CONSTANT(i16, LITERAL_LENGTH_COUNTS, 36) = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1,  1,  2,  2,
                                                   2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
CUZARR_CONSTANT(i16, OFFSET_COUNTS, 29) = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1,  1,  1,  1,  1, 1,
                                           1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};
CUZARR_CONSTANT(i16, MATCH_LENGTH_COUNTS, 53) = {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1,  1,  1,
                                                 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,
                                                 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};

/// The largest log of a table that describes the weights of a Huffman code.
#define CUZARR_ZSTD_WEIGHT_LOG 6u

/// Loads the distribution of a kind, by all lanes: 0 literal lengths, 1 offsets, 2 match lengths.
CUZARR_DEVICE void predefined_counts(FseSpace& fse, u32 kind, u32 lane) {
    u32 symbols = kind == 0 ? 36 : kind == 1 ? 29 : 53;
    const i16* counts = kind == 0 ? LITERAL_LENGTH_COUNTS : kind == 1 ? OFFSET_COUNTS : MATCH_LENGTH_COUNTS;
    for (u32 i = lane; i < symbols; i += CUZARR_WARP) fse.counts[i] = counts[i];
    if (lane == 0) fse.symbols = symbols, fse.log = kind == 1 ? 5 : 6;
}
