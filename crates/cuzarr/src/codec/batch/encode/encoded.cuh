// The places of the frames that an encoder made: `Launched::frames` in crates/cuzarr/src/codec/device.rs.
#pragma once
#include "codec/batch/frames.cuh"

/// Frames begin at multiples of this.
#define CUZARR_FRAME_ALIGNMENT 16u
/// Bytes of an entry.
#define CUZARR_FRAME_ENTRY_BYTES 16u

/// The frame of a chunk.
struct EncodedFrame {
    u64 at;
    u32 size;      // 0: nothing but the fill value
    u32 is_copied; // stored as it is
};

static_assert(sizeof(EncodedFrame) == CUZARR_FRAME_ENTRY_BYTES, "as the host reads it");
