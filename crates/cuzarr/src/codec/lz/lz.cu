// Sequences of literals and matches become bytes: by blocks of threads, a tile of output each, and not one after the other.
//
//     lz_tiles   a tile's bytes, each: a literal, or which byte it repeats. Inside the tile, `link[i] = link[link[i]]` until
//                every byte is a literal or repeats one before the tile. Those are loaded when the tiles that hold them are
//                done, which their flags say.
//     lz_marks   the same for a segment of a large unit, where what lies before the segment is not known yet: its place is
//                kept, 4 bytes a byte. So the segments of a unit are worked at side by side.
//     lz_settle  marks become bytes, segment after segment, each with all threads of its tiles.
//
// A tile waits for tiles before it only, and blocks take tiles in an order in which those come earlier, so the block that is
// waited for runs or has run.
//
// Copies are resolved by bytes because the rows of an array repeat the row before: sequences in order, or in waves of
// independent ones, have nearly nothing to do side by side. Prior art: pointer jumping (Wyllie 1979) is what union-find
// decoders of LZ77 do over whole files (K. Wesley, Texas State 2022); two levels keep most of it in shared memory.
//
// Floor on an H200: about 40 instructions a byte of output, 132 x 4 x 1.9 GHz x 32 / 40 = 800 GB/s; a tile of a chain where
// each waits for the one before takes about 2 microseconds from flag to flag, 4 GB/s a chain.
#include "cuzarr/lz_chains.cuh"
#include "cuzarr/status.cuh"

/// Groups of 4 of the bytes that a thread owns.
#define CUZARR_LZ_GROUPS 8u
/// A link from here on is a literal, its lowest byte. Below CUZARR_LZ_TILE: a byte of this tile. Between: CUZARR_LZ_TILE more
/// than the place of an earlier byte of the unit.
#define CUZARR_LZ_LITERAL 0xffffff00u

struct LzPlace {
    u32 begin, size;  // in the unit's output
    u32 count;        // of the unit's sequences
};

/// Numbers the sequences of a tile by their first bytes: `starts` has a bit for each that begins in the tile behind the first,
/// `before` how many bits stand in earlier words. All threads of the block; a thread has a word.
CUZARR_DEVICE void lz_number(const LzSequence* sequences, const LzPlace& place, u32 first, u32* starts, u32* before, u32* sums) {
    u32 thread = thread_index(), lane = thread % CUZARR_WARP, warp = thread / CUZARR_WARP;
    starts[thread] = 0;
    block_barrier();
    for (u32 i = first + 1 + thread; i < place.count; i += thread_count()) {
        u32 at = sequences[i].out - place.begin;
        if (at >= place.size) break;
        atomic_or(starts + at / 32, 1u << at % 32);
    }
    block_barrier();
    u32 own = count_ones(starts[thread]), sum = own;
    for (u32 by = 1; by < CUZARR_WARP; by *= 2) {
        u32 other = warp_shuffle_up(CUZARR_ALL_LANES, sum, by);
        if (lane >= by) sum += other;
    }
    if (lane == CUZARR_WARP - 1) sums[warp] = sum;
    block_barrier();
    for (u32 i = 0; i < warp; ++i) sum += sums[i];
    before[thread] = sum - own;
    block_barrier();
}

/// The link of byte `at` of a unit, in a tile that begins at `begin`.
CUZARR_DEVICE u32 lz_link(const LzSequence& sequence, const u8* literals, u32 at, u32 begin) {
    if (at < sequence.match) return CUZARR_LZ_LITERAL | literals[at - sequence.out];
    u32 ahead = at - sequence.match;
    if (ahead >= sequence.offset) ahead %= sequence.offset;
    u32 from = sequence.match - sequence.offset + ahead;
    return from >= begin && from < at ? from - begin : from + CUZARR_LZ_TILE;
}

