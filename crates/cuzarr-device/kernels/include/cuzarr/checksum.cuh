// Checksums of bytes in device memory, a warp a piece: CRC-32C and CRC-32 by powers of x, Adler-32 and Fletcher-32 by
// weighted sums. `checksum.cu` runs them over a table of spans; other kernels may use them on bytes they have just written.
//
// A CRC is the remainder of a polynomial over GF(2), so that of a whole is the sum (XOR) of those of its parts, each times
// a power of x for the bytes that follow it (M. Adler's crc32_combine in zlib). Lanes read 16 bytes each, 512 a warp, and
// carry one remainder a word: remainder = remainder * x^4096 + word, the product by four tables of 256 entries. In the end
// the words of a lane, the lanes of the warp, and the pieces of a span are joined by their powers.
// Bits are reflected as both CRCs define them: the highest bit of a word is the coefficient of x^0.
#pragma once
#include "cuzarr/search.cuh"
#include "cuzarr/status.cuh"

/// Which checksum. `Checksum` in checksum.rs.
#define CUZARR_CRC32C 0u
#define CUZARR_CRC32 1u
#define CUZARR_ADLER32 2u
#define CUZARR_FLETCHER32 3u

/// Bytes that a warp reads at a time.
#define CUZARR_CHECKSUM_STEP 512u
/// Words of `CrcTables` in shared memory.
#define CUZARR_CRC_TABLE_WORDS 1024u
/// 1, as a reflected polynomial.
#define CUZARR_CRC_ONE 0x80000000u

/// One run of bytes with a checksum: 32 bytes. `Span` in checksum.rs.
struct ChecksumSpan {
    u64 offset;         // of its bytes
    u64 stored_offset;  // of the four bytes that hold the checksum
    u32 bytes;
    u32 first_piece;    // pieces are numbered through over all spans
    u32 unit;           // whose status tells of a wrong checksum
    u32 at;             // the byte that is named then
};

/// The head of the table of spans: made by the host, or by a kernel that knows the spans first.
struct ChecksumTable {
    u32 spans;
    u32 pieces;
    u32 piece_bytes;
    u32 reserved[5];
};

/// The sums over the pieces of one span: a CRC's remainder in `first`, or the two sums.
struct ChecksumSums {
    u64 first, second;
};
static_assert(sizeof(ChecksumSums) == 16, "as the host counts them");

/// The field of one CRC: its polynomial, the period of x, and x^(2^k).
struct CrcField {
    u32 polynomial;
    u32 period;
    u32 powers[32];
};

CUZARR_DEVICE const ChecksumSpan* spans_of(const ChecksumTable* table) { return (const ChecksumSpan*)(table + 1); }

/// The last span whose first piece is at or before `piece`. Empty spans have the number of the next one's.
CUZARR_DEVICE const ChecksumSpan& span_of_piece(const ChecksumTable* table, u32 piece, u32& index) {
    const ChecksumSpan* spans = spans_of(table);
    index = last_from(table->spans, piece, [=](u32 span) { return spans[span].first_piece; });
    return spans[index];
}

CUZARR_DEVICE u32 crc_times_x(u32 a, u32 polynomial) { return a >> 1 ^ (a & 1 ? polynomial : 0); }

/// remainder * x^32 + word.
CUZARR_DEVICE u32 crc_next_word(u32 remainder, u32 word, u32 polynomial) {
#pragma unroll 8
    for (u32 bit = 0; bit < 32; ++bit) remainder = crc_times_x(remainder, polynomial);
    return remainder ^ word;
}

/// a * b modulo the polynomial.
CUZARR_DEVICE u32 crc_multiply(u32 a, u32 b, u32 polynomial) {
    u32 product = 0;
#pragma unroll 8
    for (u32 bit = 0; bit < 32; ++bit) {
        product ^= a >> 31 ? b : 0;
        a <<= 1;
        b = crc_times_x(b, polynomial);
    }
    return product;
}

/// x^exponent by the whole warp, a lane for each bit: the same in all lanes.
CUZARR_DEVICE u32 crc_power(const CrcField& field, u32 exponent, u32 lane) {
    u32 power = exponent >> lane & 1 ? field.powers[lane] : CUZARR_CRC_ONE;
    for (u32 mask = 16; mask; mask /= 2) {
        power = crc_multiply(power, warp_shuffle_xor(CUZARR_ALL_LANES, power, mask), field.polynomial);
    }
    return power;
}

/// Fills the block's tables, CUZARR_CRC_TABLE_WORDS words of shared memory: (byte at place k) * x^4096.
CUZARR_DEVICE void crc_fill_tables(const CrcField& field, u32* tables) {
    for (u32 at = thread_index(); at < CUZARR_CRC_TABLE_WORDS; at += thread_count()) {
        tables[at] = crc_multiply((at & 255) << 8 * (at >> 8), field.powers[12], field.polynomial);
    }
    block_barrier();
}

