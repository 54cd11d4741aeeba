// The first pass of zstd encoding: sequences become codes, literals are collected, and all are counted. A block of
// threads takes each block of data.
//
//     for each sequence:
//         its offset becomes a repeat code when it is the one before, or the last other one before; literal and match
//         lengths become codes, and bits that follow them
//         its literals go behind those of the sequences before
//     when all bytes take fewer bits as literals than the sequences and the others do: there are no sequences
//
// A block does not know the offsets that the block before ends with. So it only repeats offsets that it has named
// itself.
#include "codec/zstd/encode/zstd_encode.cuh"

#define CUZARR_ZSTD_THREADS 256u
/// Up to this many literals of a sequence are copied by its thread alone.
#define CUZARR_ZSTD_FEW_LITERALS 16u
/// Lengths below this have their codes in a table; codes of longer ones follow from their highest bit.
#define CUZARR_ZSTD_LITERAL_LENGTHS 64u
#define CUZARR_ZSTD_MATCH_LENGTHS 128u

struct CodesSpace {
    u32 counters[CUZARR_ZSTD_COUNTERS];
    u32 whole[CUZARR_ZSTD_STREAMS * CUZARR_ZSTD_BYTES];  // of all bytes
    u8 literal_codes[CUZARR_ZSTD_LITERAL_LENGTHS];
    u8 match_codes[CUZARR_ZSTD_MATCH_LENGTHS];  // of lengths less 3
    u32 offsets[CUZARR_ZSTD_THREADS];
    u32 changes[CUZARR_ZSTD_THREADS / CUZARR_WARP];
    u32 extra_bits;
    u32 differs;  // whether there are two different bytes
};

/// Makes the tables of the codes of small lengths.
CUZARR_DEVICE void length_codes(CodesSpace& space) {
    u32 at = 0;
    for (u32 code = 0; at < CUZARR_ZSTD_LITERAL_LENGTHS; ++code) {
        for (u32 i = 0; i < 1u << ZSTD_LITERAL_LENGTH_EXTRA[code]; ++i) space.literal_codes[at++] = (u8)code;
    }
    at = 0;
    for (u32 code = 0; at < CUZARR_ZSTD_MATCH_LENGTHS; ++code) {
        for (u32 i = 0; i < 1u << ZSTD_MATCH_LENGTH_EXTRA[code]; ++i) space.match_codes[at++] = (u8)code;
    }
}

/// Returns by how much a value exceeds the smallest value of its code, which has `extra` extra bits and begins at a
/// multiple of 2^extra.
CUZARR_DEVICE u64 above(u32 length, u32 extra) { return length & ((1u << extra) - 1); }

/// Returns the record of a sequence, and counts its codes.
CUZARR_DEVICE u64 record_of(CodesSpace& space, u32 literals, u32 match, u32 offset_value, u32* extra_bits) {
    u32 less = match - 3;
    u32 literal_code = literals < CUZARR_ZSTD_LITERAL_LENGTHS ? space.literal_codes[literals] : highest_bit(literals) + 19;
    u32 match_code = less < CUZARR_ZSTD_MATCH_LENGTHS ? space.match_codes[less] : highest_bit(less) + 36;
    u32 offset_code = highest_bit(offset_value);
    u32 literal_extra = ZSTD_LITERAL_LENGTH_EXTRA[literal_code], match_extra = ZSTD_MATCH_LENGTH_EXTRA[match_code];
    u32* codes = space.counters + CUZARR_ZSTD_STREAMS * CUZARR_ZSTD_BYTES;
    atomic_add(codes + literal_code, 1u);
    atomic_add(codes + CUZARR_ZSTD_CODES + offset_code, 1u);
    atomic_add(codes + 2 * CUZARR_ZSTD_CODES + match_code, 1u);
    u64 extra = above(literals, literal_extra) | above(less, match_extra) << literal_extra |
                above(offset_value, offset_code) << (literal_extra + match_extra);
    *extra_bits += literal_extra + match_extra + offset_code;
    return (literal_code | match_code << 6 | offset_code << 12) | extra << CUZARR_ZSTD_EXTRA_AT;
}

/// Returns the number that an offset is written as: 1 for the offset before, 2 for the last other one, else the offset
/// plus 3. If no literals stand between the matches, 1 is the last other one; the offset then differs from `before`, or
/// the matches would have been joined.
CUZARR_DEVICE u32 offset_value(u32 offset, u32 literals, u32 before, u32 other) {
    if (offset == before && literals) return 1;
    if (offset == other) return literals ? 2 : 1;
    return offset + 3;
}