/// Links of the tile's bytes; `sequences` are those that reach into it. Returns which of the thread's bytes repeat one of the
/// tile, a bit each.
CUZARR_DEVICE u32 lz_fill(
    const LzChain& chain, const LzPlace& place, const u8* src, const u8* scratch, const LzSequence* sequences, const u32* starts,
    const u32* before, u32* links
) {
    u32 live = 0;
    for (u32 group = 0; group < CUZARR_LZ_GROUPS; ++group) {
        u32 at = (group * thread_count() + thread_index()) * 4;
        if (at >= place.size) continue;
        u32 word = starts[at / 32], bit = at % 32;
        u32 index = before[at / 32] + count_ones(word & (0xffffffffu >> (31 - bit)));
        LzSequence sequence = sequences[index];
        const u8* literals = lz_literals(chain, src, scratch, sequence.literals);
        u32 first = place.begin + at, ahead = first - sequence.out;
        if (ahead >= 3 && first >= sequence.out && first + 7 <= sequence.match) {
            u32 bytes = load_4<false>(literals + ahead);
            uint4 four;
            four.x = CUZARR_LZ_LITERAL | (bytes & 255), four.y = CUZARR_LZ_LITERAL | (bytes >> 8 & 255);
            four.z = CUZARR_LZ_LITERAL | (bytes >> 16 & 255), four.w = CUZARR_LZ_LITERAL | bytes >> 24;
            *(uint4*)(links + at) = four;
            continue;
        }
        for (u32 k = 0; k < 4 && at + k < place.size; ++k) {
            if (k && word >> (bit + k) & 1) {
                sequence = sequences[++index];
                literals = lz_literals(chain, src, scratch, sequence.literals);
            }
            u32 link = lz_link(sequence, literals, first + k, place.begin);
            links[at + k] = link;
            if (link < CUZARR_LZ_TILE) live |= 1u << (group * 4 + k);
        }
    }
    return live;
}

/// Until none of the thread's bytes repeats one of the tile. Others may be at it still: whatever they have is further back.
CUZARR_DEVICE void lz_jump(u32* links, u32 live) {
    while (warp_ballot(CUZARR_ALL_LANES, live != 0)) {
        for (u32 group = 0; group < CUZARR_LZ_GROUPS; ++group) {
            u32 bits = live >> (group * 4) & 15;
            if (bits == 0) continue;
            u32* own = links + (group * thread_count() + thread_index()) * 4;
            uint4 four = *(uint4*)own;
            u32 next[4] = {four.x, four.y, four.z, four.w};
            for (u32 k = 0; k < 4; ++k) {
                if (!(bits >> k & 1)) continue;
                next[k] = links[next[k]];
                if (next[k] >= CUZARR_LZ_TILE) live &= ~(1u << (group * 4 + k));
            }
            four.x = next[0], four.y = next[1], four.z = next[2], four.w = next[3];
            *(uint4*)own = four;
        }
        warp_barrier(CUZARR_ALL_LANES);
    }
}

/// Waits until the tiles are done that hold the bytes of the chain which this tile repeats.
CUZARR_DEVICE void lz_wait(const LzChain& chain, const LzPlace& place, const u32* links, const u32* done, u32* range) {
    u32 low = 0xffffffffu, high = 0, lane = thread_index() % CUZARR_WARP;
    for (u32 group = 0; group < CUZARR_LZ_GROUPS; ++group) {
        u32 at = (group * thread_count() + thread_index()) * 4;
        uint4 four = *(const uint4*)(links + at);
        u32 link[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            u32 from = link[k] - CUZARR_LZ_TILE;
            if (at + k >= place.size || from < chain.begin || from >= place.begin) continue;
            low = from < low ? from : low;
            high = from > high ? from : high;
        }
    }
    for (u32 mask = 1; mask < CUZARR_WARP; mask *= 2) {
        u32 other_low = warp_shuffle_xor(CUZARR_ALL_LANES, low, mask), other_high = warp_shuffle_xor(CUZARR_ALL_LANES, high, mask);
        low = other_low < low ? other_low : low;
        high = other_high > high ? other_high : high;
    }
    if (lane == 0 && low <= high) {
        atomic_max(range, ~low);
        atomic_max(range + 1, high + 1);
    }
    block_barrier();
    if (range[1] == 0) return;
    u32 tile_bytes = thread_count() * CUZARR_LZ_OWN;
    u32 first = (~range[0] - chain.begin) / tile_bytes, last = (range[1] - 1 - chain.begin) / tile_bytes;
    for (u32 tile = first + thread_index(); tile <= last; tile += thread_count()) {
        while (volatile_load(done + chain.first_flag + tile) == 0) spin_yield();
    }
    device_fence();
    block_barrier();
}

