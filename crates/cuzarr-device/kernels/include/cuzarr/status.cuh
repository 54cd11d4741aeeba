// Statuses: one u64 for each unit that kernels decode, 0 while nothing is wrong.
//
// Codes below 32 are for every format. A codec has codes of its own in its folder, from 32 on and other ones than all other
// codecs, since a container's frames may hold theirs. The comment behind a code is what the host says of it.
#pragma once
#include "cuzarr/kernel.cuh"

#define CUZARR_INTACT 0u
#define CUZARR_CUT_OFF 1u          // the stream is cut off
#define CUZARR_ZERO_OFFSET 2u      // a match has the offset 0
#define CUZARR_BEFORE_START 3u     // a match begins before the stream's first byte
#define CUZARR_TOO_LONG 4u         // the stream decodes to more than its place
#define CUZARR_TOO_SHORT 5u        // the stream decodes to less than its place
#define CUZARR_TRAILING 6u         // bytes follow the end of the stream
#define CUZARR_OTHER_SIZE 7u       // the header says another decoded size than expected
#define CUZARR_BAD_HEADER 8u       // the header is invalid
#define CUZARR_OTHER_FORMAT 9u     // a container or compressor that kernels do not decode
#define CUZARR_OUTSIDE 10u         // a block or stream there leaves the frame
#define CUZARR_WRONG_CHECKSUM 11u  // the checksum there is not that of the data
#define CUZARR_NO_VALUE 12u        // the element there has no value in the array's data type

/// Records damage at byte `at` of a unit's encoded bytes; of several, the one nearest to the beginning stays.
CUZARR_DEVICE void report(u64* statuses, u32 unit, u32 damage, u32 at) {
    atomic_max(statuses + unit, (u64)(0xffffffffu - at) << 8 | damage);
}
