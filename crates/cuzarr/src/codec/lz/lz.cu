// Turns sequences of literals and matches into bytes: each block of threads makes a tile of output, with many bytes
// side by side.
//
//     lz_tiles   a tile's bytes, each: a literal, or which byte it repeats, written down by a lane for each short sequence and a warp
//                for parts of long ones. Inside the tile, `link[i] = link[link[i]]` until every byte is a literal or repeats one
//                before the tile. Those are loaded when the tiles that hold them are done, which their flags say.
//     lz_marks   the same for a segment of a large unit, where what lies before the segment is not known yet: its place is
//                kept, 4 bytes a byte. So the segments of a unit are worked at side by side. Tiles of literals alone are final,
//                and have no marks.
//     lz_settle  (lz_settle.cu) marks become bytes, segment after segment, each with all threads of its tiles.
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
#include "codec/lz/lz_chains.cuh"
#include "cuzarr/status.cuh"

/// Maximum bytes of a sequence whose links one lane makes. Warps take longer ones in pieces of CUZARR_LZ_PIECE bytes; a
/// tile has CUZARR_LZ_PARTS of these.
#define CUZARR_LZ_LANE 32u
#define CUZARR_LZ_PIECE 256u
#define CUZARR_LZ_PARTS (CUZARR_LZ_TILE / CUZARR_LZ_PIECE)
/// Number of tiles directly before a tile whose marks it takes last. A row of tiles waits for these.
#define CUZARR_LZ_LATE 4u

struct LzPlace {
    u32 begin, size;  // in the unit's output
};

/// The part of a sequence that lies in a tile, as positions in the unit's output.
struct LzRun {
    u32 at, end;
};

CUZARR_DEVICE LzRun lz_run(const LzSequence& sequence, u32 end, const LzPlace& place) {
    u32 tile_end = place.begin + place.size;
    return {sequence.out > place.begin ? sequence.out : place.begin, end < tile_end ? end : tile_end};
}

/// The position that byte `at` of a match repeats. A match that overlaps itself repeats its first `offset` bytes.
CUZARR_DEVICE u32 lz_source(const LzSequence& sequence, u32 at) {
    u32 ahead = at - sequence.match;
    if (ahead >= sequence.offset) ahead %= sequence.offset;
    return sequence.match - sequence.offset + ahead;
}

CUZARR_DEVICE u32 lz_link(u32 from, const LzPlace& place) {
    return from >= place.begin ? from - place.begin : from + CUZARR_LZ_TILE;
}

/// Loads up to four literals at the same time.
CUZARR_DEVICE void lz_load_literals(const u8* literals, u32 count, u32 bytes[4]) {
#pragma unroll
    for (u32 k = 0; k < 4; ++k) bytes[k] = k < count ? literals[k] : 0;
}
CUZARR_DEVICE void lz_link_literals(SharedPlace links, u32 to, u32 count, const u32 bytes[4]) {
    if (count > 0) store_shared_u32<0>(links, to, CUZARR_LZ_LITERAL | bytes[0]);
    if (count > 1) store_shared_u32<4>(links, to, CUZARR_LZ_LITERAL | bytes[1]);
    if (count > 2) store_shared_u32<8>(links, to, CUZARR_LZ_LITERAL | bytes[2]);
    if (count > 3) store_shared_u32<12>(links, to, CUZARR_LZ_LITERAL | bytes[3]);
}

/// Makes the links of a short run, by one lane. `links` is the place of the tile's links in shared memory. The first
/// literals are loaded while the links of the match are made.
CUZARR_DEVICE void lz_fill_short(SharedPlace links, const LzPlace& place, const LzSequence& sequence, const u8* literals, const LzRun& run) {
    u32 match = sequence.match > run.at ? sequence.match : run.at;
    match = match < run.end ? match : run.end;
    literals += run.at - sequence.out;
    u32 count = match - run.at, begin = 4 * (run.at - place.begin), bytes[4];
    lz_load_literals(literals, count, bytes);
    u32 from = match < run.end ? lz_source(sequence, match) : 0;
    for (u32 at = match; at < run.end;) {
        // The part of the run where links grow by one for each byte.
        u32 stop = from < place.begin && place.begin < sequence.match ? place.begin : sequence.match;
        u32 part = stop - from < run.end - at ? stop - from : run.end - at, link = lz_link(from, place), to = 4 * (at - place.begin);
        at += part, from = from + part == sequence.match ? from + part - sequence.offset : from + part;
#pragma unroll 1
        for (i32 left = (i32)part; left > 0; left -= 4, link += 4, to += 16) {
            store_shared_u32<0>(links, to, link);
            if (left > 1) store_shared_u32<4>(links, to, link + 1);
            if (left > 2) store_shared_u32<8>(links, to, link + 2);
            if (left > 3) store_shared_u32<12>(links, to, link + 3);
        }
    }
    lz_link_literals(links, begin, count, bytes);
#pragma unroll 1
    for (u32 done = 4; done < count; done += 4) {
        lz_load_literals(literals + done, count - done, bytes);
        lz_link_literals(links, begin + 4 * done, count - done, bytes);
    }
}

