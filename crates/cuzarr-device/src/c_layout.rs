//! Compile-time checks that structures have the memory layout of C and CUDA C++.

/// A type whose bytes may be copied to a device directly.
///
/// # Safety
/// The type has no padding and no pointers. [`c_layout`] implements it, and checks that the fields fill the type.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: one byte, and every value of it is allowed.
unsafe impl Plain for u8 {}

/// Size of a field in bytes.
pub(crate) const fn field_bytes<T, F>(_field: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Checks the size of a `repr(C)` structure and the offsets of its fields against the given numbers, which are those of
/// the C source. With `plain`, the structure is also [`Plain`]: the fields must fill it without a gap.
macro_rules! c_layout {
    (plain $type:ty: $size:literal bytes { $($field:ident at $offset:literal),* $(,)? }) => {
        $crate::c_layout::c_layout!($type: $size bytes { $($field at $offset),* });
        const _: () = assert!(
            0 $(+ $crate::c_layout::field_bytes(|value: &$type| &value.$field))* == $size,
            "a gap between fields, or a field that is not named"
        );
        // SAFETY: plain numbers that fill the structure, as was just checked.
        unsafe impl $crate::c_layout::Plain for $type {}
    };
    ($type:ty: $size:literal bytes { $($field:ident at $offset:literal),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(std::mem::offset_of!($type, $field) == $offset);)*
        };
    };
}
pub(crate) use c_layout;
