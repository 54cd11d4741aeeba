// Chunks of one size -> frames: numcodecs' LZ4 (the decoded size and one block) and Blosc-1 containers of LZ4 streams.
//
//     chunks ──encode_pieces──> pieces, each by a warp, in slots of their own      (lz4_encode.cuh)
//            ──encode_streams─> how pieces join to blocks, and how large those are  a thread a block
//            ──encode_frames──> where blocks lie in their frame, how large that is  a thread a frame
//            ──encode_places──> where frames lie, one behind the other              (encoded.cu)
//            ──encode_assemble> the frames, from slots and literals                 a warp a piece
//
// All chunks have the same size, so that where anything lies is arithmetic (`Shape`), and no table is needed. Nothing here
// can fail: a stream that does not get smaller is stored, and so is a frame.
//
// Floor: encode_pieces, by the steps of a window that wait for memory; the others move bytes once.
#include "codec/batch/encode/encoded.cuh"
#include "codec/lz4/encode/lz4_encode.cuh"

#define CUZARR_ENCODE_BLOSC_HEADER 16u
#define CUZARR_ENCODE_LZ4_HEADER 4u
/// Warps of a block, each with a table.
#define CUZARR_ENCODE_WARPS 4u

/// How chunks become frames. `Shape` in mod.rs.
struct Shape {
    u64 plain_stride;  // from one chunk to the next, as they are
    u64 work_stride;   // the same where they are shuffled
    u64 slot_stride;   // from one piece's slot to the next
    u32 chunks;
    u32 chunk_bytes;   // not 0
    u32 block_bytes;
    u32 splits;        // streams of a whole block
    u32 piece_bytes;
    u32 history_bytes; // before a piece that its matches may begin in
    u32 stream_pieces; // of a stream of a whole block
    u32 streams;       // of a chunk
    u32 pieces;        // of a chunk
    u32 flags;         // of Blosc's header; not of LZ4
    u32 type_bytes;    // 0: LZ4 without a container
    u32 reserved;
};

/// One stream of a chunk: 16 bytes.
struct EncodedStream {
    u32 size;      // encoded; its decoded size means that it is stored
    u32 at;        // of its first byte, in the frame
    u32 trail;     // literals of the last sequence
    u32 trail_at;  // where that begins, in the stream
};

/// A stream's place among the bytes of its chunk.
struct StreamPlace {
    u32 begin, size, first_piece, pieces;
};

CUZARR_DEVICE StreamPlace stream_place(const Shape& shape, u32 stream) {
    u32 stream_bytes = shape.block_bytes / shape.splits;
    u32 whole = shape.chunk_bytes / shape.block_bytes * shape.splits;
    StreamPlace place;
    place.begin = stream * stream_bytes;
    place.size = stream_bytes;
    place.first_piece = stream * shape.stream_pieces;
    place.pieces = shape.stream_pieces;
    if (stream >= whole) {
        place.begin = whole * stream_bytes;
        place.size = shape.chunk_bytes - place.begin;
        place.first_piece = whole * shape.stream_pieces;
        place.pieces = (place.size + shape.piece_bytes - 1) / shape.piece_bytes;
    }
    return place;
}

CUZARR_DEVICE u32 stream_of_piece(const Shape& shape, u32 piece) {
    u32 whole = shape.chunk_bytes / shape.block_bytes * shape.splits, stream = piece / shape.stream_pieces;
    return stream < whole ? stream : whole;
}

CUZARR_DEVICE u32 piece_size(const Shape& shape, const StreamPlace& place, u32 begin) {
    u32 rest = place.size - begin;
    return rest < shape.piece_bytes ? rest : shape.piece_bytes;
}