/// Makes the links of up to CUZARR_LZ_PIECE bytes of a run, by a warp.
CUZARR_DEVICE void lz_fill_piece(u32* links, const LzPlace& place, const LzSequence& sequence, const u8* literals, const LzRun& run, u32 lane) {
    u32 match = sequence.match > run.at ? sequence.match : run.at;
    match = match < run.end ? match : run.end;
    for (u32 first = run.at; first < match; first += 4 * CUZARR_WARP) {
        u32 bytes[4];
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            u32 at = first + k * CUZARR_WARP + lane;
            bytes[k] = at < match ? literals[at - sequence.out] : 0;
        }
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            u32 at = first + k * CUZARR_WARP + lane;
            if (at < match) links[at - place.begin] = CUZARR_LZ_LITERAL | bytes[k];
        }
    }
    if (match == run.end) return;
    u32 ahead = match + lane - sequence.match, step = CUZARR_WARP;
    if (run.end - sequence.match > sequence.offset) ahead %= sequence.offset, step %= sequence.offset;
    for (u32 at = match + lane; at < run.end; at += CUZARR_WARP) {
        links[at - place.begin] = lz_link(sequence.match - sequence.offset + ahead, place);
        ahead += step;
        // A match that does not repeat itself stays below.
        if (ahead >= sequence.offset) ahead -= sequence.offset;
    }
}

/// Widens the range from `low` to `high` by the bytes that the run's match repeats, as far as they lie in the chain and
/// before the tile.
CUZARR_DEVICE void lz_widen(const LzChain& chain, const LzPlace& place, const LzSequence& sequence, const LzRun& run, u32& low, u32& high) {
    u32 match = sequence.match > run.at ? sequence.match : run.at;
    if (match >= run.end) return;
    u32 from = lz_source(sequence, match), end = from + (run.end - match);
    if (end > sequence.match) from = sequence.match - sequence.offset, end = sequence.match;
    from = from > chain.begin ? from : chain.begin;
    end = end < place.begin ? end : place.begin;
    if (from >= end) return;
    low = from < low ? from : low;
    high = end > high ? end : high;
}

/// Makes the links of a tile's bytes: one lane for each sequence, and warps for the pieces of long ones. `sequences`
/// begin with those that reach into the tile. `range` becomes the range of bytes that the tile repeats, in the chain
/// and before the tile: the complement of its first byte, and its end. All threads of the block call; the function ends
/// with a barrier.
template <class Sequences>
CUZARR_DEVICE void lz_fill(
    const LzChain& chain, const LzPlace& place, const u8* src, const u8* scratch, const Sequences& sequences, u32* links, u32* range
) {
    CUZARR_SHARED(u32, pieces, CUZARR_LZ_THREADS);
    CUZARR_SHARED(u32, piece_count, 1);
    u32 lane = thread_index() % CUZARR_WARP, next = thread_index(), tile_end = place.begin + place.size;
    u32 low = 0xffffffffu, high = 0;
    SharedPlace place_of_links = shared_place(links);
    if (thread_index() == 0) piece_count[0] = 0;
    auto loaded = sequences.load(next);
    block_barrier();
    for (;;) {
        LzSequence own;
        u32 end, number = next;
        bool more, is_in = sequences.open(loaded, next, place.begin, tile_end, own, end, more);
        if (!more) break;
        LzRun run = lz_run(own, end, place);
        next += thread_count();
        loaded = sequences.load(next);
        if (is_in) {
            lz_widen(chain, place, own, run, low, high);
            u32 bytes = run.end - run.at;
            if (bytes <= CUZARR_LZ_LANE) {
                lz_fill_short(place_of_links, place, own, lz_literals(chain, src, scratch, own.literals), run);
            } else {
                u32 parts = (bytes + CUZARR_LZ_PIECE - 1) / CUZARR_LZ_PIECE, slot = atomic_add(piece_count, parts);
                for (u32 part = 0; part < parts; ++part) pieces[slot + part] = number * CUZARR_LZ_PARTS + part;
            }
        }
    }
    for (u32 mask = 1; mask < CUZARR_WARP; mask *= 2) {
        u32 other_low = warp_shuffle_xor(CUZARR_ALL_LANES, low, mask), other_high = warp_shuffle_xor(CUZARR_ALL_LANES, high, mask);
        low = other_low < low ? other_low : low;
        high = other_high > high ? other_high : high;
    }
    if (lane == 0 && low < high) {
        atomic_max(range, ~low);
        atomic_max(range + 1, high);
    }
    block_barrier();
    u32 total = piece_count[0], warps = thread_count() / CUZARR_WARP;
    for (u32 piece = thread_index() / CUZARR_WARP; piece < total; piece += warps) {
        u32 number = pieces[piece] / CUZARR_LZ_PARTS, part = pieces[piece] % CUZARR_LZ_PARTS;
        LzSequence own;
        u32 end;
        sequences.one(number, lane, own, end);
        LzRun run = lz_run(own, end, place);
        run.at += part * CUZARR_LZ_PIECE;
        run.end = run.end - run.at < CUZARR_LZ_PIECE ? run.end : run.at + CUZARR_LZ_PIECE;
        lz_fill_piece(links, place, own, lz_literals(chain, src, scratch, own.literals), run, lane);
    }
    block_barrier();
}

