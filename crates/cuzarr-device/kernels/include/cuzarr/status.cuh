// What kernels say about each unit they decode: one u64, 0 while nothing is wrong.
//
// Codes below 32 are for every format; zstd has 32 to 63, deflate and its containers 64 to 95, checksums 96 to 127.
#pragma once
#include "cuzarr/kernel.cuh"

/// What is wrong with a unit. `damage` in crates/cuzarr/src/codec/batch/status.rs says it in words.
#define CUZARR_INTACT 0u
#define CUZARR_CUT_OFF 1u          // the stream ends where more is needed
#define CUZARR_ZERO_OFFSET 2u      // a match that repeats nothing
#define CUZARR_BEFORE_START 3u     // a match that begins before the stream's first byte
#define CUZARR_TOO_LONG 4u         // decodes to more than its place
#define CUZARR_TOO_SHORT 5u        // or to less
#define CUZARR_TRAILING 6u         // bytes follow the end
#define CUZARR_OTHER_SIZE 7u       // the header says another size than metadata
#define CUZARR_BAD_HEADER 8u       // the header says what cannot be
#define CUZARR_OTHER_FORMAT 9u     // a container or compressor that this decoder does not know
#define CUZARR_OUTSIDE 10u         // a block or stream leaves the frame
#define CUZARR_WRONG_CHECKSUM 11u  // the checksum that stands there is not that of the data
#define CUZARR_NO_VALUE 12u        // an element has no value in the type it is to become
#define CUZARR_ZSTD_BAD_TABLE 32u  // codes that cannot be
#define CUZARR_ZSTD_BAD_BITS 33u   // a stream of bits that does not end where its last code does
#define CUZARR_ZSTD_LARGE_BLOCK 34u  // a block that decodes to more than 128 KiB, or than its frame's window
#define CUZARR_BAD_CODE 64u        // lengths of codes that are no code
#define CUZARR_NO_SYMBOL 65u       // bits that no code has
#define CUZARR_BAD_BLOCK 66u       // a block of no known type, or a stored one whose size contradicts itself

/// Records damage at byte `at` of a unit's encoded bytes; of several, the one nearest to the beginning stays.
CUZARR_DEVICE void report(u64* statuses, u32 unit, u32 damage, u32 at) {
    atomic_max(statuses + unit, (u64)(0xffffffffu - at) << 8 | damage);
}