/// A place where a block's literals are collected.
struct Literals {
    u8* to;
    u32* counters;
    u32 stream;  // literals of a stream
};

CUZARR_DEVICE void bring_literal(const Literals& literals, const u8* from, u32 at) {
    u32 byte = *from, stream = at / literals.stream;
    literals.to[at] = (u8)byte;
    atomic_add(literals.counters + stream * CUZARR_ZSTD_BYTES + byte, 1u);
}

/// Copies each lane's literals: few by the lane alone, many by all lanes.
CUZARR_DEVICE void bring_literals(const Literals& literals, const u8* from, u32 at, u32 count, u32 lane) {
    for (u32 many = warp_ballot(CUZARR_ALL_LANES, count > CUZARR_ZSTD_FEW_LITERALS); many; many &= many - 1) {
        u32 one = count_trailing_zeros(many);
        const u8* source = (const u8*)warp_shuffle(CUZARR_ALL_LANES, (u64)from, one);
        u32 place = warp_shuffle(CUZARR_ALL_LANES, at, one), all = warp_shuffle(CUZARR_ALL_LANES, count, one);
        for (u32 i = lane; i < all; i += CUZARR_WARP) bring_literal(literals, source + i, place + i);
    }
    if (count <= CUZARR_ZSTD_FEW_LITERALS) {
        for (u32 i = 0; i < count; ++i) bring_literal(literals, from + i, at + i);
    }
    warp_barrier(CUZARR_ALL_LANES);
}

/// Returns the last sequence with a new offset, at or before each thread's: (its index + 1) << 16 | the offset before
/// it. `carry` is the result for the sequences before, and becomes the one for all.
CUZARR_DEVICE u32 last_changes(CodesSpace& space, u32 change, u32* carry) {
    u32 lane = thread_index() % CUZARR_WARP, warp = thread_index() / CUZARR_WARP;
    for (u32 by = 1; by < CUZARR_WARP; by *= 2) {
        u32 other = warp_shuffle_up(CUZARR_ALL_LANES, change, by);
        if (lane >= by && other > change) change = other;
    }
    if (lane == CUZARR_WARP - 1) space.changes[warp] = change;
    block_barrier();
    u32 all = *carry, own = *carry > change ? *carry : change;
    for (u32 i = 0; i < thread_count() / CUZARR_WARP; ++i) {
        if (i < warp && space.changes[i] > own) own = space.changes[i];
        if (space.changes[i] > all) all = space.changes[i];
    }
    *carry = all;
    block_barrier();
    return own;
}

/// Bits that `count` of `all` symbols take, in 1024ths.
CUZARR_DEVICE u32 share_bits(u32 count, u32 all) { return count ? count * (log_1024(all) - log_1024(count)) : 0; }

/// Bits that all bytes take, in 1024ths. `counters` counts bytes by the stream that they go to.
CUZARR_DEVICE u32 bytes_bits(CodesSpace& space, const u32* counters, u32 all) {
    u32 bits = 0, total;
    for (u32 i = thread_index(); i < CUZARR_ZSTD_BYTES; i += thread_count()) {
        u32 count = 0;
        for (u32 k = 0; k < CUZARR_ZSTD_STREAMS; ++k) count += counters[k * CUZARR_ZSTD_BYTES + i];
        bits += share_bits(count, all);
    }
    block_sum_before(bits, space.changes, &total);
    return total;
}

/// Whether the block is smaller without its sequences; if so, `space.whole` holds the counts of all bytes. Short
/// matches of bytes that take few bits cost more than they save, which is not known when matches are chosen.
CUZARR_DEVICE bool is_smaller_whole(CodesSpace& space, const u8* src, u32 size, const LzFoundBlock& found) {
    if (found.sequences == 0 || found.literals == 0) return false;
    const u32* codes = space.counters + CUZARR_ZSTD_STREAMS * CUZARR_ZSTD_BYTES;
    u32 bits = 0, sequences, literals = bytes_bits(space, space.counters, found.literals);
    for (u32 i = thread_index(); i < 3 * CUZARR_ZSTD_CODES; i += thread_count()) bits += share_bits(codes[i], found.sequences);
    block_sum_before(bits, space.changes, &sequences);
    sequences += space.extra_bits * 1024;
    // Bytes that matches cover must hardly take more as literals, if they are like the other literals. So most blocks
    // are decided without a look at their bytes.
    if ((u64)(size - found.literals) * literals > (u64)found.literals * sequences / 32 * 33) return false;
    for (u32 i = thread_index(); i < CUZARR_ZSTD_STREAMS * CUZARR_ZSTD_BYTES; i += thread_count()) space.whole[i] = 0;
    block_barrier();
    u32 stream = stream_literals(size);
    for (u32 i = thread_index(); i < size; i += thread_count()) {
        atomic_add(space.whole + i / stream * CUZARR_ZSTD_BYTES + src[i], 1u);
    }
    block_barrier();
    return bytes_bits(space, space.whole, size) < literals + sequences;
}

