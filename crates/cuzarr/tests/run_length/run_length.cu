// Run lengths: pairs of a count and a byte. A thread a frame, in both directions.
//
//     decode: for each pair: write the byte `count` times, unless it leaves its place
//     encode: first the size of each frame, then (encoded.cu) where it lies, then its pairs
#include "codec/batch/encode/encoded.cuh"
#include "cuzarr/status.cuh"

/// Where a frame lies, and where its bytes go. `Ranges` in cuda.rs.
struct RunLengthRanges {
    u64 src, dst;
    u32 src_bytes, dst_bytes;
};

CUZARR_KERNEL(run_length_decode, const u8* src, u8* dst, const RunLengthRanges* frames, u32 count, u64* statuses) {
    u32 frame = block_index() * thread_count() + thread_index();
    if (frame >= count) return;
    const RunLengthRanges own = frames[frame];
    u32 to = 0;
    for (u32 at = 0; at < own.src_bytes; at += 2) {
        u32 run = src[own.src + at];
        if (run == 0) return report(statuses, frame, CUZARR_BAD_HEADER, at);
        if (own.src_bytes - at < 2) return report(statuses, frame, CUZARR_CUT_OFF, at);
        if (run > own.dst_bytes - to) return report(statuses, frame, CUZARR_TOO_LONG, at);
        for (u32 i = 0; i < run; ++i) dst[own.dst + to + i] = src[own.src + at + 1];
        to += run;
    }
    if (to < own.dst_bytes) report(statuses, frame, CUZARR_TOO_SHORT, own.src_bytes);
}

/// Calls `run(count, byte)` for each run.
template <class Run>
CUZARR_DEVICE void runs_of(const u8* chunk, u32 size, Run run) {
    for (u32 at = 0, length; at < size; at += length) {
        for (length = 1; length < 255 && at + length < size && chunk[at + length] == chunk[at];) length += 1;
        run(length, chunk[at]);
    }
}

CUZARR_KERNEL(run_length_sizes, const u8* src, u64 stride, u32 size, u32 count, const u32* wanted, EncodedFrame* frames) {
    u32 chunk = block_index() * thread_count() + thread_index();
    if (chunk >= count) return;
    EncodedFrame frame = {0, 0, 0};
    if (wanted[chunk]) runs_of(src + chunk * stride, size, [&](u32, u8) { frame.size += 2; });
    frames[chunk] = frame;
}

CUZARR_KERNEL(run_length_encode, const u8* src, u64 stride, u32 size, u32 count, const EncodedFrame* frames, u8* out) {
    u32 chunk = block_index() * thread_count() + thread_index();
    if (chunk >= count || frames[chunk].size == 0) return;
    u8* to = out + frames[chunk].at;
    runs_of(src + chunk * stride, size, [&](u32 length, u8 byte) {
        to[0] = (u8)length, to[1] = byte;
        to += 2;
    });
}
