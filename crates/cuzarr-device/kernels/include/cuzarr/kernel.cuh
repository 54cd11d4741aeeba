// The dialect all kernels are written in: integer types, qualifiers, indices, and the primitives of a warp and a block.
//
// All .cu files are compiled in three ways: by NVRTC (which has no standard headers, so none is included), by nvcc, and by
// the system's C++ compiler for `simt`, where a thread is a fiber and these names mean functions of kernels/simt.
// Blocks and grids have one dimension.
#pragma once

#ifdef CUZARR_SIMT
#include "simt.h"
#else

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

#define CUZARR_DEVICE __device__ __forceinline__
/// A kernel that the host finds by this name; at most 256 threads a block.
#define CUZARR_KERNEL(name, ...) extern "C" __global__ void __launch_bounds__(256) name(__VA_ARGS__)
/// A kernel of at most 1024 threads a block.
#define CUZARR_WIDE_KERNEL(name, ...) extern "C" __global__ void __launch_bounds__(1024) name(__VA_ARGS__)
/// A kernel of at most `threads` a block; a multiprocessor should hold `blocks` of them at a time.
#define CUZARR_KERNEL_SIZED(threads, blocks, name, ...) extern "C" __global__ void __launch_bounds__(threads, blocks) name(__VA_ARGS__)
/// A table that never changes, `CUZARR_CONSTANT(u32, PRIMES, 3) = {2, 3, 5};` outside functions.
#define CUZARR_CONSTANT(type, name, count) __constant__ type name[count]
/// An array in the block's shared memory, which may be read and written 16 bytes at a time.
#define CUZARR_SHARED(type, name, count) __shared__ __align__(16) type name[count]
/// The one array whose room the launch asks for: `Kernel::with_shared`. It may have more than 48 KiB.
#define CUZARR_SHARED_ASKED(type, name, count)            \
    extern __shared__ __align__(16) u8 name##_asked_for[]; \
    type* name = (type*)name##_asked_for

CUZARR_DEVICE u32 thread_index() { return threadIdx.x; }
CUZARR_DEVICE u32 thread_count() { return blockDim.x; }
CUZARR_DEVICE u32 block_index() { return blockIdx.x; }
CUZARR_DEVICE u32 block_count() { return gridDim.x; }

/// All threads of the block arrive, then all go on.
CUZARR_DEVICE void block_barrier() { __syncthreads(); }

CUZARR_DEVICE void warp_barrier(u32 lanes) { __syncwarp(lanes); }
CUZARR_DEVICE u32 warp_ballot(u32 lanes, bool vote) { return __ballot_sync(lanes, vote); }
/// Whether a lane goes on with a loop that all lanes are in: on a GPU they go on together until none has anything left, so
/// that their ways stay one. A lane whose answer is no has to do nothing in the loop, so leaving it alone is as good.
CUZARR_DEVICE bool warp_goes_on(bool own) { return __any_sync(0xffffffffu, own); }
/// The lanes that have the same value.
CUZARR_DEVICE u32 warp_match(u32 lanes, u32 value) { return __match_any_sync(lanes, value); }
template <class T>
CUZARR_DEVICE T warp_shuffle(u32 lanes, T value, u32 from) { return __shfl_sync(lanes, value, from); }
template <class T>
CUZARR_DEVICE T warp_shuffle_up(u32 lanes, T value, u32 by) { return __shfl_up_sync(lanes, value, by); }
template <class T>
CUZARR_DEVICE T warp_shuffle_down(u32 lanes, T value, u32 by) { return __shfl_down_sync(lanes, value, by); }
template <class T>
CUZARR_DEVICE T warp_shuffle_xor(u32 lanes, T value, u32 mask) { return __shfl_xor_sync(lanes, value, mask); }

