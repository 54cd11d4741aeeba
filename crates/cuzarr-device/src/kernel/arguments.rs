//! Arguments of a kernel launch, and the check that they fit the kernel's parameters.

use std::ffi::c_void;

use crate::error::{Error, Result};

/// Refuses arguments whose number or sizes differ from the kernel's parameters, if the driver can tell the parameters.
pub(crate) fn check_arguments(kernel: &str, expected: Option<&[usize]>, got: &[usize]) -> Result<()> {
    let Some(expected) = expected else { return Ok(()) };
    if expected.len() != got.len() {
        let (got, expected) = (got.len(), expected.len());
        return Err(Error::invalid(format!("kernel '{kernel}': got {got} arguments, it has {expected} parameters")));
    }
    match expected.iter().zip(got).enumerate().find(|(_, (expected, got))| expected != got) {
        None => Ok(()),
        Some((at, (expected, got))) => {
            Err(Error::invalid(format!("kernel '{kernel}': argument {at} has {got} bytes, the parameter {expected}")))
        }
    }
}

/// The arguments of a kernel: a tuple of plain values (`repr(C)` structs, integers, floats, addresses as `usize`).
pub trait Arguments {
    /// The host address at which each argument's value lies.
    fn pointers(&mut self) -> Vec<*mut c_void>;

    /// The size of each argument's value in bytes.
    fn sizes(&self) -> Vec<usize>;
}

/// Kernel arguments whose types are known only at run time. Each value is given as its bytes.
impl Arguments for Vec<Vec<u8>> {
    fn pointers(&mut self) -> Vec<*mut c_void> {
        self.iter_mut().map(|value| value.as_mut_ptr().cast()).collect()
    }

    fn sizes(&self) -> Vec<usize> {
        self.iter().map(Vec::len).collect()
    }
}

macro_rules! arguments {
    ($($name:ident)*) => {
        impl<$($name: Copy),*> Arguments for ($($name,)*) {
            fn pointers(&mut self) -> Vec<*mut c_void> {
                #[allow(non_snake_case)]
                let ($($name,)*) = self;
                vec![$(std::ptr::from_mut($name).cast()),*]
            }

            fn sizes(&self) -> Vec<usize> {
                vec![$(size_of::<$name>()),*]
            }
        }
    };
}

arguments!(A);
arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);
arguments!(A B C D E F);
arguments!(A B C D E F G);
arguments!(A B C D E F G H);
arguments!(A B C D E F G H I);
arguments!(A B C D E F G H I J);
arguments!(A B C D E F G H I J K);
arguments!(A B C D E F G H I J K L);
