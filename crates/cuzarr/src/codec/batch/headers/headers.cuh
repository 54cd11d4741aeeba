// Gathers the headers inside frames that lie only on the device, for the host: the bytes that its scans read, and none
// of the data between. Bytes are copied unchanged, 16 at a time with their place, so that a codec's scan makes the same
// tables from them as from whole frames.
//
// A codec's walk goes on wherever its scan may go on. It reads what it needs to find the next header, and leaves all
// checks to the scan. It never leaves its frame, and ends when the list is full: the host then reads that frame whole.
#pragma once
#include "cuzarr/kernel.cuh"

/// Bytes of a piece.
#define CUZARR_HEADER_BYTES 16u

/// Where a frame lies: 16 bytes.
struct HeaderUnit {
    u64 src_offset;
    u32 src_bytes;
    u32 reserved;
};

/// Bytes of a header, their place in the source, and the number of their frame: 32 bytes.
struct HeaderPiece {
    u64 src_offset;
    u32 size;
    u32 unit;
    u8 bytes[CUZARR_HEADER_BYTES];
};

static_assert(sizeof(HeaderPiece) == 32, "as cuda.rs reads them");

/// The list that all walks share. Behind `count`, a word for each frame: not 0 when the list had no room.
struct HeaderList {
    HeaderPiece* pieces;
    u32* count;
    u32 most;
    u32 reserved;
};

struct HeaderWalk {
    const u8* frame;
    u64 src_offset;
    u32 size, unit;
    const HeaderList& list;

    CUZARR_DEVICE u32 number(u32 at, u32 bytes) const {
        u32 number = 0;
        for (u32 i = 0; i < bytes; ++i) number |= (u32)frame[at + i] << 8 * i;
        return number;
    }
    /// Lists the bytes from `at` on, which is inside of the frame. False when there is no room.
    CUZARR_DEVICE bool take(u32 at) const {
        u32 place = atomic_add(list.count, 1u);
        if (place >= list.most) {
            volatile_store(list.count + 1 + unit, 1);
            return false;
        }
        HeaderPiece& piece = list.pieces[place];
        u32 count = size - at < CUZARR_HEADER_BYTES ? size - at : CUZARR_HEADER_BYTES;
        piece.src_offset = src_offset + at, piece.size = count, piece.unit = unit;
#pragma unroll
        for (u32 i = 0; i < CUZARR_HEADER_BYTES; ++i) piece.bytes[i] = i < count ? frame[at + i] : 0;
        return true;
    }
};