/// Follows links until none of the thread's bytes repeats a byte of the tile. Other threads may still follow theirs:
/// each of their links only moves further back.
CUZARR_DEVICE void lz_jump(u32* links, u32 size) {
    u32 live = 0;
    for (u32 group = 0; group < CUZARR_LZ_GROUPS; ++group) {
        u32 at = (group * thread_count() + thread_index()) * 4;
        uint4 four = *(const uint4*)(links + at);
        u32 link[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            if (at + k < size && link[k] < CUZARR_LZ_TILE) live |= 1u << (group * 4 + k);
        }
    }
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

/// Waits until the chain's tiles from `first` up to `end` are done. One warp reads their `flags`, and fences. With the
/// barrier, that orders their stores before this block's loads, which may then use the first-level cache; but a fence
/// empties it for all blocks. `finals` gets a bit for each tile of the chain that has no marks; its last word says
/// whether there are any.
CUZARR_DEVICE void lz_wait(const u32* flags, u32 first, u32 end, u32* finals) {
    if (thread_index() < CUZARR_WARP) {
        for (u32 tile = first + thread_index(); tile < end; tile += CUZARR_WARP) {
            u32 state;
            while ((state = volatile_load(flags + tile)) == 0) spin_yield();
            if (state == CUZARR_LZ_FINAL) atomic_or(finals + tile / 32, 1u << tile % 32), finals[CUZARR_LZ_FINALS / 32] = 1;
        }
        device_fence();
    }
    block_barrier();
}

/// Stores the tile's bytes to their place. Bytes that repeat others before the tile are loaded.
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
                if (at + k < place.size && from < place.begin) bytes[group][k] = unit[from];
            }
        }
#pragma unroll
        for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) {
            u32 at = ((first + group) * thread_count() + thread_index()) * 4;
            if (at < place.size) lz_store(unit + place.begin + at, bytes[group], place.size - at);
        }
    }
}

/// Replaces the tile's links to bytes of the chain from `low` up to `high` by the marks of these bytes. `marks` begin
/// with the chain's. Links to final tiles stay places, like those to bytes before the segment. `put(at, four)` gets all
/// links, four at a time.
template <class Put>
CUZARR_DEVICE void lz_take_marks(const u32* marks, const LzChain& chain, u32 low, u32 high, const u32* links, const u32* finals, Put put) {
    u32 tile_log = highest_bit(thread_count() * CUZARR_LZ_OWN);
    // Places of the chain are counted from its begin; those before wrap around.
    u32 base = chain.begin + CUZARR_LZ_TILE;
    bool any_final = finals[CUZARR_LZ_FINALS / 32] != 0;
    auto has_mark = [&](u32 from) {
        if (!any_final) return true;
        u32 tile = from >> tile_log;
        return tile >= CUZARR_LZ_FINALS || !(finals[tile / 32] >> tile % 32 & 1);
    };
    for (u32 first = 0; first < CUZARR_LZ_GROUPS; first += CUZARR_LZ_TOGETHER) {
        uint4 fours[CUZARR_LZ_TOGETHER];
#pragma unroll
        for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) {
            u32 at = ((first + group) * thread_count() + thread_index()) * 4;
            fours[group] = *(const uint4*)(links + at);
            u32* four = (u32*)&fours[group];
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                // Links behind the tile's end are arbitrary. Loads stay inside the chain, and the results are not
                // stored, or only into the unit's room.
                u32 from = four[k] - base;
                if (from >= low && from < high && has_mark(from)) four[k] = marks[from];
            }
        }
