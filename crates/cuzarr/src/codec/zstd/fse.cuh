// Tables of finite state entropy codes (RFC 8878, section 4.1), read by one lane and built by a whole warp.
#pragma once
#include "cuzarr/search.cuh"
#include "cuzarr/warp.cuh"

/// Maximum number of symbols of a described table: offsets have 32, match lengths 53.
#define CUZARR_FSE_SYMBOLS 64u
/// Number of states of the largest table.
#define CUZARR_FSE_STATES 512u

/// A warp's shared memory for building tables.
struct FseSpace {
    u32 symbols, log, used;                // of the description that was read; `used` bytes, 0 when it is damaged
    u32 reserved;                          // so that a load of several of these touches nothing that others write
    i16 counts[CUZARR_FSE_SYMBOLS];        // of states a symbol has; -1: one, at the table's end
    u16 first[CUZARR_FSE_SYMBOLS + 1];     // states of the symbols before, those at the end left out
    u32 cells[CUZARR_FSE_STATES / 4];      // each state's symbol, a byte
};

/// Returns at least 25 bits from bit `at` on of `size` bytes; zeros behind the end.
CUZARR_DEVICE u32 forward_bits(const u8* src, u32 size, u32 at) {
    u32 byte = at >> 3, bits = 0;
    for (u32 i = 0; i < 4; ++i) bits |= (byte + i < size ? (u32)src[byte + i] : 0) << 8 * i;
    return bits >> (at & 7);
}

/// Reads a description: how many of 2^log states each symbol has. One lane calls.
CUZARR_DEVICE void fse_read(FseSpace& space, const u8* src, u32 size, u32 most_symbols, u32 most_log) {
    space.used = 0;
    u32 at = 4, symbol = 0, log = (forward_bits(src, size, 0) & 15) + 5;
    if (log > most_log) return;
    i32 remaining = (1 << log) + 1, threshold = 1 << log;
    u32 width = log + 1;
    bool zero = false;
    while (remaining > 1 && symbol < most_symbols) {
        if (zero) {
            // Two bits count further zeros; 3 means that another count follows.
            for (u32 run = 3; run == 3 && symbol < most_symbols;) {
                run = forward_bits(src, size, at) & 3;
                at += 2;
                for (u32 i = 0; i < run && symbol < most_symbols; ++i) space.counts[symbol++] = 0;
            }
            if (symbol >= most_symbols) break;
        }
        // Values that one bit less can tell apart take one bit less.
        i32 spare = 2 * threshold - 1 - remaining;
        u32 bits = forward_bits(src, size, at);
        i32 value = (i32)(bits & (u32)(threshold - 1));
        if (value < spare) {
            at += width - 1;
        } else {
            value = (i32)(bits & (u32)(2 * threshold - 1));
            if (value >= threshold) value -= spare;
            at += width;
        }
        i32 count = value - 1;
        remaining -= count < 0 ? 1 : count;
        if (remaining < 1) return;
        space.counts[symbol++] = (i16)count;
        zero = count == 0;
        while (remaining < threshold) threshold >>= 1, --width;
    }
    u32 bytes = (at + 7) >> 3;
    if (remaining != 1 || bytes > size) return;
    space.symbols = symbol, space.log = log, space.used = bytes;
}

/// Builds the table of `space.counts`, by all lanes. `store(state, symbol, bits, next)` gets each state's symbol, how
/// many bits the next state takes, and the number that they are added to.
///
/// Symbols are spread by a step that visits every state: state `i * step` is the i-th visited, so a ballot numbers those that
/// are not at the end. Then each state is numbered among those of its symbol, which says how many bits it takes.
template <class Store>
CUZARR_DEVICE void fse_build(FseSpace& space, u32 lane, Store store) {
    u32 symbols = space.symbols, log = space.log, size = 1u << log, mask = size - 1;
    u8* cells = (u8*)space.cells;
    if (lane == 0) {
        u32 total = 0, end = size;
        for (u32 symbol = 0; symbol < symbols; ++symbol) {
            i32 count = space.counts[symbol];
            space.first[symbol] = (u16)total;
            if (count > 0) total += (u32)count;
            if (count < 0) cells[--end] = (u8)symbol;
        }
        space.first[symbols] = (u16)total;
    }
    warp_barrier(CUZARR_ALL_LANES);
    u32 total = space.first[symbols], step = (size >> 1) + (size >> 3) + 3, done = 0;
    for (u32 base = 0; base < size; base += CUZARR_WARP) {
        u32 state = (base + lane) * step & mask;
        bool spread = state < total;
        u32 votes = warp_ballot(CUZARR_ALL_LANES, spread);
        if (spread) {
            u32 index = done + votes_below(votes, lane);
            cells[state] = (u8)last_from(symbols, index, [&](u32 symbol) { return space.first[symbol]; });
        }
        done += count_ones(votes);
    }
    warp_barrier(CUZARR_ALL_LANES);
    // From here on `first` numbers each symbol's states, from the number of its states on.
    for (u32 symbol = lane; symbol < symbols; symbol += CUZARR_WARP) {
        i32 count = space.counts[symbol];
        space.first[symbol] = (u16)(count < 0 ? 1 : count);
    }
    warp_barrier(CUZARR_ALL_LANES);
    for (u32 state = lane; state < size; state += CUZARR_WARP) {
        u32 symbol = cells[state], same = warp_match(CUZARR_ALL_LANES, symbol);
        u32 before = votes_below(same, lane), next = space.first[symbol] + before;
        warp_barrier(CUZARR_ALL_LANES);
        if (before == 0) space.first[symbol] = (u16)(next + count_ones(same));
        warp_barrier(CUZARR_ALL_LANES);
        u32 bits = log - highest_bit(next);
        store(state, symbol, bits, (next << bits) - size);
    }
    warp_barrier(CUZARR_ALL_LANES);
}