/// Groups of a thread whose loads are on their way at the same time.
#define CUZARR_LZ_TOGETHER 4u

/// Four bytes, or what there is of them, to their place.
CUZARR_DEVICE void lz_store(u8* to, const u32* bytes, u32 count) {
    if (count >= 4 && (u64)to % 4 == 0) {
        *(u32*)to = (bytes[0] & 255) | (bytes[1] & 255) << 8 | (bytes[2] & 255) << 16 | bytes[3] << 24;
    } else {
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            if (k < count) to[k] = (u8)bytes[k];
        }
    }
}

/// The tile's bytes to their place: what repeats bytes before the tile is loaded.
CUZARR_DEVICE void lz_store_bytes(u8* unit, const LzPlace& place, const u32* links) {
    for (u32 first = 0; first < CUZARR_LZ_GROUPS; first += CUZARR_LZ_TOGETHER) {
        u32 bytes[CUZARR_LZ_TOGETHER][4];
#pragma unroll
        for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) {
            u32 at = ((first + group) * thread_count() + thread_index()) * 4;
            uint4 four = *(const uint4*)(links + at);
            bytes[group][0] = four.x, bytes[group][1] = four.y, bytes[group][2] = four.z, bytes[group][3] = four.w;
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                u32 from = bytes[group][k] - CUZARR_LZ_TILE;
                if (at + k < place.size && from < place.begin) bytes[group][k] = load_new(unit + from);
            }
        }
#pragma unroll
        for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) {
            u32 at = ((first + group) * thread_count() + thread_index()) * 4;
            if (at < place.size) lz_store(unit + place.begin + at, bytes[group], place.size - at);
        }
    }
}

/// The same for marks: what lies before the segment stays a place.
CUZARR_DEVICE void lz_store_marks(u32* marks, const LzChain& chain, const LzPlace& place, const u32* links) {
    for (u32 first = 0; first < CUZARR_LZ_GROUPS; first += CUZARR_LZ_TOGETHER) {
        uint4 fours[CUZARR_LZ_TOGETHER];
#pragma unroll
        for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) {
            u32 at = ((first + group) * thread_count() + thread_index()) * 4;
            fours[group] = *(const uint4*)(links + at);
            u32* four = (u32*)&fours[group];
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                u32 from = four[k] - CUZARR_LZ_TILE;
                if (at + k < place.size && from >= chain.begin && from < place.begin) four[k] = load_new(marks + from);
            }
        }
#pragma unroll
        for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) {
            u32 at = ((first + group) * thread_count() + thread_index()) * 4;
            // Marks of a unit begin at multiples of 4, and have room for as many.
            if (at < place.size) *(uint4*)(marks + place.begin + at) = fours[group];
        }
    }
}

/// All links of a tile, resolved inside of it.
CUZARR_DEVICE void lz_links(
    const LzChain& chain, const LzPlace& place, const u8* src, const u8* scratch, const LzSequence* sequences, u32 first, u32* links
) {
    CUZARR_SHARED(u32, starts, CUZARR_LZ_THREADS);
    CUZARR_SHARED(u32, before, CUZARR_LZ_THREADS);
    CUZARR_SHARED(u32, sums, CUZARR_LZ_THREADS / CUZARR_WARP);
    lz_number(sequences, place, first, starts, before, sums);
    u32 live = lz_fill(chain, place, src, scratch, sequences + first, starts, before, links);
    block_barrier();
    lz_jump(links, live);
}

