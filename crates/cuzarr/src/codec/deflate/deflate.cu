// Decodes frames of raw deflate, zlib or gzip: one warp decodes a frame, member after member, and leaves the last
// checksum to deflate_check, which uses all warps for it.
//
// Floor on an H200: a symbol costs a lane three times (found, counted, written) about 60 cycles of waiting, 32 lanes a warp,
// about 20 warps a multiprocessor by shared memory.
#include "codec/deflate/split/deflate_split.cuh"

/// Returns the CRC of bytes that this warp wrote. Uses the shared memory of decoding for its tables.
CUZARR_DEVICE u32 deflate_crc(DeflateShared& shared, const CrcField& field, const u8* bytes, u32 count, u32 lane) {
    u32* tables = shared.literals;
    warp_barrier(CUZARR_ALL_LANES);
    crc_fill_tables(field, tables);
    Piece piece = {bytes, bytes + count, 0, 0};
    u32 remainder = crc_of_piece(tables, field, crc_lane_factor(field, lane), piece, lane);
    warp_barrier(CUZARR_ALL_LANES);
    return crc_finish(warp_shuffle(CUZARR_ALL_LANES, remainder, 0u), count);
}

CUZARR_DEVICE DeflatePlace deflate_frame(
    DeflateShared& shared, const CrcField& field, const u8* encoded, u32 size, u8* decoded, u32 decoded_size, u32 container,
    DeflateTrailer& trailer, u32 lane
) {
    DeflatePlace place = {0, CUZARR_OTHER_FORMAT};
    if (size >= CUZARR_DEFLATE_MOST_BYTES) return place;
    place.damage = 0;
    DeflateBytes target = {decoded, decoded_size};
    u32 at = 0;
    for (;;) {
        u32 floor = at;
        deflate_header(encoded, size, container, place, lane);
        if (place.damage) return place;
        DeflateInput input = deflate_input(encoded, size);
        DeflateProgress progress = {input.begin + place.at * 8, at, 0};
        bool last = false;
        while (!last && progress.damage == 0) {
            last = deflate_block(shared, input, target, floor, decoded_size, progress, lane);
        }
        at = progress.at;
        place.at = (progress.position - input.begin + (progress.damage ? 0 : 7)) / 8, place.damage = progress.damage;
        if (place.damage) return place;
        trailer = deflate_trailer(encoded, size, container, floor, at, place);
        if (place.damage) return place;
        u32 rest = place.at;
        if (container == CUZARR_DEFLATE_GZIP) rest = deflate_pass_zeros(encoded, size, rest, lane);
        else rest = size;
        if (rest == size) break;
        place.at = rest;
        if (deflate_crc(shared, field, decoded + floor, at - floor, lane) != trailer.expected) {
            place.at = trailer.at, place.damage = CUZARR_WRONG_CHECKSUM;
            return place;
        }
    }
    if (at != decoded_size) place.damage = CUZARR_TOO_SHORT;
    return place;
}

CUZARR_KERNEL(
    deflate_frames, const u8* src, u8* dst, const FrameTable* table, u32 count, u32 container, CrcField field,
    const DeflateState* states, DeflateTrailer* trailers, u64* statuses
) {
    CUZARR_SHARED(DeflateShared, shared, 1);
    u32 lane = thread_index();
    const Frame* frames = frames_of(table);
    for (u32 index = block_index(); index < count; index += block_count()) {
        // The frame was already decoded by many warps.
        if (states && states[index].split) continue;
        const Frame& frame = frames[index];
        DeflateTrailer trailer = {0, 0, 0, 0};
        DeflatePlace place = deflate_frame(*shared, field, src + frame.src_offset, frame.src_bytes, dst + frame.dst_offset,
                                           frame.dst_bytes, container, trailer, lane);
        if (place.damage) trailer.wanted = 0;
        if (lane == 0) {
            trailers[index] = trailer;
            // Lanes decode past a cut; the damage is then at the frame's end.
            if (place.damage) report(statuses, index, place.damage, min_of(place.at, frame.src_bytes));
        }
        warp_barrier(CUZARR_ALL_LANES);
    }
}

