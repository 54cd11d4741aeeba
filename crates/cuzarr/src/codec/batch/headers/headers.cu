// The headers inside of frames that lie on the device alone, brought together for the host: what its scans read, and nothing
// of the data between. Bytes are copied as they are, 16 at a time with their place, so that the scans of `codec/zstd` and
// `codec/blosc` make the same tables of them as of whole frames.
//
// A walk goes on wherever the scan may go on: it looks at what it needs to find the next header, and leaves it to the scan
// what may stand there. It never leaves its frame, and ends when the list is full: the host then reads that frame whole.
#include "cuzarr/frames.cuh"

/// Bytes of a piece.
#define CUZARR_HEADER_BYTES 16u

/// Where a frame lies: 16 bytes.
struct HeaderUnit {
    u64 src_offset;
    u32 src_bytes;
    u32 reserved;
};

/// Bytes of a header, and their place in the source: 32 bytes.
struct HeaderPiece {
    u64 src_offset;
    u32 size;
    u32 reserved;
    u8 bytes[CUZARR_HEADER_BYTES];
};

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
        piece.src_offset = src_offset + at, piece.size = count;
#pragma unroll
        for (u32 i = 0; i < CUZARR_HEADER_BYTES; ++i) piece.bytes[i] = i < count ? frame[at + i] : 0;
        return true;
    }
};

/// Where the sequences' header of a compressed block stands whose content begins at `at`; `end` when nowhere.
CUZARR_DEVICE u32 headers_of_block(const HeaderWalk& walk, u32 at, u32 end) {
    if (at >= end) return end;
    u32 first = walk.frame[at], kind = first & 3, format = first >> 2 & 3, header, compressed;
    if (kind < 2) {
        header = format == 1 ? 2 : format == 3 ? 3 : 1;
        if (header > end - at) return end;
        u32 regenerated = walk.number(at, header) >> (format == 1 || format == 3 ? 4 : 3);
        compressed = kind == 0 ? regenerated : 1;
    } else {
        header = format < 2 ? 3 : format + 2;
        if (header > end - at) return end;
        u64 number = walk.number(at, header < 4 ? header : 4);
        if (header == 5) number |= (u64)walk.frame[at + 4] << 32;
        u32 bits = format < 2 ? 10 : format == 2 ? 14 : 18;
        compressed = (u32)(number >> 4 >> bits) & ((1u << bits) - 1);
    }
    at += header;
    return compressed < end - at ? at + compressed : end;
}

/// The blocks of a zstd frame from `at` on; gives where they end, `end` when they do not.
CUZARR_DEVICE u32 headers_of_blocks(const HeaderWalk& walk, u32 at, u32 end) {
    for (;;) {
        if (end - at < 3) return end;
        if (!walk.take(at)) return end;
        u32 header = walk.number(at, 3), kind = header >> 1 & 3, stored = kind == 1 ? 1 : header >> 3;
        at += 3;
        if (kind == 3 || stored > end - at) return end;
        if (kind == 2) {
            u32 sequences = headers_of_block(walk, at, at + stored);
            if (sequences < at + stored && !walk.take(sequences)) return end;
        }
        at += stored;
        if (header & 1) return at;
    }
}

/// All zstd frames (RFC 8878, section 3.1.1) of bytes [at, end).
CUZARR_DEVICE void headers_of_zstd(const HeaderWalk& walk, u32 at, u32 end) {
    while (at < end) {
        if (!walk.take(at) || end - at < 5) return;
        u32 magic = walk.number(at, 4);
        if ((magic & ~15u) == 0x184d2a50u) {
            if (end - at < 8) return;
            u32 size = walk.number(at + 4, 4);
            at += 8;
            if (size > end - at) return;
            at += size;
            continue;
        }
        if (magic != 0xfd2fb528u) return;
        u32 descriptor = walk.frame[at + 4], single = descriptor >> 5 & 1, size = descriptor >> 6, dictionary = descriptor & 3;
        u32 header = 5 + (1 - single) + (dictionary == 3 ? 4 : dictionary) + (size ? 1u << size : single);
        if (header > end - at) {
            if (end - at > CUZARR_HEADER_BYTES) walk.take(at + CUZARR_HEADER_BYTES);
            return;
        }
        if (header > CUZARR_HEADER_BYTES && !walk.take(at + CUZARR_HEADER_BYTES)) return;
        at = headers_of_blocks(walk, at + header, end);
        u32 checksum = descriptor & 4;
        if (checksum > end - at) return;
        at += checksum;
    }
}