/// The factor of a lane's remainders, so that they end where the last lane's do: x^(128 * (31 - lane)).
CUZARR_DEVICE u32 crc_lane_factor(const CrcField& field, u32 lane) {
    u32 factor = CUZARR_CRC_ONE;
    for (u32 bit = 0; bit < 5; ++bit) {
        if ((31 - lane) >> bit & 1) factor = crc_multiply(factor, field.powers[7 + bit], field.polynomial);
    }
    return factor;
}

CUZARR_DEVICE u32 crc_step(const u32* tables, u32 remainder, u32 word) {
    return tables[remainder & 255] ^ tables[256 + (remainder >> 8 & 255)] ^ tables[512 + (remainder >> 16 & 255)] ^
           tables[768 + (remainder >> 24)] ^ word;
}

/// The 16 bytes at an aligned address, of which those outside [begin, end) count as zero and are not touched.
CUZARR_DEVICE uint4 load_inside(const u8* at, const u8* begin, const u8* end) {
    if (at >= begin && end - at >= 16) return *(const uint4*)at;
    u32 words[4] = {0, 0, 0, 0};
    for (u32 k = 0; k < 16; ++k) {
        if (at + k >= begin && at + k < end) words[k / 4] |= (u32)at[k] << 8 * (k % 4);
    }
    uint4 joined;
    joined.x = words[0], joined.y = words[1], joined.z = words[2], joined.w = words[3];
    return joined;
}

CUZARR_DEVICE const u8* aligned_down(const u8* at) { return (const u8*)((u64)at & ~15ull); }

/// The bytes of a piece: [begin, end), and how many of the span follow it.
struct Piece {
    const u8* begin;
    const u8* end;
    u32 before;  // bytes of the span
    u32 after;
};

CUZARR_DEVICE Piece piece_of(const u8* data, const ChecksumSpan& span, u32 number, u32 piece_bytes) {
    Piece piece;
    piece.before = number * piece_bytes;
    u32 rest = span.bytes - piece.before, bytes = rest < piece_bytes ? rest : piece_bytes;
    piece.begin = data + span.offset + piece.before;
    piece.end = piece.begin + bytes;
    piece.after = rest - bytes;
    return piece;
}

/// The share of a piece in the remainder of its span, by a whole warp: right in lane 0. The first four bytes of the span are
/// inverted here, which is what starting from all ones means; `crc_finish` does it for spans of fewer.
CUZARR_DEVICE u32 crc_of_piece(
    const u32* tables, const CrcField& field, u32 lane_factor, const Piece& piece, u32 lane
) {
    const u8* base = aligned_down(piece.begin);
    u32 steps = ((u32)(piece.end - base) + CUZARR_CHECKSUM_STEP - 1) / CUZARR_CHECKSUM_STEP;
    u32 a = 0, b = 0, c = 0, d = 0;
    for (u32 step = 0; step < steps; ++step) {
        const u8* at = base + step * CUZARR_CHECKSUM_STEP + lane * 16;
        uint4 words = load_inside(at, piece.begin, piece.end);
        if (piece.before == 0 && at < piece.begin + 4 && at + 16 > piece.begin) {
            u32 inverted[4] = {0, 0, 0, 0};
            for (u32 k = 0; k < 16; ++k) {
                const u8* byte = at + k;
                if (byte >= piece.begin && byte < piece.begin + 4 && byte < piece.end) inverted[k / 4] |= 255u << 8 * (k % 4);
            }
            words.x ^= inverted[0], words.y ^= inverted[1], words.z ^= inverted[2], words.w ^= inverted[3];
        }
        a = crc_step(tables, a, words.x), b = crc_step(tables, b, words.y);
        c = crc_step(tables, c, words.z), d = crc_step(tables, d, words.w);
    }
    a = crc_next_word(crc_next_word(crc_next_word(a, b, field.polynomial), c, field.polynomial), d, field.polynomial);
    u32 remainder = crc_multiply(a, lane_factor, field.polynomial);
    for (u32 mask = 16; mask; mask /= 2) remainder ^= warp_shuffle_xor(CUZARR_ALL_LANES, remainder, mask);
    // Zeros were read behind the end, to a whole step: the power may be negative, and x has a period.
    i64 padding = (i64)steps * CUZARR_CHECKSUM_STEP - (piece.end - base);
    i64 exponent = (8ll * piece.after + 32 - 8 * padding) % (i64)field.period;
    if (exponent < 0) exponent += field.period;
    return crc_multiply(remainder, crc_power(field, (u32)exponent, lane), field.polynomial);
}

