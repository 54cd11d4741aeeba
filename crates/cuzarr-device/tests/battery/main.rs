//! One battery for every device: nd-buffers and transfers compared with naive models, over random shapes, strides,
//! steps and dtypes. The same tests run on `cpu`, on `simt` and on a GPU, where there is one.

mod arrays;
mod devices;
mod naive;
mod random;
mod ranges;
mod transfers;