#pragma unroll
        for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) put(((first + group) * thread_count() + thread_index()) * 4, fours[group]);
    }
}

/// Makes the tile's marks, once the tiles that they come from are done: those from `first` up to `end` of the chain,
/// whose flags are `flags`. Marks of earlier tiles are taken while the last CUZARR_LZ_LATE tiles are still at work.
CUZARR_DEVICE void lz_make_marks(
    u32* marks, const LzChain& chain, const LzPlace& place, u32 tile, const u32* flags, u32 first, u32 end, u32* links, u32* finals
) {
    u32 tile_bytes = thread_count() * CUZARR_LZ_OWN, early = tile > CUZARR_LZ_LATE ? tile - CUZARR_LZ_LATE : 0, taken = 0;
    u32 soon = early < end ? early : end;
    if (first < soon) {
        lz_wait(flags, first, soon, finals);
        taken = early * tile_bytes;
        lz_take_marks(marks, chain, 0, taken, links, finals, [&](u32 at, const uint4& four) { *(uint4*)(links + at) = four; });
    }
    if (early < end) lz_wait(flags, first < early ? early : first, end, finals);
    lz_take_marks(marks, chain, taken, place.begin - chain.begin, links, finals, [&](u32 at, const uint4& four) {
        // Marks of a chain begin at multiples of 4, and have room for as many.
        if (at < place.size) *(uint4*)(marks + (place.begin - chain.begin) + at) = four;
    });
}

/// Makes a tile's bytes, or its marks if `Marks`. `sequences_of(chain, count)` returns the reader of the sequences of a
/// chain's unit.
template <bool Marks, class SequencesOf>
CUZARR_DEVICE void lz_tile(
    const u8* src, const u8* scratch, u8* dst, u32* marks, const LzChain* chains, const LzTile* tiles, const u32* counts, const u64* statuses,
    u32* ticket, u32* done, SequencesOf sequences_of
) {
    CUZARR_SHARED(u32, links, CUZARR_LZ_TILE);
    // The ticket, where sequences begin, the range of bytes that are waited for, and of the first sequence `out`, `literals` and `match`.
    CUZARR_SHARED(u32, shared, 7);
    CUZARR_SHARED(u32, finals, CUZARR_LZ_FINALS / 32 + 1);
    u32 thread = thread_index(), tile_bytes = thread_count() * CUZARR_LZ_OWN, state = CUZARR_LZ_DONE;
    for (u32 word = thread; word <= CUZARR_LZ_FINALS / 32; word += thread_count()) finals[word] = 0;
    if (thread == 0) shared[0] = atomic_add(ticket, 1u), shared[2] = 0, shared[3] = 0;
    block_barrier();
    LzTile tile = tiles[shared[0]];
    LzChain chain = chains[tile.chain];
    if (statuses[chain.status]) return;
    LzPlace place = {chain.begin + tile.tile * tile_bytes, chain.bytes - tile.tile * tile_bytes};
    place.size = place.size < tile_bytes ? place.size : tile_bytes;
    auto sequences = sequences_of(chain, counts[chain.unit]);
    u8* unit = dst + chain.dst;
    if (thread < CUZARR_WARP) {
        LzSequence first;
        u32 number = sequences.find(place.begin, thread, first);
        if (thread == 0) shared[1] = number, shared[4] = first.out, shared[5] = first.literals, shared[6] = first.match;
    }
    block_barrier();
    sequences.skip(shared[1]);
    if (shared[6] >= place.begin + place.size && (!Marks || tile.tile < CUZARR_LZ_FINALS)) {
        const u8* literals = lz_literals(chain, src, scratch, shared[5]);
        lz_copy(literals + (place.begin - shared[4]), unit + place.begin, place.size);
        if (Marks) state = CUZARR_LZ_FINAL;
    } else {
        lz_fill(chain, place, src, scratch, sequences, links, shared + 2);
        lz_jump(links, place.size);
        const u32* flags = done + chain.first_flag;
        u32 low = ~shared[2], high = shared[3];
        u32 first = high ? (low - chain.begin) / tile_bytes : 0, end = high ? (high - 1 - chain.begin) / tile_bytes + 1 : 0;
        if (Marks) {
            lz_make_marks(marks + chain.first_mark, chain, place, tile.tile, flags, first, end, links, finals);
        } else {
            if (first < end) lz_wait(flags, first, end, finals);
            lz_store_bytes(unit, place, links);
        }
    }
    block_barrier();
    if (thread == 0) {
        device_fence();
        volatile_store(done + chain.first_flag + tile.tile, state);
    }
}