CUZARR_KERNEL(encode_pieces, const u8* work, u8* slots, Lz4Piece* pieces, Shape shape, const u32* wanted) {
    CUZARR_SHARED(u32, tables, CUZARR_ENCODE_WARPS * CUZARR_LZ4_TABLE / 2);
    u32 warp = thread_index() / CUZARR_WARP, warps = thread_count() / CUZARR_WARP, lane = thread_index() % CUZARR_WARP;
    u16* table = (u16*)(tables + warp * (CUZARR_LZ4_TABLE / 2));
    u64 count = (u64)shape.chunks * shape.pieces, step = (u64)block_count() * warps;
    for (u64 index = (u64)block_index() * warps + warp; index < count; index += step) {
        u32 chunk = (u32)(index / shape.pieces), number = (u32)(index % shape.pieces);
        if (!wanted[chunk]) continue;
        StreamPlace place = stream_place(shape, stream_of_piece(shape, number));
        u32 begin = (number - place.first_piece) * shape.piece_bytes;
        u32 history = begin < shape.history_bytes ? begin : shape.history_bytes;
        Lz4Piece piece = lz4_encode_piece(
            work + chunk * shape.work_stride + place.begin, place.size, begin, history, piece_size(shape, place, begin), table,
            slots + index * shape.slot_stride, lane
        );
        if (lane == 0) pieces[index] = piece;
        warp_barrier(CUZARR_ALL_LANES);
    }
}

CUZARR_KERNEL(encode_streams, Lz4Piece* pieces, EncodedStream* streams, Shape shape, const u32* wanted) {
    u64 count = (u64)shape.chunks * shape.streams, step = (u64)block_count() * thread_count();
    for (u64 index = (u64)block_index() * thread_count() + thread_index(); index < count; index += step) {
        u32 chunk = (u32)(index / shape.streams);
        if (!wanted[chunk]) continue;
        StreamPlace place = stream_place(shape, (u32)(index % shape.streams));
        Lz4Piece* own = pieces + (u64)chunk * shape.pieces + place.first_piece;
        u32 carry = 0, at = 0;
        for (u32 i = 0; i < place.pieces; ++i) {
            const Lz4Piece piece = own[i];
            own[i].carry = carry, own[i].at = at;
            if (piece.match == CUZARR_LZ4_NO_SEQUENCE) {
                carry += piece.lead;
                continue;
            }
            u32 literals = carry + piece.lead;
            at += 1 + lz4_more_bytes(literals) + literals + piece.tail;
            carry = piece.trail;
        }
        EncodedStream stream = {at + 1 + lz4_more_bytes(carry) + carry, 0, carry, at};
        // Blosc stores what does not become smaller.
        if (shape.type_bytes && stream.size > place.size) stream.size = place.size;
        streams[index] = stream;
    }
}

CUZARR_KERNEL(encode_frames, EncodedStream* streams, EncodedFrame* frames, Shape shape, const u32* wanted) {
    u32 step = block_count() * thread_count();
    for (u32 chunk = block_index() * thread_count() + thread_index(); chunk < shape.chunks; chunk += step) {
        EncodedStream* own = streams + (u64)chunk * shape.streams;
        EncodedFrame frame = {0, 0, 0};
        if (wanted[chunk]) {
            u32 blocks = (shape.chunk_bytes + shape.block_bytes - 1) / shape.block_bytes, header = CUZARR_ENCODE_LZ4_HEADER;
            if (shape.type_bytes) header = CUZARR_ENCODE_BLOSC_HEADER + 4 * blocks;
            u64 size = header;
            for (u32 i = 0; i < shape.streams; ++i) {
                size += shape.type_bytes ? 4 : 0;
                own[i].at = (u32)size;
                size += own[i].size;
            }
            u64 copied = (u64)CUZARR_ENCODE_BLOSC_HEADER + shape.chunk_bytes;
            frame.is_copied = shape.type_bytes && size >= copied;
            frame.size = (u32)(frame.is_copied ? copied : size);
        }
        frames[chunk] = frame;
    }
}

CUZARR_DEVICE void store_u32(u8* to, u32 value, u32 lane) {
    if (lane < 4) to[lane] = (u8)(value >> 8 * lane);
}

