// The kernels' dialect on a CPU: every thread of a block is a fiber, and the names of cuzarr/kernel.cuh mean what they mean
// on a GPU. For tests; runtime.cpp explains how it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

struct alignas(16) uint4 {
    u32 x, y, z, w;
};

// Kernels that are compiled while a test runs are in libraries of their own, and find these names here.
#pragma GCC visibility push(default)
namespace simt {

/// Where a thread is in its launch.
struct Place {
    u32 thread, threads, block, blocks;
};
/// That of the fiber that runs on this host thread.
extern __thread const Place* running __attribute__((tls_model("initial-exec")));
void barrier();
void yield();
/// Memory that the threads of a block share, one piece a key; filled with a pattern when first asked for.
void* shared(const void* key, size_t bytes);

enum class WarpOperation { Barrier, Ballot, Match, Shuffle };
/// Waits until every lane of `lanes` is at the same operation. Gives the lanes that brought a value other than 0 (`Ballot`), or the
/// same value (`Match`), or what lane `from` brought, 0 if it takes no part (`Shuffle`).
u64 exchange(WarpOperation operation, u32 lanes, u64 value, u32 from);
inline u32 lane() { return running->thread % 32; }

/// A kernel under its name, called with pointers to its arguments. `sizes` are the bytes of its `count` parameters.
typedef void (*Invoker)(void* function, void** arguments);
void register_kernel(const char* name, void* function, Invoker invoker, const size_t* sizes, size_t count);
}  // namespace simt
#pragma GCC visibility pop

namespace simt {

template <class... Parameters, size_t... Indexes>
void invoke_with(void (*function)(Parameters...), void** arguments, std::integer_sequence<size_t, Indexes...>) {
    function(*static_cast<std::remove_reference_t<Parameters>*>(arguments[Indexes])...);
}

struct Registration {
    template <class... Parameters>
    Registration(const char* name, void (*function)(Parameters...)) {
        static const size_t sizes[] = {sizeof(Parameters)..., 0};
        Invoker invoker = [](void* address, void** arguments) {
            auto typed = reinterpret_cast<void (*)(Parameters...)>(address);
            invoke_with(typed, arguments, std::index_sequence_for<Parameters...>());
        };
        register_kernel(name, reinterpret_cast<void*>(function), invoker, sizes, sizeof...(Parameters));
    }
};

template <class T>
u64 to_bits(T value) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    u64 bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
}

template <class T>
T from_bits(u64 bits) {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

}  // namespace simt

#define CUZARR_DEVICE inline
#define CUZARR_KERNEL(name, ...)                                                                                        \
    static void name(__VA_ARGS__);                                                                                      \
    static const simt::Registration cuzarr_registration_##name(#name, name);                                            \
    static void name(__VA_ARGS__)
