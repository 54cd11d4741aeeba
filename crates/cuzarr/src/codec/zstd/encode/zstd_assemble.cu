// The last passes of zstd encoding: the sizes of blocks and frames, and their bytes.
//
// A block is put together in shared memory by a block of threads: headers by one thread; Huffman codes and sequences by all,
// each from the place that a sum over those behind it gives, since both are written from the last to the first. A block
// that would not become smaller is raw.
#include "codec/lz/bits.cuh"
#include "codec/lz/lz.cuh"
#include "codec/zstd/encode/zstd_encode.cuh"
#include "codec/zstd/xxh64.cuh"

#define CUZARR_ZSTD_THREADS 256u
/// The window in a frame's header: 64 KiB, which hold every block and the bytes that it repeats.
#define CUZARR_ZSTD_WINDOW 0x30u

/// The size of a block's coded sequences, in bytes.
CUZARR_DEVICE u32 sequences_bytes(const ZstdMade& made) {
    u32 header = sequences_header_bytes(made.sequences);
    if (made.sequences == 0) return header;
    u32 bits = made.extra_bits + made.state_bits[0] + made.state_bits[1] + made.state_bits[2];
    return header + made.tables_bytes + bits / 8 + 1;
}

CUZARR_KERNEL(zstd_encode_sizes, const ZstdEncode task) {
    u32 lane = thread_index();
    for (u32 chunk = block_index(); chunk < task.blocks.chunks; chunk += block_count()) {
        u32 chunk_size = task.blocks.sizes[chunk], blocks = blocks_of(task.blocks, chunk), at = frame_header_bytes(chunk_size);
        for (u32 first = 0; first < blocks; first += CUZARR_WARP) {
            u32 index = first + lane, block = chunk * task.blocks.chunk_blocks + index, bytes = 0;
            if (index < blocks) {
                ZstdMade& made = task.made[block];
                u32 size = block_bytes(task.blocks, block), literals = literals_bytes(made);
                u32 coded = literals_header_bytes(made.literals_kind, made.literals, literals) + literals + sequences_bytes(made);
                made.kind = made.is_run ? CUZARR_ZSTD_BLOCK_RLE : coded < size ? CUZARR_ZSTD_BLOCK_CODED : CUZARR_ZSTD_BLOCK_RAW;
                made.bytes = made.is_run ? 1 : coded < size ? coded : size;
                bytes = 3 + made.bytes;
            }
            u32 sum = inclusive_sum(bytes, lane);
            if (index < blocks) task.made[block].at = at + sum - bytes;
            at += warp_shuffle(CUZARR_ALL_LANES, sum, CUZARR_WARP - 1);
        }
        if (lane == 0) task.frames[chunk] = {0, chunk_size ? at + (task.checksum ? 4 : 0) : 0, 0};
    }
}

CUZARR_DEVICE void put_bytes(u32* words, u32 at, u32 value, u32 count) { put_bits(words, 8 * at, value, 8 * count); }

/// Writes the header of a block's literals, and returns its size.
CUZARR_DEVICE u32 put_literals_header(u32* words, const ZstdMade& made) {
    u32 literals = made.literals, coded = literals_bytes(made);
    u32 bytes = literals_header_bytes(made.literals_kind, literals, coded);
    if (made.literals_kind != CUZARR_ZSTD_HUFFMAN) {
        u32 format = bytes == 1 ? 0 : 2 * bytes - 3;
        put_bytes(words, 0, made.literals_kind | format << 2 | literals << (bytes == 1 ? 3 : 4), bytes);
        return bytes;
    }
    u32 width = bytes == 3 ? 10 : bytes == 4 ? 14 : 18, format = stream_count(literals) == 1 ? 0 : bytes - 2;
    put_bits(words, 0, (u64)(2 | format << 2) | (u64)literals << 4 | (u64)coded << (4 + width), 8 * bytes);
    return bytes;
}

/// Calls `each(literal)` for literals [first, last), from the last to the first.
template <class Each>
CUZARR_DEVICE void literals_backward(const u8* literals, u32 first, u32 last, Each each) {
    while (last > first) {
        u32 count = last - first < 16 ? last - first : 16;
        last -= count;
        const uint4 load = load_16(literals + last);
        const u32 words[4] = {load.x, load.y, load.z, load.w};
        for (u32 k = 16; k-- > 0;) {
            if (k < count) each(words[k / 4] >> k % 4 * 8 & 255);
        }
    }
}

