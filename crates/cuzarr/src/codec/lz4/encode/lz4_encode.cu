// Encodes chunks to LZ4 blocks, each behind its decoded size (numcodecs) or alone (Blosc's streams).
//
//     chunks ──encode_pieces──> pieces, each by a block of threads, in slots       (lz4_encode.cuh)
//            ──encode_joins───> how pieces join to blocks, and how large those are  a warp a chunk
//            ──encode_places──> where frames lie, one behind the other              (encoded.cu)
//            ──encode_assemble> the frames, from slots and literals                 a warp a piece
//
// All chunks have the room of the largest one, so that all places can be computed (`Shape`), and no table is needed.
// Nothing here can fail: a block that does not get smaller gets a little larger.
//
// Floor: encode_pieces is limited by its instructions; the other kernels move bytes once.
#include "codec/batch/encode/encoded.cuh"
#include "codec/lz4/encode/lz4_encode.cuh"

/// How chunks become frames. `Shape` in cuda.rs.
struct Shape {
    u64 stride;         // from one chunk to the next
    u64 slot_stride;    // from one piece's slot to the next
    const u32* sizes;   // bytes of each chunk; 0: it is left out
    u32 chunks;
    u32 piece_bytes;
    u32 history_bytes;  // before a piece that its matches may begin in
    u32 pieces;         // of the largest chunk
    u32 header_bytes;   // in front of a block: its decoded size
    u32 reserved;
};

/// A chunk's literals behind its last match.
struct Lz4Trail {
    u32 literals;
    u32 at;      // where they go, in the frame, or what is before them
    u32 length;  // of a match that ends before them, whose length was not written; 0 for none
    u32 reserved;
};
#define CUZARR_LZ4_TRAIL_BYTES 16u
static_assert(sizeof(Lz4Trail) == CUZARR_LZ4_TRAIL_BYTES, "as the host counts them");

/// Bytes of the piece that begins at `begin` of a chunk of `size` bytes.
CUZARR_DEVICE u32 piece_size(const Shape& shape, u32 size, u32 begin) {
    return size - begin < shape.piece_bytes ? size - begin : shape.piece_bytes;
}

/// Encodes all pieces. `candidates` has a word for each byte of a piece, for each block of threads. `taken` counts the
/// pieces that were begun, from 0.
CUZARR_KERNEL_SIZED(
    CUZARR_LZ4_THREADS, 3, encode_pieces, const u8* src, u8* slots, Lz4Piece* pieces, u32* candidates, Shape shape, u32* taken
) {
    CUZARR_SHARED_ASKED(u32, memory, CUZARR_LZ4_SHARED_BYTES / 4);
    CUZARR_SHARED(u32, sums, CUZARR_LZ4_THREADS / CUZARR_WARP);
    CUZARR_SHARED(u32, starts, CUZARR_LZ4_MATCHES / CUZARR_WARP);
    candidates += (u64)block_index() * shape.piece_bytes;
    for (;;) {
        // Pieces take different times, so a block of threads that is done takes the next one. The first pieces of all
        // chunks come first, because they take longest.
        if (thread_index() == 0) sums[0] = atomic_add(taken, 1u);
        block_barrier();
        u32 index = sums[0];
        block_barrier();
        if (index >= (u64)shape.chunks * shape.pieces) break;
        u32 chunk = index % shape.chunks, begin = index / shape.chunks * shape.piece_bytes;
        u32 size = shape.sizes[chunk];
        if (begin >= size) continue;
        u32 history = begin < shape.history_bytes ? begin : shape.history_bytes;
        u64 place = (u64)chunk * shape.pieces + index / shape.chunks;
        Lz4Piece piece = lz4_encode_piece(
            src + chunk * shape.stride, size, begin, history, piece_size(shape, size, begin), memory, sums, starts, candidates,
            slots + place * shape.slot_stride
        );
        if (thread_index() == 0) pieces[place] = piece;
    }
}