CUZARR_KERNEL(headers_zstd, const u8* src, const HeaderUnit* units, u32 count, HeaderList list) {
    for (u32 unit = block_index() * thread_count() + thread_index(); unit < count; unit += block_count() * thread_count()) {
        HeaderUnit own = units[unit];
        HeaderWalk walk = {src + own.src_offset, own.src_offset, own.src_bytes, unit, list};
        headers_of_zstd(walk, 0, own.src_bytes);
    }
}

/// As in codec/blosc/container.rs.
#define CUZARR_BLOSC_HEADER 16u
#define CUZARR_BLOSC_COPIED 2u
#define CUZARR_BLOSC_UNSPLIT 16u
#define CUZARR_BLOSC_ZSTD 4u

/// The streams of block `block`, and the headers inside of them.
CUZARR_DEVICE void headers_of_streams(const HeaderWalk& walk, u32 block, u32 blocks, u32 flags, u32 type_bytes) {
    u32 decoded = walk.number(4, 4), most = walk.number(8, 4), begin = block * most;
    u32 size = decoded - begin < most ? decoded - begin : most;
    bool splits = !(flags & CUZARR_BLOSC_UNSPLIT) && size == most && type_bytes <= 16 && size / type_bytes >= 128;
    u32 count = splits ? type_bytes : 1, split_bytes = size / count, at = walk.number(CUZARR_BLOSC_HEADER + block * 4, 4);
    if (at < CUZARR_BLOSC_HEADER + blocks * 4 || at >= walk.size) return;
    for (u32 split = 0; split < count; ++split) {
        if (walk.size - at < 4 || !walk.take(at)) return;
        u32 bytes = walk.number(at, 4);
        at += 4;
        if (bytes > walk.size - at) return;
        if (flags >> 5 == CUZARR_BLOSC_ZSTD && bytes != split_bytes) headers_of_zstd(walk, at, at + bytes);
        at += bytes;
    }
}

/// A warp a frame: its lanes take blocks.
CUZARR_KERNEL(headers_blosc, const u8* src, const HeaderUnit* units, u32 count, HeaderList list) {
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 unit = block_index() * warps + thread_index() / CUZARR_WARP; unit < count; unit += block_count() * warps) {
        HeaderUnit own = units[unit];
        HeaderWalk walk = {src + own.src_offset, own.src_offset, own.src_bytes, unit, list};
        if (lane == 0 && own.src_bytes > 0) walk.take(0);
        if (own.src_bytes < CUZARR_BLOSC_HEADER) continue;
        u32 flags = walk.frame[2], type_bytes = walk.frame[3] ? walk.frame[3] : 1;
        u32 decoded = walk.number(4, 4), most = walk.number(8, 4), room = (own.src_bytes - CUZARR_BLOSC_HEADER) / 4;
        if (flags & CUZARR_BLOSC_COPIED || decoded == 0 || most == 0) continue;
        u32 blocks = (decoded - 1) / most + 1;
        if (blocks > room) continue;
        for (u32 block = lane; block < blocks; block += CUZARR_WARP) {
            // One in four takes the places where all four begin.
            if (block % 4 == 0 && !walk.take(CUZARR_BLOSC_HEADER + block * 4)) break;
            headers_of_streams(walk, block, blocks, flags, type_bytes);
        }
    }
}
