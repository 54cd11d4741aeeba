//! Typed reads into host memory, and typed writes from it.

use cuzarr_device::{DType, HostElement, NdBuffer, Order};

use super::array::Array;
use super::update::Update;
use super::values::{HostData, Values};
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::plan::Selection;

impl Array {
    /// Reads the selected elements into host memory, in C order. Chunks are decoded on the host.
    /// [`read_buffer`](Array::read_buffer) reads to the array's device instead.
    ///
    /// ```
    /// use cuzarr::prelude::*;
    ///
    /// let array = Array::builder([3, 4], DataType::Float32).fill_value(9.0_f32).create("memory://nines")?;
    /// array.write(&Selection::region(&[1, 0], &[1, 4])?, &[1.0_f32, 2.0, 3.0, 4.0])?;
    /// let columns = array.read::<f32>(&Selection::region(&[0, 2], &[3, 2])?)?;
    /// assert_eq!((columns.shape(), &columns[..]), (&[3, 2][..], &[9.0, 9.0, 3.0, 4.0, 9.0, 9.0][..]));
    /// assert_eq!(array.read_as::<i64>(&Selection::region(&[1, 3], &[1, 1])?)?[..], [4]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DTypeMismatch` when the array has elements of another type; else those of [`Array::read_buffer`].
    pub fn read<T: HostElement>(&self, selection: &Selection) -> Result<Values<T>> {
        self.check_type::<T>("read_as").at(|| self.place())?;
        self.read_as(selection)
    }

    /// Like [`Array::read`], but converts elements to `T`, like NumPy's `astype`.
    ///
    /// # Errors
    /// `DTypeMismatch` when the types cannot be converted; else those of [`Array::read_buffer`].
    pub fn read_as<T: HostElement>(&self, selection: &Selection) -> Result<Values<T>> {
        let new_memory = || -> Result<NdBuffer> {
            self.device_dtype()?;
            Ok(NdBuffer::zeroed_vec::<T>(&self.result_shape(selection)?)?)
        };
        let out = new_memory().at(|| self.place())?;
        self.read_into(selection, &out)?;
        let shape = out.shape().to_vec();
        let elements = out.into_vec().map_err(|error| {
            let message = "a stored bool is neither 0 nor 1";
            Error::new(ErrorKind::ChunkCorrupt, message).with_source(error).at(self.place())
        })?;
        Ok(Values { shape, elements })
    }

    /// Writes elements of host memory to the selection; see [`HostData`] for what `elements` may be.
    ///
    /// # Errors
    /// `DTypeMismatch` when the array has elements of another type; `ShapeMismatch` when their number differs from the
    /// selection's; else those of [`Array::write_buffer`].
    pub fn write<E: HostData + ?Sized>(&self, selection: &Selection, elements: &E) -> Result<()> {
        self.write_typed(selection, elements, |value| self.write_buffer(selection, value))
    }

    /// Like [`Array::write`], but converts elements to the array's type, like NumPy's `astype`.
    ///
    /// # Errors
    /// `DTypeMismatch` when the types cannot be converted; else those of [`Array::write`].
    pub fn write_as<E: HostData + ?Sized>(&self, selection: &Selection, elements: &E) -> Result<()> {
        self.write_converted(selection, elements, |value| self.write_buffer(selection, value))
    }

    fn write_typed<E: HostData + ?Sized>(
        &self,
        selection: &Selection,
        elements: &E,
        write: impl FnOnce(&NdBuffer) -> Result<()>,
    ) -> Result<()> {
        self.check_type::<E::Element>("write_as").at(|| self.place())?;
        elements.view().lend(selection, write)
    }

    fn write_converted<E: HostData + ?Sized>(
        &self,
        selection: &Selection,
        elements: &E,
        write: impl FnOnce(&NdBuffer) -> Result<()>,
    ) -> Result<()> {
        let dtype = self.device_dtype().at(|| self.place())?;
        elements.view().lend(selection, |value| {
            if value.dtype() == dtype {
                return write(value);
            }
            let converted = value.astype(dtype, Order::C).map_err(|error| {
                let message = format!("cannot write {} as {dtype}", value.dtype());
                Error::new(ErrorKind::DTypeMismatch, message).with_source(error).at(self.place())
            })?;
            write(&converted)
        })
    }

    /// The type that the array's elements have in memory.
    pub(super) fn device_dtype(&self) -> Result<DType> {
        self.metadata().data_type().device_dtype().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "elements of variable length do not fit an nd-buffer")
                .with_hint("use `read_variable` and `write_variable`")
        })
    }

    fn check_type<T: HostElement>(&self, converting: &str) -> Result<()> {
        let dtype = self.device_dtype()?;
        if T::DTYPE == dtype {
            return Ok(());
        }
        let (got, expected) = (std::any::type_name::<T>(), self.metadata().data_type());
        let message = format!("got {got} ({}), the array has elements of type {expected}", T::DTYPE);
        Err(Error::new(ErrorKind::DTypeMismatch, message).with_hint(format!("convert them: `{converting}`")))
    }
}

impl Update {
    /// Writes elements of host memory to the update's selection, like [`Array::write`].
    ///
    /// # Errors
    /// Those of [`Array::write`].
    pub fn write<E: HostData + ?Sized>(&self, elements: &E) -> Result<()> {
        self.array().write_typed(self.selection(), elements, |value| self.write_buffer(value))
    }

    /// Writes elements of host memory to the update's selection, like [`Array::write_as`].
    ///
    /// # Errors
    /// Those of [`Array::write_as`].
    pub fn write_as<E: HostData + ?Sized>(&self, elements: &E) -> Result<()> {
        self.array().write_converted(self.selection(), elements, |value| self.write_buffer(value))
    }
}