CUZARR_KERNEL(zstd_encode_codes, const ZstdEncode task) {
    CUZARR_SHARED(CodesSpace, spaces, 1);
    CodesSpace& space = *spaces;
    u32 thread = thread_index(), lane = thread % CUZARR_WARP, threads = thread_count();
    for (u32 block = block_index(); block < block_count_of(task.blocks); block += block_count()) {
        if (!is_wanted(task.blocks, block)) continue;
        for (u32 i = thread; i < CUZARR_ZSTD_COUNTERS; i += threads) space.counters[i] = 0;
        if (thread == 0) space.extra_bits = 0, space.differs = 0, length_codes(space);
        block_barrier();
        LzFoundBlock found = task.counts[block];
        const u8* src = block_src(task, block);
        u64* records = task.records + (u64)block * task.blocks.most_sequences;
        u32 size = block_bytes(task.blocks, block);
        Literals literals = {task.literals + (u64)block * task.literal_stride, space.counters, stream_literals(found.literals)};
        // Of the sequences before: where they end, the last offset, and the last change of offsets.
        u32 covered = 0, last_offset = 0, last_change = 0, extra_bits = 0;
        for (u32 first = 0; first < found.sequences; first += threads) {
            u32 index = first + thread, total;
            bool is_one = index < found.sequences;
            LzFound sequence = is_one ? ((const LzFound*)records)[index] : LzFound{0, 0, 0, 0};
            space.offsets[thread] = sequence.offset;
            block_barrier();
            u32 before = thread ? space.offsets[thread - 1] : last_offset, offset = sequence.offset;
            bool is_change = is_one && index && before != offset;
            u32 earlier = last_change;
            u32 change = last_changes(space, is_change ? (index + 1) << 16 | before : 0, &last_change);
            // The change at or before the sequence before: that of the thread before.
            last_offset = space.offsets[threads - 1];
            block_barrier();
            space.offsets[thread] = change;
            block_barrier();
            change = thread ? space.offsets[thread - 1] : earlier;
            u32 begin = block_sum_before(sequence.literals + sequence.match, space.changes, &total) + covered;
            covered += total;
            if (is_one) {
                u32 value = offset_value(offset, sequence.literals, before, change & 0xffff);
                records[index] = record_of(space, sequence.literals, sequence.match, value, &extra_bits);
            }
            bring_literals(literals, src + begin, sequence.before, sequence.literals, lane);
        }
        u32 tail = size - covered;
        for (u32 i = thread; i < tail; i += threads) bring_literal(literals, src + covered + i, found.literals - tail + i);
        // Chunks begin at multiples of 16, and so do blocks.
        for (u32 i = thread; i < size / 4 && !volatile_load(&space.differs); i += threads) {
            if (((const u32*)src)[i] != src[0] * 0x01010101u) volatile_store(&space.differs, 1);
        }
        if (thread < size % 4 && src[size - 1 - thread] != src[0]) volatile_store(&space.differs, 1);
        atomic_add(&space.extra_bits, extra_bits);
        block_barrier();
        bool is_whole = is_smaller_whole(space, src, size, found);
        if (is_whole) {
            for (u32 i = thread; i < size; i += threads) literals.to[i] = src[i];
            for (u32 i = thread; i < CUZARR_ZSTD_STREAMS * CUZARR_ZSTD_BYTES; i += threads) space.counters[i] = space.whole[i];
            block_barrier();
        }
        u16* counters = task.counters + (u64)block * CUZARR_ZSTD_COUNTERS;
        for (u32 i = thread; i < CUZARR_ZSTD_COUNTERS; i += threads) counters[i] = (u16)space.counters[i];
        if (thread == 0) {
            ZstdMade& made = task.made[block];
            made.sequences = is_whole ? 0 : found.sequences, made.literals = is_whole ? size : found.literals;
            made.extra_bits = is_whole ? 0 : space.extra_bits, made.is_run = !space.differs;
        }
        block_barrier();
    }
}