template <bool Marks>
CUZARR_DEVICE void lz_tile(
    const u8* src, const u8* scratch, u8* dst, u32* marks, const LzChain* chains, const LzTile* tiles, const LzSequence* sequences,
    const u32* counts, const u64* statuses, u32* ticket, u32* done
) {
    CUZARR_SHARED(u32, links, CUZARR_LZ_TILE);
    // The ticket, the first sequence, and the range of bytes that are waited for.
    CUZARR_SHARED(u32, shared, 4);
    u32 thread = thread_index(), tile_bytes = thread_count() * CUZARR_LZ_OWN;
    if (thread == 0) shared[0] = atomic_add(ticket, 1u), shared[2] = 0, shared[3] = 0;
    block_barrier();
    LzTile tile = tiles[shared[0]];
    LzChain chain = chains[tile.chain];
    if (statuses[chain.status]) return;
    LzPlace place = {chain.begin + tile.tile * tile_bytes, chain.bytes - tile.tile * tile_bytes, counts[chain.unit]};
    place.size = place.size < tile_bytes ? place.size : tile_bytes;
    sequences += chain.first_sequence;
    u8* unit = dst + chain.dst;
    if (thread < CUZARR_WARP) {
        u32 first = lz_find(sequences, place.count, place.begin, thread);
        if (thread == 0) shared[1] = first;
    }
    block_barrier();
    LzSequence sequence = sequences[shared[1]];
    if (!Marks && sequence.match >= place.begin + place.size) {
        const u8* literals = lz_literals(chain, src, scratch, sequence.literals);
        lz_copy(literals + (place.begin - sequence.out), unit + place.begin, place.size);
    } else {
        lz_links(chain, place, src, scratch, sequences, shared[1], links);
        lz_wait(chain, place, links, done, shared + 2);
        if (Marks) lz_store_marks(marks + chain.first_mark, chain, place, links);
        else lz_store_bytes(unit, place, links);
    }
    block_barrier();
    if (thread == 0) {
        device_fence();
        volatile_store(done + chain.first_flag + tile.tile, 1);
    }
}

CUZARR_KERNEL(
    lz_tiles, const u8* src, const u8* scratch, u8* dst, const LzChain* chains, const LzTile* tiles, const LzSequence* sequences,
    const u32* counts, const u64* statuses, u32* ticket, u32* done
) {
    lz_tile<false>(src, scratch, dst, (u32*)0, chains, tiles, sequences, counts, statuses, ticket, done);
}

CUZARR_KERNEL(
    lz_marks, const u8* src, const u8* scratch, u32* marks, const LzChain* chains, const LzTile* tiles, const LzSequence* sequences,
    const u32* counts, const u64* statuses, u32* ticket, u32* done
) {
    lz_tile<true>(src, scratch, (u8*)0, marks, chains, tiles, sequences, counts, statuses, ticket, done);
}

/// What of four marks is a place before `end` becomes the byte there: a load each.
CUZARR_DEVICE void lz_gather_bytes(const u8* unit, u32 end, u32 count, u32 (*groups)[4], const u32* ats) {
#pragma unroll
    for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) {
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            u32 from = groups[group][k] - CUZARR_LZ_TILE;
            if (ats[group] + k < count && from < end) groups[group][k] = load_new(unit + from);
        }
    }
}

/// The same where most bytes are open, in short runs: what is repeated together mostly lies in one or two aligned words, and each
/// is loaded once. Touches up to 3 bytes around a place.
CUZARR_DEVICE void lz_gather_words(const u8* unit, u32 end, u32 count, u32 (*groups)[4], const u32* ats) {
    u32 skew = (u32)((u64)unit & 3), words[CUZARR_LZ_TOGETHER][4];
    const u32* base = (const u32*)(unit - skew);
    auto is_open = [&](u32 group, u32 k) { return ats[group] + k < count && groups[group][k] - CUZARR_LZ_TILE < end; };
    auto word = [&](u32 group, u32 k) { return (groups[group][k] - CUZARR_LZ_TILE + skew) / 4; };
    auto is_again = [&](u32 group, u32 k) { return k && is_open(group, k - 1) && word(group, k) == word(group, k - 1); };
#pragma unroll
    for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) {
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            if (is_open(group, k) && !is_again(group, k)) words[group][k] = load_new(base + word(group, k));
        }
    }