CUZARR_DEVICE u32 atomic_add(u32* address, u32 value) { return atomicAdd(address, value); }
CUZARR_DEVICE u64 atomic_add(u64* address, u64 value) { return atomicAdd(address, value); }
CUZARR_DEVICE u32 atomic_or(u32* address, u32 value) { return atomicOr(address, value); }
CUZARR_DEVICE u32 atomic_xor(u32* address, u32 value) { return atomicXor(address, value); }
CUZARR_DEVICE u32 atomic_min(u32* address, u32 value) { return atomicMin(address, value); }
CUZARR_DEVICE u32 atomic_max(u32* address, u32 value) { return atomicMax(address, value); }
CUZARR_DEVICE u64 atomic_max(u64* address, u64 value) { return atomicMax(address, value); }
CUZARR_DEVICE u32 atomic_compare_exchange(u32* address, u32 expected, u32 value) {
    return atomicCAS(address, expected, value);
}
/// Sets and clears bits of one byte that other threads change too. Touches the aligned word around it, which our
/// allocations hold whole.
CUZARR_DEVICE void atomic_set_bits(u8* address, u8 set, u8 clear) {
    u64 place = (u64)address;
    u32* word = (u32*)(place & ~3ull);
    u32 shift = (u32)(place & 3) * 8;
    if (clear) atomicAnd(word, ~((u32)clear << shift));
    if (set) atomicOr(word, (u32)set << shift);
}
/// A load that other blocks' stores are visible to, for flags that are waited for.
CUZARR_DEVICE u32 volatile_load(const u32* address) { return *(const volatile u32*)address; }
CUZARR_DEVICE void volatile_store(u32* address, u32 value) { *(volatile u32*)address = value; }
/// Stores before it are seen by other blocks before stores after it.
CUZARR_DEVICE void device_fence() { __threadfence(); }
/// Stores before it are seen by other threads of the block before stores after it, in shared memory too.
CUZARR_DEVICE void block_fence() { __threadfence_block(); }
/// Loads of what other blocks stored while this one ran, behind a flag: they pass by this multiprocessor's own cache.
CUZARR_DEVICE u8 load_new(const u8* address) { return __ldcg(address); }
CUZARR_DEVICE u32 load_new(const u32* address) { return __ldcg(address); }
/// In a loop that waits for another thread: lets it run.
CUZARR_DEVICE void spin_yield() {}

