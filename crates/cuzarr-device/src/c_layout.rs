//! Checks, when the crate is compiled, that structures lie in memory as C and CUDA C++ lay them out.

/// A type whose bytes may be copied to a device as they are.
///
/// # Safety
/// The type has no padding and no pointers. [`c_layout`] implements it, and checks that the fields fill the type.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: one byte, of which every value is allowed.
unsafe impl Plain for u8 {}

/// How many bytes a field has.
pub(crate) const fn field_bytes<T, F>(_field: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// States the size of a `repr(C)` structure and where its fields begin, as the source named beside it has them. With `plain`,
/// the structure is also [`Plain`]: the fields must fill it without a gap.
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