#pragma unroll
    for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) {
        u32 held = 0, bytes[4];
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            bytes[k] = groups[group][k];
            if (!is_open(group, k)) continue;
            if (!is_again(group, k)) held = words[group][k];
            bytes[k] = held >> (groups[group][k] - CUZARR_LZ_TILE + skew) % 4 * 8;
        }
#pragma unroll
        for (u32 k = 0; k < 4; ++k) groups[group][k] = bytes[k];
    }
}

/// A tile's marks become bytes. `settled` counts the tiles of each unit whose bytes are there; a segment's wait for all before it.
template <bool Words>
CUZARR_DEVICE void lz_settle_tile(
    const u32* marks, u8* dst, const LzChain* chains, const LzTile* tiles, const u64* statuses, u32* ticket, u32* settled
) {
    CUZARR_SHARED(u32, shared, 1);
    u32 thread = thread_index(), tile_bytes = thread_count() * CUZARR_LZ_OWN;
    if (thread == 0) shared[0] = atomic_add(ticket, 1u);
    block_barrier();
    LzTile tile = tiles[shared[0]];
    LzChain chain = chains[tile.chain];
    if (statuses[chain.status]) return;
    u32 begin = chain.begin + tile.tile * tile_bytes, size = chain.bytes - tile.tile * tile_bytes;
    size = size < tile_bytes ? size : tile_bytes;
    u8* unit = dst + chain.dst;
    marks += chain.first_mark;
    u32 bytes[CUZARR_LZ_GROUPS][4];
#pragma unroll
    for (u32 group = 0; group < CUZARR_LZ_GROUPS; ++group) {
        u32 at = (group * thread_count() + thread) * 4;
        if (at >= size) continue;
        uint4 four = *(const uint4*)(marks + begin + at);
        bytes[group][0] = four.x, bytes[group][1] = four.y, bytes[group][2] = four.z, bytes[group][3] = four.w;
    }
    if (thread == 0) {
        while (volatile_load(settled + chain.unit) < chain.tiles_before) spin_yield();
        device_fence();
    }
    block_barrier();
#pragma unroll
    for (u32 first = 0; first < CUZARR_LZ_GROUPS; first += CUZARR_LZ_TOGETHER) {
        u32 ats[CUZARR_LZ_TOGETHER];
#pragma unroll
        for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) ats[group] = ((first + group) * thread_count() + thread) * 4;
        if (Words) lz_gather_words(unit, chain.begin, size, bytes + first, ats);
        else lz_gather_bytes(unit, chain.begin, size, bytes + first, ats);
    }
#pragma unroll
    for (u32 group = 0; group < CUZARR_LZ_GROUPS; ++group) {
        u32 at = (group * thread_count() + thread) * 4;
        if (at < size) lz_store(unit + begin + at, bytes[group], size - at);
    }
    block_barrier();
    if (thread == 0) {
        device_fence();
        atomic_add(settled + chain.unit, 1u);
    }
}

CUZARR_KERNEL(
    lz_settle, const u32* marks, u8* dst, const LzChain* chains, const LzTile* tiles, const u64* statuses, u32* ticket, u32* settled
) {
    lz_settle_tile<false>(marks, dst, chains, tiles, statuses, ticket, settled);
}

/// For short sequences.
CUZARR_KERNEL(
    lz_settle_short, const u32* marks, u8* dst, const LzChain* chains, const LzTile* tiles, const u64* statuses, u32* ticket, u32* settled
) {
    lz_settle_tile<true>(marks, dst, chains, tiles, statuses, ticket, settled);
}