#define CUZARR_WIDE_KERNEL(name, ...) CUZARR_KERNEL(name, __VA_ARGS__)
#define CUZARR_KERNEL_SIZED(threads, blocks, name, ...) CUZARR_KERNEL(name, __VA_ARGS__)
#define CUZARR_CONSTANT(type, name, count) static const type name[count]
#define CUZARR_SHARED(type, name, count)                                                                                \
    static const char cuzarr_key_##name = 0;                                                                            \
    type* name = static_cast<type*>(simt::shared(&cuzarr_key_##name, sizeof(type) * (count)))

#define CUZARR_SHARED_ASKED(type, name, count) CUZARR_SHARED(type, name, count)

inline u32 thread_index() { return simt::running->thread; }
inline u32 thread_count() { return simt::running->threads; }
inline u32 block_index() { return simt::running->block; }
inline u32 block_count() { return simt::running->blocks; }
inline void block_barrier() { simt::barrier(); }
inline void spin_yield() { simt::yield(); }

inline void warp_barrier(u32 lanes) { simt::exchange(simt::WarpOperation::Barrier, lanes, 0, 0); }
inline u32 warp_ballot(u32 lanes, bool vote) {
    return static_cast<u32>(simt::exchange(simt::WarpOperation::Ballot, lanes, vote, 0));
}
inline bool warp_goes_on(bool own) { return own; }
inline u32 warp_match(u32 lanes, u32 value) {
    return static_cast<u32>(simt::exchange(simt::WarpOperation::Match, lanes, value, 0));
}
template <class T>
T warp_shuffle(u32 lanes, T value, u32 from) {
    return simt::from_bits<T>(simt::exchange(simt::WarpOperation::Shuffle, lanes, simt::to_bits(value), from & 31));
}
template <class T>
T warp_shuffle_up(u32 lanes, T value, u32 by) {
    u32 own = simt::lane();
    return warp_shuffle(lanes, value, own >= by ? own - by : own);
}
template <class T>
T warp_shuffle_down(u32 lanes, T value, u32 by) {
    u32 own = simt::lane();
    return warp_shuffle(lanes, value, own + by < 32 ? own + by : own);
}
template <class T>
T warp_shuffle_xor(u32 lanes, T value, u32 mask) {
    return warp_shuffle(lanes, value, (simt::lane() ^ mask) & 31);
}

// Several host threads may run launches at once, as several streams do.
inline u32 atomic_add(u32* address, u32 value) { return __atomic_fetch_add(address, value, __ATOMIC_RELAXED); }
inline u64 atomic_add(u64* address, u64 value) { return __atomic_fetch_add(address, value, __ATOMIC_RELAXED); }
inline u32 atomic_or(u32* address, u32 value) { return __atomic_fetch_or(address, value, __ATOMIC_RELAXED); }
inline u32 atomic_xor(u32* address, u32 value) { return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED); }
inline u32 atomic_min(u32* address, u32 value) {
    u32 seen = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (seen > value && !__atomic_compare_exchange_n(address, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return seen;
}
template <class T>
T atomic_max(T* address, T value) {
    T seen = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(address, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return seen;
}
inline u32 atomic_compare_exchange(u32* address, u32 expected, u32 value) {
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return expected;
}
inline void atomic_set_bits(u8* address, u8 set, u8 clear) {
    if (clear) __atomic_fetch_and(address, static_cast<u8>(~clear), __ATOMIC_RELAXED);
    if (set) __atomic_fetch_or(address, set, __ATOMIC_RELAXED);
}
inline u32 volatile_load(const u32* address) { return __atomic_load_n(address, __ATOMIC_ACQUIRE); }
inline void volatile_store(u32* address, u32 value) { __atomic_store_n(address, value, __ATOMIC_RELEASE); }
template <class T>
T load_new(const T* address) {
    return __atomic_load_n(address, __ATOMIC_RELAXED);
}
inline void block_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void device_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

inline u32 multiply_high(u32 a, u32 b) { return static_cast<u32>(static_cast<u64>(a) * b >> 32); }
inline u64 multiply_high(u64 a, u64 b) {
    return static_cast<u64>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline u32 count_leading_zeros(u32 value) { return value ? static_cast<u32>(__builtin_clz(value)) : 32; }
inline u32 count_leading_zeros(u64 value) { return value ? static_cast<u32>(__builtin_clzll(value)) : 64; }
inline u32 count_trailing_zeros(u32 value) { return value ? static_cast<u32>(__builtin_ctz(value)) : 32; }
inline u32 reverse_bits(u32 value) {
    u32 reversed = 0;
    for (u32 i = 0; i < 32; ++i) reversed |= (value >> i & 1) << (31 - i);
    return reversed;
}
inline u32 count_ones(u32 value) { return static_cast<u32>(__builtin_popcount(value)); }
inline u32 dot_bytes(u32 a, u32 b, u32 sum) {
    for (u32 i = 0; i < 32; i += 8) sum += (a >> i & 255) * (b >> i & 255);
    return sum;
}
inline u32 funnel_shift_right(u32 low, u32 high, u32 by) {
    return static_cast<u32>((static_cast<u64>(high) << 32 | low) >> (by & 31));
}
inline u32 funnel_shift_left(u32 low, u32 high, u32 by) {
    return static_cast<u32>((static_cast<u64>(high) << 32 | low) << (by & 31) >> 32);
}
inline u32 low_bits(u32 value, u32 count) { return value & ((1u << (count & 31)) - 1); }
inline u64 shift_right(u64 value, u32 by) { return by < 64 ? value >> by : 0; }
inline u64 shift_left(u64 value, u32 by) { return by < 64 ? value << by : 0; }
inline void prefetch(const void*) {}
typedef const char* SharedPlace;
inline SharedPlace shared_place(const void* pointer) { return static_cast<SharedPlace>(pointer); }
template <u32 OFFSET>
u32 load_shared_u32(SharedPlace place, u32 bytes) {
    return *reinterpret_cast<const u32*>(place + OFFSET + bytes);
}
template <u32 OFFSET>
void store_shared_u32(SharedPlace place, u32 bytes, u32 value) {
    *reinterpret_cast<u32*>(const_cast<char*>(place) + OFFSET + bytes) = value;
}
inline void store_shared_u64(SharedPlace place, u32 bytes, u64 value) {
    *reinterpret_cast<u64*>(const_cast<char*>(place) + bytes) = value;
}
inline u64 load_shared_u64(SharedPlace place, u32 bytes) { return *reinterpret_cast<const u64*>(place + bytes); }
inline u32 load_shared_u16(SharedPlace place, u32 bytes) { return *reinterpret_cast<const u16*>(place + bytes); }
inline u32 permute_bytes(u32 low, u32 high, u32 selector) {
    u64 both = static_cast<u64>(high) << 32 | low;
    u32 result = 0;
    for (u32 i = 0; i < 4; ++i) result |= static_cast<u32>(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}
inline float round_half_even(float x) { return __builtin_rintf(x); }
inline double round_half_even(double x) { return __builtin_rint(x); }
inline u32 bits_of(float x) { return simt::from_bits<u32>(simt::to_bits(x)); }
inline u64 bits_of(double x) { return simt::to_bits(x); }
inline float float_of(u32 bits) { return simt::from_bits<float>(bits); }
inline double double_of(u64 bits) { return simt::from_bits<double>(bits); }