CUZARR_DEVICE u32 multiply_high(u32 a, u32 b) { return __umulhi(a, b); }
CUZARR_DEVICE u64 multiply_high(u64 a, u64 b) { return __umul64hi(a, b); }
CUZARR_DEVICE u32 count_leading_zeros(u32 value) { return (u32)__clz((int)value); }
CUZARR_DEVICE u32 count_leading_zeros(u64 value) { return (u32)__clzll((long long)value); }
CUZARR_DEVICE u32 count_trailing_zeros(u32 value) { return (u32)__clz((int)__brev(value)); }
CUZARR_DEVICE u32 reverse_bits(u32 value) { return __brev(value); }
CUZARR_DEVICE u32 count_ones(u32 value) { return (u32)__popc(value); }
/// `sum` plus the products of the four bytes of `a` with those of `b`.
CUZARR_DEVICE u32 dot_bytes(u32 a, u32 b, u32 sum) { return __dp4a(a, b, sum); }
/// The 32 bits of `high:low` from bit `by` on, of which the lowest five bits count.
CUZARR_DEVICE u32 funnel_shift_right(u32 low, u32 high, u32 by) { return __funnelshift_r(low, high, by); }
/// The upper 32 bits of `high:low` moved up by `by`, of which the lowest five bits count.
CUZARR_DEVICE u32 funnel_shift_left(u32 low, u32 high, u32 by) { return __funnelshift_l(low, high, by); }
/// The lowest bits of `value`, as many as the lowest five bits of `count` say.
CUZARR_DEVICE u32 low_bits(u32 value, u32 count) {
    u32 low;
    asm("szext.wrap.u32 %0, %1, %2;" : "=r"(low) : "r"(value), "r"(count));
    return low;
}
/// `value` moved down by up to 64 bits: a shift of C++ must be smaller.
CUZARR_DEVICE u64 shift_right(u64 value, u32 by) {
    u64 shifted;
    asm("shr.b64 %0, %1, %2;" : "=l"(shifted) : "l"(value), "r"(by));
    return shifted;
}
/// `value` moved up, likewise.
CUZARR_DEVICE u64 shift_left(u64 value, u32 by) {
    u64 shifted;
    asm("shl.b64 %0, %1, %2;" : "=l"(shifted) : "l"(value), "r"(by));
    return shifted;
}
/// Asks for what lies there to come nearer.
CUZARR_DEVICE void prefetch(const void* address) { asm volatile("prefetch.global.L1 [%0];" ::"l"(address)); }
/// Where something lies in shared memory, held in a register of its lane: the compiler does not know where it comes from, and
/// so cannot compute it again and again inside of loops. All lanes call.
typedef u32 SharedPlace;
CUZARR_DEVICE SharedPlace shared_place(const void* pointer) {
    u32 place = (u32)__cvta_generic_to_shared(pointer);
    return __shfl_sync(0xffffffffu, place, threadIdx.x & 31);
}
template <u32 OFFSET>
CUZARR_DEVICE u32 load_shared_u32(SharedPlace place, u32 bytes) {
    u32 value;
    asm volatile("ld.shared.u32 %0, [%1+%2];" : "=r"(value) : "r"(place + bytes), "n"(OFFSET));
    return value;
}
template <u32 OFFSET>
CUZARR_DEVICE void store_shared_u32(SharedPlace place, u32 bytes, u32 value) {
    asm volatile("st.shared.u32 [%0+%2], %1;" ::"r"(place + bytes), "r"(value), "n"(OFFSET) : "memory");
}
CUZARR_DEVICE void store_shared_u64(SharedPlace place, u32 bytes, u64 value) {
    asm volatile("st.shared.u64 [%0], %1;" ::"r"(place + bytes), "l"(value) : "memory");
}
CUZARR_DEVICE u64 load_shared_u64(SharedPlace place, u32 bytes) {
    u64 value;
    asm volatile("ld.shared.u64 %0, [%1];" : "=l"(value) : "r"(place + bytes));
    return value;
}
CUZARR_DEVICE u32 load_shared_u16(SharedPlace place, u32 bytes) {
    u16 value;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(place + bytes));
    return value;
}
/// Any four of the eight bytes of `high:low`, chosen by four nibbles.
CUZARR_DEVICE u32 permute_bytes(u32 low, u32 high, u32 selector) { return __byte_perm(low, high, selector); }
CUZARR_DEVICE float round_half_even(float x) { return rintf(x); }
CUZARR_DEVICE double round_half_even(double x) { return rint(x); }
CUZARR_DEVICE u32 bits_of(float x) { return __float_as_uint(x); }
CUZARR_DEVICE u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
CUZARR_DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
CUZARR_DEVICE double double_of(u64 bits) { return __longlong_as_double((long long)bits); }

#endif

/// Threads in a warp.
#define CUZARR_WARP 32u
/// Every lane of a warp.
#define CUZARR_ALL_LANES 0xffffffffu

/// The 64 bits of `high:middle:low` from bit `by` on, of which the lowest five bits count.
CUZARR_DEVICE u64 funnel_shift_right(u32 low, u32 middle, u32 high, u32 by) {
    return (u64)funnel_shift_right(middle, high, by) << 32 | funnel_shift_right(low, middle, by);
}

/// A little-endian number from any address.
CUZARR_DEVICE u32 load_u32(const u8* from) {
    return (u32)from[0] | (u32)from[1] << 8 | (u32)from[2] << 16 | (u32)from[3] << 24;
}