/// The CRC of a span of `bytes` bytes from what its pieces came to.
CUZARR_DEVICE u32 crc_finish(u32 remainder, u32 bytes) {
    if (bytes < 4) remainder ^= 0xffffffffu >> 8 * bytes;
    return ~remainder;
}

#define CUZARR_ADLER_MODULUS 65521u
#define CUZARR_FLETCHER_MODULUS 65535u

CUZARR_DEVICE u64 warp_sum(u64 value) {
    for (u32 mask = 16; mask; mask /= 2) value += warp_shuffle_xor(CUZARR_ALL_LANES, value, mask);
    return value;
}

/// The share of a piece in the sums of its span: the sum of its values, and the sum, modulo, of each value times how many of
/// the span's values begin with it or behind it. Values are bytes (Adler-32) or big-endian words (Fletcher-32).
///
///     lane: for each of its 16 bytes: sum += values, inside += values * (how many of the 16 begin behind), before += sum
///     sum over all steps of value * (values behind its step) is (values of a step) * before
CUZARR_DEVICE ChecksumSums sums_of_piece(const Piece& piece, bool words, u32 lane) {
    const u8* base = aligned_down(piece.begin);
    u32 steps = ((u32)(piece.end - base) + CUZARR_CHECKSUM_STEP - 1) / CUZARR_CHECKSUM_STEP;
    // Place of the lane's first byte in the span; negative where bytes before the span are read as zero.
    i64 first = (i64)piece.before - (piece.begin - base) + lane * 16;
    u32 odd = (u32)first & 1;
    // Bytes at even places are the upper halves of words.
    u32 upper = odd ? 0x01000100u : 0x00010001u;
    u64 sum = 0, inside = 0, before = 0;
    for (u32 step = 0; step < steps; ++step) {
        uint4 four = load_inside(base + step * CUZARR_CHECKSUM_STEP + lane * 16, piece.begin, piece.end);
        u32 word[4] = {four.x, four.y, four.z, four.w}, values = 0, weighted = 0;
        before += sum;
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            if (words) {
                // Byte j belongs to value (j + odd) / 2 of the lane's.
                u32 places = odd ? 0x02010100u : 0x01010000u, high = word[k] & upper * 255u, low = word[k] & ~(upper * 255u);
                u32 plain = dot_bytes(high, 0x01010101u, 0) * 256 + dot_bytes(low, 0x01010101u, 0);
                values += plain;
                weighted += dot_bytes(high, places, 0) * 256 + dot_bytes(low, places, 0) + plain * 2 * k;
            } else {
                u32 plain = dot_bytes(word[k], 0x01010101u, 0);
                values += plain;
                weighted += dot_bytes(word[k], 0x03020100u, 0) + plain * 4 * k;
            }
        }
        sum += values, inside += weighted;
    }
    u64 modulus = words ? CUZARR_FLETCHER_MODULUS : CUZARR_ADLER_MODULUS;
    // How many values begin at or behind the lane's first one in its last step.
    i64 span = (i64)piece.before + (piece.end - piece.begin) + piece.after;
    i64 last = first + (i64)(steps ? steps - 1 : 0) * CUZARR_CHECKSUM_STEP;
    i64 behind = words ? (span + 1) / 2 - (last - (i64)odd) / 2 : span - last;
    u64 step_values = words ? CUZARR_CHECKSUM_STEP / 2 : CUZARR_CHECKSUM_STEP;
    i64 weight = behind % (i64)modulus;
    if (weight < 0) weight += (i64)modulus;
    u64 second = (before % modulus * step_values + sum % modulus * (u64)weight) % modulus + modulus - inside % modulus;
    ChecksumSums sums = {warp_sum(sum), warp_sum(second % modulus) % modulus};
    return sums;
}

/// The checksum from the sums of a span of `bytes` bytes.
CUZARR_DEVICE u32 sums_finish(const ChecksumSums& sums, u32 bytes, bool words) {
    if (!words) {
        u64 first = (1 + sums.first) % CUZARR_ADLER_MODULUS, second = (bytes + sums.second) % CUZARR_ADLER_MODULUS;
        return (u32)(second << 16 | first);
    }
    // HDF5 folds sums of 16 bits: what is not zero never becomes zero, but 65535.
    if (sums.first == 0) return 0;
    u32 first = (u32)(sums.first % CUZARR_FLETCHER_MODULUS), second = (u32)(sums.second % CUZARR_FLETCHER_MODULUS);
    return (second ? second : CUZARR_FLETCHER_MODULUS) << 16 | (first ? first : CUZARR_FLETCHER_MODULUS);
}
