// Keys: integers in the order of the elements. Both zeros have the same key; NaN has none. `count/key.rs` makes the
// same keys on the CPU, and uses the same numbers for the kinds.
#pragma once
#include "cuzarr/kernel.cuh"

namespace keys {

enum Kind { UNSIGNED, SIGNED, FLOAT };

/// How elements become keys with the same number of bits.
struct Keys {
    u64 infinity;  // the bits of infinity, where there is one
    u32 kind;
    u32 bits;
};

/// Computes the key of an element's bits; returns false for NaN.
CUZARR_DEVICE bool key_of(const Keys& keys, u64 raw, u64* key) {
    u64 sign = 1ull << (keys.bits - 1), size = raw & ~sign;
    if (keys.kind == UNSIGNED) {
        *key = raw;
    } else if (keys.kind == SIGNED) {
        *key = raw ^ sign;
    } else {
        if (size > keys.infinity) return false;
        *key = size == 0 ? sign : (raw & sign) ? raw ^ (sign | (sign - 1)) : raw | sign;
    }
    return true;
}

/// Like `key_of`, in integers of the element's own width.
template <class Raw> CUZARR_DEVICE bool narrow_key_of(const Keys& keys, Raw raw, Raw* key) {
    const Raw sign = (Raw)((Raw)1 << (8 * sizeof(Raw) - 1)), size = (Raw)(raw & ~sign);
    if (keys.kind == UNSIGNED) {
        *key = raw;
    } else if (keys.kind == SIGNED) {
        *key = (Raw)(raw ^ sign);
    } else {
        if (size > (Raw)keys.infinity) return false;
        *key = size == 0 ? sign : (raw & sign) ? (Raw)~raw : (Raw)(raw | sign);
    }
    return true;
}

/// Returns the bits of the element with this key.
CUZARR_DEVICE u64 raw_of(const Keys& keys, u64 key) {
    u64 sign = 1ull << (keys.bits - 1);
    if (keys.kind == UNSIGNED) return key;
    if (keys.kind == SIGNED || (key & sign)) return key ^ sign;
    return key ^ (sign | (sign - 1));
}

}  // namespace keys