/// Writes the Huffman codes of all streams, by all threads. Each stream has a part of the threads; these have shares of
/// it, the first thread the last share. `at` is where the tree is described.
CUZARR_DEVICE void put_streams(u32* words, u32 at, const ZstdMade& made, const u16* codes, const u8* literals, u32* sums, u32* firsts) {
    u32 streams = stream_count(made.literals), threads = thread_count() / streams;
    u32 stream = thread_index() / threads, part = thread_index() % threads, most = stream_literals(made.literals);
    u32 begin = stream * most, end = stream + 1 == streams ? made.literals : begin + most, share = (end - begin + threads - 1) / threads;
    u32 last = end - begin > part * share ? end - part * share : begin, first = last - begin > share ? last - share : begin;
    u32 bits = 0, total;
    literals_backward(literals, first, last, [&](u32 literal) { bits += codes[literal] >> 12; });
    u32 before = block_sum_before(bits, sums, &total);
    if (part == 0) firsts[stream] = before;
    block_barrier();
    before -= firsts[stream];
    at += made.tree_bytes;
    if (streams > 1) {
        if (thread_index() == 0) {
            for (u32 i = 0; i < 3; ++i) put_bytes(words, at + 2 * i, made.stream_bytes[i], 2);
        }
        at += 6;
    }
    for (u32 i = 0; i < stream; ++i) at += made.stream_bytes[i];
    u32 place = 8 * at + before, held = 0;
    u64 value = 0;
    literals_backward(literals, first, last, [&](u32 literal) {
        u32 code = codes[literal];
        value |= (u64)(code & 0xfff) << held;
        held += code >> 12;
        if (held > 32) {
            put_bits(words, place, value & 0xffffffff, 32);
            place += 32, held -= 32, value >>= 32;
        }
    });
    // The thread with the stream's first literal marks its end.
    if (first == begin && last > begin) value |= 1ull << held, held += 1;
    put_bits(words, place, value, held);
}

/// Writes the header of sequences: their number, and the modes of their tables. Returns its size.
CUZARR_DEVICE u32 put_sequences_header(u32* words, u32 at, const ZstdMade& made) {
    u32 count = made.sequences, bytes = sequences_header_bytes(count);
    if (bytes == 1) return 1;
    if (bytes == 2) put_bytes(words, at, count, 1);
    if (bytes == 3) put_bytes(words, at, (count >> 8 | 128) | (count & 255) << 8, 2);
    put_bytes(words, at + bytes - 1, made.modes, 1);
    return bytes;
}

/// Writes the bits of sequences, by all threads, from the last sequence on.
CUZARR_DEVICE void put_sequences(u32* words, u32 at, const ZstdEncode& task, const ZstdMade& made, u32 block, u32* sums) {
    u32 stride = task.blocks.most_sequences, count = made.sequences, place = 8 * at;
    const u64* records = task.records + (u64)block * stride;
    const u16* states = task.states + (u64)block * 3 * stride;
    // The order in which a sequence's states are written.
    const u32 kinds[3] = {1, 2, 0};
    for (u32 done = 0; done < count; done += thread_count()) {
        u32 index = count - 1 - done - thread_index(), held = 0, extra = 0, total;
        u64 record = 0, value = 0;
        if (done + thread_index() < count) {
            record = records[index];
            extra = record_extra_bits(record);
            for (u32 i = 0; i < 3; ++i) {
                u32 bits = made.logs[kinds[i]] ? states[kinds[i] * stride + index] : 0;
                value |= (u64)(bits & 0xfff) << held, held += bits >> 12;
            }
        }
        u32 before = block_sum_before(held + extra, sums, &total);
        put_bits(words, place + before, value, held);
        put_bits(words, place + before + held, record >> CUZARR_ZSTD_EXTRA_AT, extra);
        place += total;
    }
    if (thread_index() == 0) {
        // The match lengths' state first, since decoders read it last; then a bit that marks the end.
        const u32 last[3] = {2, 1, 0};
        for (u32 i = 0; i < 3; ++i) {
            put_bits(words, place, made.last_states[last[i]], made.logs[last[i]]);
            place += made.logs[last[i]];
        }
        put_bits(words, place, 1, 1);
    }
}

CUZARR_DEVICE void store_bytes(u8* to, u64 value, u32 count) {
    for (u32 i = 0; i < count; ++i) to[i] = (u8)(value >> 8 * i);
}

/// Writes a frame's header (RFC 8878, section 3.1.1.1). A frame that fits the window is one segment; all frames state
/// their content size.
CUZARR_DEVICE void put_frame_header(u8* to, u32 bytes, u32 checksum) {
    store_bytes(to, 0xfd2fb528u, 4);
    u32 flags = checksum << 2;
    if (bytes < 256) return store_bytes(to + 4, flags | 0x20 | (u64)bytes << 8, 2);
    if (bytes <= 65536) return store_bytes(to + 4, flags | 0x60 | (u64)(bytes - 256) << 8, 3);
    store_bytes(to + 4, flags | 0x80 | CUZARR_ZSTD_WINDOW << 8 | (u64)bytes << 16, 6);
}