/// Returns the sum of `value` over the pieces up to each lane's, from the last one with `is_first` on. `carry` is the
/// sum for the pieces before.
CUZARR_DEVICE u32 carried(u32 value, bool is_first, u32 carry, u32 lane) {
    u32 is_known = is_first;
    for (u32 by = 1; by < CUZARR_WARP; by *= 2) {
        u32 more = warp_shuffle_up(CUZARR_ALL_LANES, value, by), is_more_known = warp_shuffle_up(CUZARR_ALL_LANES, is_known, by);
        if (lane >= by && !is_known) value += more, is_known = is_more_known;
    }
    return is_known ? value : value + carry;
}

/// Returns the value of the lane below; `first` for the first lane.
CUZARR_DEVICE u32 from_below(u32 value, u32 first, u32 lane) {
    u32 below = warp_shuffle_up(CUZARR_ALL_LANES, value, 1);
    return lane ? below : first;
}

/// Bytes of a match's offset, and of the length that its token does not hold.
CUZARR_DEVICE u32 match_bytes(u32 length) { return 2 + lz4_more_bytes(length - CUZARR_LZ4_LEAST_MATCH); }

/// Bytes of a piece's tail without its head, if the head belongs to a match before.
CUZARR_DEVICE u32 tail_behind_head(const Lz4Piece& piece) { return piece.is_one ? 0 : piece.tail - match_bytes(piece.head); }

/// The length of a match of earlier pieces, if it ends in this piece or before, else 0. It does not end if the whole
/// piece is a part of it, or if the piece has only literals, which stand behind.
CUZARR_DEVICE u32 open_length(const Lz4Piece& piece) {
    bool ends = piece.length && piece.match != CUZARR_LZ4_NO_SEQUENCE && !(piece.goes_on && piece.is_one && piece.last);
    return ends ? piece.length + (piece.goes_on ? piece.head : 0) : 0;
}

/// Bytes of a piece in its block.
CUZARR_DEVICE u32 piece_bytes(const Lz4Piece& piece) {
    if (piece.match == CUZARR_LZ4_NO_SEQUENCE) return 0;
    u32 open = open_length(piece), bytes = open ? lz4_more_bytes(open - CUZARR_LZ4_LEAST_MATCH) : 0;
    if (piece.goes_on) return bytes + tail_behind_head(piece);
    u32 literals = piece.carry + piece.lead;
    return bytes + 1 + lz4_more_bytes(literals) + literals + piece.tail;
}

CUZARR_KERNEL(encode_joins, Lz4Piece* pieces, Lz4Trail* trails, EncodedFrame* frames, Shape shape) {
    u32 warps = thread_count() / CUZARR_WARP, lane = thread_index() % CUZARR_WARP;
    for (u32 chunk = block_index() * warps + thread_index() / CUZARR_WARP; chunk < shape.chunks; chunk += block_count() * warps) {
        // State of the pieces before: the literals behind their last match, the length of an open match, the last
        // piece's match.
        u32 at = shape.header_bytes, carry = 0, open = 0, last = 0, offset = 0;
        u32 size = shape.sizes[chunk], count = (size + shape.piece_bytes - 1) / shape.piece_bytes;
        Lz4Piece* own = pieces + (u64)chunk * shape.pieces;
        for (u32 first = 0; first < count; first += CUZARR_WARP) {
            u32 index = first + lane;
            bool is_one = index < count;
            Lz4Piece piece = is_one ? own[index] : Lz4Piece{0, 0, 0, CUZARR_LZ4_NO_SEQUENCE, 0, 0, 0, 0, 0, 0, 0, 0};
            bool has_match = piece.match != CUZARR_LZ4_NO_SEQUENCE;
            u32 literals = carried(has_match ? piece.trail : piece.lead, has_match, carry, lane);
            piece.carry = from_below(literals, carry, lane);
            // All lanes must take part in shuffles.
            u32 last_before = from_below(piece.last, last, lane), offset_before = from_below(piece.offsets >> 16, offset, lane);
            piece.goes_on = piece.head && last_before && offset_before == (piece.offsets & 0xffff);
            bool passes = piece.goes_on && piece.is_one && piece.last;
            u32 length = carried(passes ? piece.head : piece.last, has_match && !passes, open, lane);
            piece.length = from_below(length, open, lane);
            u32 bytes = piece_bytes(piece), end = at + inclusive_sum(bytes, lane);
            piece.at = end - bytes;
            if (is_one) own[index].carry = piece.carry, own[index].at = piece.at, own[index].length = piece.length, own[index].goes_on = piece.goes_on;
            at = warp_shuffle(CUZARR_ALL_LANES, end, CUZARR_WARP - 1);
            carry = warp_shuffle(CUZARR_ALL_LANES, literals, CUZARR_WARP - 1);
            open = warp_shuffle(CUZARR_ALL_LANES, length, CUZARR_WARP - 1);
            last = warp_shuffle(CUZARR_ALL_LANES, piece.last, CUZARR_WARP - 1);
            offset = warp_shuffle(CUZARR_ALL_LANES, piece.offsets >> 16, CUZARR_WARP - 1);
        }
        if (lane == 0) {
            // If only literals stand behind an open match, the rest of its length comes first.
            u32 more = open ? lz4_more_bytes(open - CUZARR_LZ4_LEAST_MATCH) : 0;
            trails[chunk] = {carry, at, open, 0};
            frames[chunk] = {0, size ? at + more + 1 + lz4_more_bytes(carry) + carry : 0, 0};
        }
    }
}

