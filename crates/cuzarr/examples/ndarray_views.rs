//! Arrays of the crate `ndarray`, written and read (feature `ndarray`).

use std::sync::Arc;

use cuzarr::prelude::*;
use ndarray::{Array2, Axis, Ix2, s};

pub(crate) fn main() -> Result<()> {
    let array =
        Array::builder([6, 8], DataType::Float64).chunks([4, 4]).create_in(Arc::new(MemoryStore::new()), "a")?;

    // Owned arrays and views are written from where they are; transposed and reversed ones, too.
    let matrix = Array2::from_shape_fn((8, 6), |(column, row)| (10 * row + column) as f64);
    array.write(&Selection::all(array.shape()), &matrix.t())?;
    array.write(&Selection::region(&[0, 0], &[2, 4])?, &matrix.slice(s![4..8, 0..2]).reversed_axes())?;

    // The vector that was read becomes the array, without a copy.
    let read = array.read::<f64>(&Selection::all(array.shape()))?.into_ndarray();
    let read = read.into_dimensionality::<Ix2>().expect("two dimensions were read");
    assert_eq!(
        read.slice(s![..2, ..]),
        ndarray::array![[4.0, 5.0, 6.0, 7.0, 4.0, 5.0, 6.0, 7.0], [14.0, 15.0, 16.0, 17.0, 14.0, 15.0, 16.0, 17.0]]
    );
    assert_eq!(read.slice(s![2.., ..]), matrix.t().slice(s![2.., ..]));
    println!("means of the rows: {}", read.mean_axis(Axis(1)).expect("rows have elements"));
    Ok(())
}