CUZARR_DEVICE auto lz_plain(const LzSequence* sequences) {
    return [=](const LzChain& chain, u32 count) { return LzPlain{sequences + chain.first_sequence, count}; };
}
CUZARR_DEVICE auto lz_matches(const u64* matches) {
    return [=](const LzChain& chain, u32 count) { return LzMatches{matches + chain.first_sequence, count, 0}; };
}
CUZARR_DEVICE auto lz_bundled(const u64* briefs, const LzBundle* bundles) {
    return [=](const LzChain& chain, u32 count) {
        return LzBundled{briefs + chain.first_sequence * CUZARR_LZ_BUNDLE, bundles + chain.first_sequence, count};
    };
}

/// Takes 40 registers a thread, like the kernels below: that allows six blocks a multiprocessor, as shared memory does.
CUZARR_KERNEL_SIZED(
    CUZARR_LZ_THREADS, 6, lz_tiles, const u8* src, const u8* scratch, u8* dst, const LzChain* chains, const LzTile* tiles, const LzSequence* sequences,
    const u32* counts, const u64* statuses, u32* ticket, u32* done
) {
    lz_tile<false>(src, scratch, dst, (u32*)0, chains, tiles, counts, statuses, ticket, done, lz_plain(sequences));
}

CUZARR_KERNEL_SIZED(
    CUZARR_LZ_THREADS, 6, lz_tiles_of_matches, const u8* src, const u8* scratch, u8* dst, const LzChain* chains, const LzTile* tiles, const u64* matches,
    const u32* counts, const u64* statuses, u32* ticket, u32* done
) {
    lz_tile<false>(src, scratch, dst, (u32*)0, chains, tiles, counts, statuses, ticket, done, lz_matches(matches));
}

CUZARR_KERNEL_SIZED(
    CUZARR_LZ_THREADS, 6, lz_tiles_bundled, const u8* src, const u8* scratch, u8* dst, const LzChain* chains, const LzTile* tiles, const u64* briefs,
    const LzBundle* bundles, const u32* counts, const u64* statuses, u32* ticket, u32* done
) {
    lz_tile<false>(src, scratch, dst, (u32*)0, chains, tiles, counts, statuses, ticket, done, lz_bundled(briefs, bundles));
}

CUZARR_KERNEL_SIZED(
    CUZARR_LZ_THREADS, 6, lz_marks, const u8* src, const u8* scratch, u8* dst, u32* marks, const LzChain* chains, const LzTile* tiles, const LzSequence* sequences,
    const u32* counts, const u64* statuses, u32* ticket, u32* done
) {
    lz_tile<true>(src, scratch, dst, marks, chains, tiles, counts, statuses, ticket, done, lz_plain(sequences));
}

CUZARR_KERNEL_SIZED(
    CUZARR_LZ_THREADS, 6, lz_marks_of_matches, const u8* src, const u8* scratch, u8* dst, u32* marks, const LzChain* chains, const LzTile* tiles, const u64* matches,
    const u32* counts, const u64* statuses, u32* ticket, u32* done
) {
    lz_tile<true>(src, scratch, dst, marks, chains, tiles, counts, statuses, ticket, done, lz_matches(matches));
}

CUZARR_KERNEL_SIZED(
    CUZARR_LZ_THREADS, 6, lz_marks_bundled, const u8* src, const u8* scratch, u8* dst, u32* marks, const LzChain* chains, const LzTile* tiles,
    const u64* briefs, const LzBundle* bundles, const u32* counts, const u64* statuses, u32* ticket, u32* done
) {
    lz_tile<true>(src, scratch, dst, marks, chains, tiles, counts, statuses, ticket, done, lz_bundled(briefs, bundles));
}