/// The members of a frame, as frames of another launch: 8 bytes.
struct DeflateMembers {
    u32 first, count;
};
static_assert(sizeof(DeflateMembers) == 8, "as cuda.rs writes them");

/// Marks frames whose members were all decoded as done. One warp takes each frame.
CUZARR_KERNEL(
    deflate_join, const DeflateMembers* members, u32 count, const u64* statuses, DeflateState* states, DeflateTrailer* trailers
) {
    u32 lane = thread_index();
    for (u32 index = block_index(); index < count; index += block_count()) {
        DeflateMembers own = members[index];
        bool intact = own.count > 0;
        for (u32 i = lane; i < own.count; i += CUZARR_WARP) intact = intact && statuses[own.first + i] == 0;
        bool all = warp_ballot(CUZARR_ALL_LANES, intact) == CUZARR_ALL_LANES;
        if (lane > 0 || !all) continue;
        states[index].split = 1;
        trailers[index] = {0, 0, 0, 0};
    }
}

/// Computes the share of each tile in the checksum of its frame.
CUZARR_KERNEL(
    deflate_check, const u8* dst, const FrameTable* table, u32 count, u32 tiles, u32 container, CrcField field,
    const DeflateTrailer* trailers, ChecksumSums* sums
) {
    CUZARR_SHARED(u32, tables, CUZARR_CRC_TABLE_WORDS);
    bool crc = container == CUZARR_DEFLATE_GZIP;
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP, lane_factor = 0;
    if (crc) {
        crc_fill_tables(field, tables);
        lane_factor = crc_lane_factor(field, lane);
    }
    const Frame* frames = frames_of(table);
    for (u32 tile = block_index() * warps + thread_index() / CUZARR_WARP; tile < tiles; tile += block_count() * warps) {
        u32 index = frame_of_tile(frames, count, tile);
        const Frame& frame = frames[index];
        DeflateTrailer trailer = trailers[index];
        u32 first = (tile - frame.first_tile) * CUZARR_DEFLATE_TILE;
        u32 last = min_of(first + CUZARR_DEFLATE_TILE, frame.dst_bytes);
        first = max_of(first, trailer.begin);
        if (!trailer.wanted || first >= last) continue;
        const u8* bytes = dst + frame.dst_offset;
        Piece piece = {bytes + first, bytes + last, first - trailer.begin, frame.dst_bytes - last};
        if (crc) {
            u32 remainder = crc_of_piece(tables, field, lane_factor, piece, lane);
            if (lane == 0) atomic_xor((u32*)&sums[index].first, remainder);
        } else {
            ChecksumSums added = sums_of_piece(piece, false, lane);
            if (lane == 0) atomic_add(&sums[index].first, added.first);
            if (lane == 0) atomic_add(&sums[index].second, added.second);
        }
    }
}

CUZARR_KERNEL(
    deflate_compare, const FrameTable* table, u32 count, u32 container, const DeflateTrailer* trailers,
    const ChecksumSums* sums, u64* statuses
) {
    const Frame* frames = frames_of(table);
    for (u32 index = block_index() * thread_count() + thread_index(); index < count; index += block_count() * thread_count()) {
        DeflateTrailer trailer = trailers[index];
        u32 bytes = frames[index].dst_bytes - trailer.begin;
        if (!trailer.wanted) continue;
        u32 value = container == CUZARR_DEFLATE_GZIP ? crc_finish((u32)sums[index].first, bytes)
                                                     : sums_finish(sums[index], bytes, false);
        if (value != trailer.expected) report(statuses, index, CUZARR_WRONG_CHECKSUM, trailer.at);
    }
}
