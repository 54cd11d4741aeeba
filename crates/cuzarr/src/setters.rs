//! Methods that set one field of an options struct.

/// Makes setter methods for an options struct, one from each line. A method sets the field of that name.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($($with:ident($field:ident: $type:ty) = $value:expr;)*) => {
        $(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
            #[must_use]
            pub fn $with(mut self, $field: $type) -> Self {
                self.$field = $value;
                self
            }
        )*
    };
}
