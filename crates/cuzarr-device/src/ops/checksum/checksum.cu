// Checksums of many spans of device memory, and comparison with stored ones.
//
// checksum_crc, checksum_sums: for each piece of a span, compute what it adds to the span's sums, and add it atomically
// (XOR, and sums modulo a number, do not depend on the order). checksum_finish: for each span, compute the checksum,
// and write it out or compare it with the four stored bytes.
//
// Floor: the bytes / 3.3 TB/s on an H100. A CRC looks up a table for each byte: 32 lanes use 32 banks, and about 3.5
// lanes hit the same bank, so 132 multiprocessors x 32 / 3.5 x 1.7 GHz = 2 TB/s at best.
#include "cuzarr/checksum.cuh"

static_assert(sizeof(ChecksumSpan) == 32 && sizeof(ChecksumTable) == 32 && sizeof(CrcField) == 136, "as cuda.rs and mod.rs have them");

CUZARR_KERNEL(checksum_crc, const u8* data, const ChecksumTable* table, ChecksumSums* sums, CrcField field) {
    CUZARR_SHARED(u32, tables, CUZARR_CRC_TABLE_WORDS);
    crc_fill_tables(field, tables);
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    u32 lane_factor = crc_lane_factor(field, lane);
    u32 step = block_count() * warps;
    for (u32 piece = block_index() * warps + thread_index() / CUZARR_WARP; piece < table->pieces; piece += step) {
        u32 index;
        const ChecksumSpan& span = span_of_piece(table, piece, index);
        Piece bytes = piece_of(data, span, piece - span.first_piece, table->piece_bytes);
        u32 remainder = crc_of_piece(tables, field, lane_factor, bytes, lane);
        if (lane == 0) atomic_xor((u32*)&sums[index].first, remainder);
    }
}

CUZARR_KERNEL(checksum_sums, const u8* data, const ChecksumTable* table, ChecksumSums* sums, u32 kind) {
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    u32 step = block_count() * warps;
    for (u32 piece = block_index() * warps + thread_index() / CUZARR_WARP; piece < table->pieces; piece += step) {
        u32 index;
        const ChecksumSpan& span = span_of_piece(table, piece, index);
        Piece bytes = piece_of(data, span, piece - span.first_piece, table->piece_bytes);
        ChecksumSums added = kind == CUZARR_FLETCHER32 ? sums_of_piece(bytes, true, lane) : sums_of_piece(bytes, false, lane);
        if (lane == 0) {
            atomic_add(&sums[index].first, added.first);
            atomic_add(&sums[index].second, added.second);
        }
    }
}

CUZARR_KERNEL(
    checksum_finish, const ChecksumTable* table, const ChecksumSums* sums, u32 kind, const u8* stored, u32 big_endian,
    u64* statuses, u32* values
) {
    u32 step = block_count() * thread_count();
    for (u32 index = block_index() * thread_count() + thread_index(); index < table->spans; index += step) {
        const ChecksumSpan& span = spans_of(table)[index];
        u32 value = kind == CUZARR_CRC32C || kind == CUZARR_CRC32
                        ? crc_finish((u32)sums[index].first, span.bytes)
                        : sums_finish(sums[index], span.bytes, kind == CUZARR_FLETCHER32);
        if (values) values[index] = value;
        if (!stored) continue;
        u32 expected = load_u32(stored + span.stored_offset);
        if (big_endian) expected = permute_bytes(expected, 0, 0x0123);
        if (value != expected) report(statuses, span.unit, CUZARR_WRONG_CHECKSUM, span.at);
    }
}

/// Checks headers of one byte: the byte at `stored_offset` of each span must be `expected`.
CUZARR_KERNEL(checksum_expect_byte, const u8* data, const ChecksumTable* table, u32 expected, u64* statuses) {
    u32 step = block_count() * thread_count();
    for (u32 index = block_index() * thread_count() + thread_index(); index < table->spans; index += step) {
        const ChecksumSpan& span = spans_of(table)[index];
        if (data[span.stored_offset] != expected) report(statuses, span.unit, CUZARR_BAD_HEADER, span.at);
    }
}