/// Writes a token with its literals, and no match or the beginning of one. Returns where the literals end.
CUZARR_DEVICE u8* write_literals(u8* to, const u8* from, u32 literals, u32 match, u32 lane) {
    if (lane == 0) *to = (u8)(lz4_nibble(literals) << 4 | match);
    to += 1;
    to += lz4_write_more(to, literals, lane, CUZARR_WARP);
    copy_far(from, to, literals, lane);
    return to + literals;
}

/// Writes the part of a match's length that its token does not hold, and returns where that ends.
CUZARR_DEVICE u8* write_length(u8* to, u32 length, u32 lane) {
    return length ? to + lz4_write_more(to, length - CUZARR_LZ4_LEAST_MATCH, lane, CUZARR_WARP) : to;
}

/// Writes each piece to its place: the rest of the length of a match before it, the literals in front of its first
/// match, and its slot. The last piece of a chunk also writes the literals at the end.
CUZARR_KERNEL(
    encode_assemble, const u8* src, const u8* slots, const Lz4Piece* pieces, const Lz4Trail* trails, const EncodedFrame* frames,
    u8* out, Shape shape
) {
    u32 warps = thread_count() / CUZARR_WARP, lane = thread_index() % CUZARR_WARP;
    u64 count = (u64)shape.chunks * shape.pieces, step = (u64)block_count() * warps;
    for (u64 index = (u64)block_index() * warps + thread_index() / CUZARR_WARP; index < count; index += step) {
        u32 chunk = (u32)(index / shape.pieces), begin = (u32)(index % shape.pieces) * shape.piece_bytes, size = shape.sizes[chunk];
        if (begin >= size) continue;
        u8* to = out + frames[chunk].at;
        if (begin == 0 && lane < shape.header_bytes) to[lane] = (u8)(size >> 8 * lane);
        const u8* from = src + chunk * shape.stride + begin;
        const Lz4Piece piece = pieces[index];
        if (piece.match != CUZARR_LZ4_NO_SEQUENCE) {
            u32 tail = piece.goes_on ? tail_behind_head(piece) : piece.tail;
            u8* at = write_length(to + piece.at, open_length(piece), lane);
            if (!piece.goes_on) at = write_literals(at, from - piece.carry, piece.carry + piece.lead, piece.match, lane);
            copy_far(slots + index * shape.slot_stride + (piece.tail - tail), at, tail, lane);
        }
        if (begin + shape.piece_bytes < size) continue;
        const Lz4Trail trail = trails[chunk];
        u8* at = write_length(to + trail.at, trail.length, lane);
        write_literals(at, from + piece_size(shape, size, begin) - trail.literals, trail.literals, 0, lane);
    }
}