/// What stands in front of a chunk's first stream, without Blosc's starts of blocks.
CUZARR_DEVICE void write_header(u8* to, const EncodedFrame& frame, const Shape& shape, u32 lane) {
    if (!shape.type_bytes) return store_u32(to, shape.chunk_bytes, lane);
    u32 flags = shape.flags | (frame.is_copied ? 2u : 0u);
    // Versions of the container and of LZ4 in it, as in blosc/cpu.rs.
    store_u32(to, 2u | 1u << 8 | flags << 16 | shape.type_bytes << 24, lane);
    store_u32(to + 4, shape.chunk_bytes, lane);
    store_u32(to + 8, shape.block_bytes, lane);
    store_u32(to + 12, frame.size, lane);
}

/// Puts one piece of a block in its place: the literals in front of its first match, and its slot. The last one of the
/// block writes the literals at the end.
CUZARR_DEVICE void join_piece(
    const u8* block, u32 begin, u32 size, bool is_last, const Lz4Piece& piece, const EncodedStream& stream, const u8* slot,
    u8* to, u32 lane
) {
    if (piece.match != CUZARR_LZ4_NO_SEQUENCE) {
        u8* at = to + piece.at;
        u32 literals = piece.carry + piece.lead;
        if (lane == 0) *at = (u8)(lz4_nibble(literals) << 4 | piece.match);
        at += 1;
        at += lz4_write_more(at, literals, lane);
        copy_far(block + begin - piece.carry, at, literals, lane);
        copy_far(slot, at + literals, piece.tail, lane);
    }
    if (!is_last) return;
    u8* at = to + stream.trail_at;
    if (lane == 0) *at = (u8)(lz4_nibble(stream.trail) << 4);
    at += 1;
    at += lz4_write_more(at, stream.trail, lane);
    copy_far(block + begin + size - stream.trail, at, stream.trail, lane);
}

CUZARR_KERNEL(
    encode_assemble, const u8* plain, const u8* work, const u8* slots, const Lz4Piece* pieces, const EncodedStream* streams,
    const EncodedFrame* frames, u8* out, Shape shape
) {
    u32 warps = thread_count() / CUZARR_WARP, lane = thread_index() % CUZARR_WARP;
    u64 count = (u64)shape.chunks * shape.pieces, step = (u64)block_count() * warps;
    for (u64 index = (u64)block_index() * warps + thread_index() / CUZARR_WARP; index < count; index += step) {
        u32 chunk = (u32)(index / shape.pieces), number = (u32)(index % shape.pieces);
        const EncodedFrame frame = frames[chunk];
        if (frame.size == 0) continue;
        u8* to = out + frame.at;
        if (number == 0) write_header(to, frame, shape, lane);
        u32 stream_index = stream_of_piece(shape, number);
        StreamPlace place = stream_place(shape, stream_index);
        u32 begin = (number - place.first_piece) * shape.piece_bytes, size = piece_size(shape, place, begin);
        if (frame.is_copied) {
            u32 from = place.begin + begin;
            copy_far(plain + chunk * shape.plain_stride + from, to + CUZARR_ENCODE_BLOSC_HEADER + from, size, lane);
            continue;
        }
        const EncodedStream stream = streams[(u64)chunk * shape.streams + stream_index];
        if (shape.type_bytes && begin == 0) {
            store_u32(to + stream.at - 4, stream.size, lane);
            u32 block = place.begin / shape.block_bytes;
            if (place.begin == block * shape.block_bytes) {
                store_u32(to + CUZARR_ENCODE_BLOSC_HEADER + 4 * block, stream.at - 4, lane);
            }
        }
        const u8* block = work + chunk * shape.work_stride + place.begin;
        if (shape.type_bytes && stream.size == place.size) {
            copy_far(block + begin, to + stream.at + begin, size, lane);
            continue;
        }
        join_piece(block, begin, size, begin + size == place.size, pieces[index], stream, slots + index * shape.slot_stride, to + stream.at, lane);
    }
}