struct AssembleSpace {
    u32 words[CUZARR_FIND_BLOCK_BYTES / 4 + 4];
    u16 codes[CUZARR_ZSTD_BYTES];
    u32 sums[CUZARR_ZSTD_THREADS / CUZARR_WARP];
    u32 firsts[CUZARR_ZSTD_STREAMS];
};

/// Makes the content of a coded block.
CUZARR_DEVICE void assemble(AssembleSpace& space, const ZstdEncode& task, const ZstdMade& made, u32 block) {
    const ZstdCodes& codes = task.codes[block];
    u32 thread = thread_index(), threads = thread_count();
    for (u32 i = thread; i < made.bytes / 4 + 4 && i < CUZARR_FIND_BLOCK_BYTES / 4 + 4; i += threads) space.words[i] = 0;
    for (u32 i = thread; i < CUZARR_ZSTD_BYTES; i += threads) space.codes[i] = codes.words[i];
    block_barrier();
    u32 kind = made.literals_kind, coded = literals_bytes(made);
    u32 at = literals_header_bytes(kind, made.literals, coded);
    const u8* literals = task.literals + (u64)block * task.literal_stride;
    if (thread == 0) put_literals_header(space.words, made);
    if (kind == CUZARR_ZSTD_HUFFMAN) {
        for (u32 i = thread; i < made.tree_bytes; i += threads) put_bytes(space.words, at + i, codes.tree[i], 1);
        put_streams(space.words, at, made, space.codes, literals, space.sums, space.firsts);
    } else {
        for (u32 i = thread; i < coded; i += threads) put_bytes(space.words, at + i, literals[i], 1);
    }
    at += coded;
    if (thread == 0) put_sequences_header(space.words, at, made);
    at += sequences_header_bytes(made.sequences);
    if (made.sequences) {
        for (u32 i = thread; i < made.tables_bytes; i += threads) put_bytes(space.words, at + i, codes.tables[i], 1);
        put_sequences(space.words, at + made.tables_bytes, task, made, block, space.sums);
    }
    block_barrier();
}

CUZARR_KERNEL(zstd_encode_write, const ZstdEncode task) {
    CUZARR_SHARED(AssembleSpace, spaces, 1);
    u32 thread = thread_index(), warp = thread / CUZARR_WARP, lane = thread % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 block = block_index(); block < block_count_of(task.blocks); block += block_count()) {
        if (!is_wanted(task.blocks, block)) continue;
        const ZstdMade made = task.made[block];
        u32 chunk = block / task.blocks.chunk_blocks, number = block % task.blocks.chunk_blocks;
        u8* frame = task.out + task.frames[chunk].at;
        if (thread == 0) {
            if (number == 0) put_frame_header(frame, task.blocks.sizes[chunk], task.checksum);
            u32 ends = is_last(task.blocks, block);
            // A run's header says how often its byte comes.
            u32 size = made.kind == CUZARR_ZSTD_BLOCK_RLE ? block_bytes(task.blocks, block) : made.bytes;
            store_bytes(frame + made.at, ends | made.kind << 1 | size << 3, 3);
        }
        const u8* from = block_src(task, block);
        if (made.kind == CUZARR_ZSTD_BLOCK_CODED) {
            assemble(*spaces, task, made, block);
            from = (const u8*)spaces->words;
        }
        // Each warp copies a share.
        u32 share = (made.bytes + warps - 1) / warps, begin = warp * share < made.bytes ? warp * share : made.bytes;
        u32 end = begin + share < made.bytes ? begin + share : made.bytes;
        copy_far(from + begin, frame + made.at + 3 + begin, end - begin, lane);
        block_barrier();
    }
}

/// Writes the checksum behind each frame's blocks: the lower half of its content's XXH64. A warp takes a frame.
CUZARR_KERNEL(zstd_encode_checksums, const ZstdEncode task) {
    u32 lane = thread_index();
    for (u32 chunk = block_index(); chunk < task.blocks.chunks; chunk += block_count()) {
        if (!task.blocks.sizes[chunk]) continue;
        u64 hash = xxh64(task.src + chunk * task.blocks.stride, task.blocks.sizes[chunk], lane);
        if (lane == 0) store_bytes(task.out + task.frames[chunk].at + task.frames[chunk].size - 4, hash & 0xffffffff, 4);
    }
}
