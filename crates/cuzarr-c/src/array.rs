//! Arrays: opening, creating, describing, reading and writing.

use std::ffi::c_char;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use cuzarr::node::{ArraySelection, read_all};
use cuzarr::store::Store;
use cuzarr::{Array, ArrayOptions, NdBuffer, Result, Selection};

use crate::cancellation::{cuzarr_cancellation, token};
use crate::error::{call, cuzarr_error, cuzarr_status, make};
use crate::handle::{change, free, invalid, kind, look, optional_text, promised, put, put_text, required, slice, text};
use crate::json::{self, Options};
use crate::memory::{cuzarr_memory, cuzarr_region, selection, wait, wrap};

/// An open array. Several threads may use the same handle at once.
pub struct cuzarr_array(());

kind!(cuzarr_array owns RwLock<Array>, tag b"czarray1");

/// Returns the array of a handle, whose calls `cancellation` stops.
pub unsafe fn array(array: *const cuzarr_array, cancellation: *const cuzarr_cancellation) -> Result<Array> {
    promised!(look(array, |array| Ok(array.under(token(cancellation)?))))
}

/// Opens the store at a URL of the caller, and returns it with the options for its arrays.
pub unsafe fn store(
    url: *const c_char, device: *const c_char, options: *const c_char,
) -> Result<(Arc<dyn Store>, ArrayOptions)> {
    let (url, device) = promised!((text(url, "url")?, optional_text(device, "device")?));
    let options = Options::parse(promised!(optional_text(options, "options"))?, device)?;
    Ok((options.store(url)?, options.array))
}

/// Opens the array at a path or URL, and stores its handle in `array`. Free it with cuzarr_array_free.
///
/// `url` names a directory, a ZIP file ("zip::a.zip"), memory of this process ("memory://name"), a bucket ("s3://…",
/// "gs://…", "az://…"), a web server ("https://…") or a table of references ("reference::refs.json"). `device` is where
/// cuzarr_array_read_dlpack makes its results: "cpu" or "cuda:N"; NULL for the setting CUZARR_DEVICE, or "cpu".
///
/// `options` is a JSON object, or NULL. Members: "mode" ("r" or "r+", which is the default), "storage_options" (an object,
/// as in Python), "accelerator", "strict", "threads", "memory_limit_bytes", "read_missing_chunks", "write_empty_chunks",
/// "chunk_cache", "chunk_cache_bytes", "chunk_cache_max_age" (seconds), "variable_limit_bytes", "coalesce_gap_bytes" and
/// "coalesce_max_bytes". They mean what the settings of these names mean.
///
/// Errors: CUZARR_STATUS_ARRAY_NOT_FOUND, and what the store and the metadata report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_open(
    url: *const c_char, device: *const c_char, options: *const c_char, array: *mut *mut cuzarr_array,
    error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(make(array, error, || {
        let (store, options) = store(url, device, options)?;
        Array::open(store, "", options).map(RwLock::new)
    }))
}

/// Creates an array at a path or URL, and stores its handle in `array`. Free it with cuzarr_array_free. `device` and
/// `options` are those of cuzarr_array_open. To create an array inside a group, use cuzarr_group_create_array.
///
/// `description` is a JSON object. Members: "shape" (a list) and "dtype" (a data type of Zarr v3, such as "float32") are
/// needed; "chunks" and "shards" (lists), "compressor" ("zstd", "gzip" or "blosc", with a level as in "zstd:5", or "none"),
/// "codecs" (the list of a Zarr v3 document, in place of a compressor), "fill_value", "attributes", "dimension_names",
/// "zarr_format" (2 or 3) and "overwrite" (true replaces an array or group that is there).
///
/// Errors: CUZARR_STATUS_CONTAINS_ARRAY or CUZARR_STATUS_CONTAINS_GROUP if something is there; what the store and the
/// metadata report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_create(
    url: *const c_char, device: *const c_char, description: *const c_char, options: *const c_char,
    array: *mut *mut cuzarr_array, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(make(array, error, || {
        let (description, (store, options)) = (text(description, "description")?, store(url, device, options)?);
        let (metadata, overwrite) = json::array(description)?;
        Array::create(store, "", metadata, overwrite, options).map(RwLock::new)
    }))
}

/// Frees the handle of an array. What is stored stays. Calls of other threads with this handle must have ended; memory
/// that cuzarr_array_read_dlpack gave lives on. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_free(array: *mut cuzarr_array) {
    promised!(free(array))
}

/// Stores the number of dimensions of an array in `ndim`. An array without dimensions has one element.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_ndim(
    array: *const cuzarr_array, ndim: *mut usize, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || put(ndim, "ndim", look(array, |array| Ok(array.shape().len()))?)))
}

/// Stores the number of elements along each dimension in `shape`, which has room for `ndim` numbers.
///
/// Errors: CUZARR_STATUS_INVALID_ARGUMENT if `ndim` is not the array's number of dimensions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_shape(
    array: *const cuzarr_array, ndim: usize, shape: *mut u64, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || put_extents(&look(array, |array| Ok(array.shape().to_vec()))?, ndim, shape)))
}

/// Stores the shape of the chunks, which are decoded as a whole, in `shape`, which has room for `ndim` numbers. Reads of
/// whole chunks are the fastest.
///
/// Errors: those of cuzarr_array_shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_chunk_shape(
    array: *const cuzarr_array, ndim: usize, shape: *mut u64, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || put_extents(&look(array, Array::chunk_shape)?, ndim, shape)))
}

/// Stores the extents of an array in the room that the caller has for them.
unsafe fn put_extents(extents: &[u64], ndim: usize, place: *mut u64) -> Result<()> {
    if ndim != extents.len() {
        return Err(invalid(format!("got room for {ndim} dimensions, the array has {}", extents.len())));
    }
    // SAFETY: the caller promises so; the number of dimensions agrees.
    extents.iter().enumerate().try_for_each(|(axis, &extent)| unsafe {
        put(if place.is_null() { place } else { place.add(axis) }, "shape", extent)
    })
}

/// Stores the array's data type in `dtype`, as Zarr v3 writes it: a name such as float32, or JSON for a type with
/// parameters. Free the text with cuzarr_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_dtype(
    array: *const cuzarr_array, dtype: *mut *mut c_char, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    let name = |array: &Array| {
        let written = array.metadata().data_type().to_v3()?;
        Ok(written.as_str().map_or_else(|| written.to_string(), String::from))
    };
    promised!(call(error, || put_text(dtype, || look(array, name))))
}

/// Stores the size of an element in bytes in `size_bytes`; 0 if elements have no fixed size, such as strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_element_bytes(
    array: *const cuzarr_array, size_bytes: *mut usize, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    let size = |array: &Array| Ok(array.metadata().data_type().size_bytes().unwrap_or(0));
    promised!(call(error, || put(size_bytes, "size_bytes", look(array, size)?)))
}

/// Stores the array's metadata document in `json`: zarr.json, or .zarray in format 2. Free the text with
/// cuzarr_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_metadata(
    array: *const cuzarr_array, json: *mut *mut c_char, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    let document = |array: &Array| Ok(String::from_utf8_lossy(&array.metadata().to_json()).into_owned());
    promised!(call(error, || put_text(json, || look(array, document))))
}

/// Stores the array's attributes in `json`: the text of a JSON object in UTF-8. Free it with cuzarr_string_free. They are
/// those that were there when the array was opened, with the later changes by this handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_attributes(
    array: *const cuzarr_array, json: *mut *mut c_char, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || put_text(json, || look(array, |array| Ok(array.metadata().attributes_json())))))
}

/// Replaces all attributes of the array, in the handle and in the store, by the members of the JSON object in `json`.
///
/// Errors: CUZARR_STATUS_METADATA_INVALID if it is no JSON object; what the store reports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_set_attributes(
    array: *const cuzarr_array, json: *const c_char, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || change(array, |array| array.set_attributes_json(text(json, "json")?))))
}

/// Returns an array whose calls `cancellation` stops, what a region of it selects, and the caller's memory for these
/// elements, which may be touched.
unsafe fn part(
    array: *const cuzarr_array, region: *const cuzarr_region, memory: *const cuzarr_memory,
    cancellation: *const cuzarr_cancellation, is_read_only: bool,
) -> Result<(Array, Selection, NdBuffer)> {
    promised!({
        let array = self::array(array, cancellation)?;
        let (selection, given) = (selection(region, array.shape())?, &*required(memory.cast_mut(), "the memory")?);
        let own = array.metadata().data_type().device_dtype();
        let memory = wrap(given, &selection.shape(), own, is_read_only)?;
        wait(memory.device(), given.stream)?;
        Ok((array, selection, memory))
    })
}

/// Reads the elements of a region into memory of the caller, on any device.
///
/// `region` is NULL for the whole array. `memory` has the region's shape, and its type; elements are converted to it.
/// `cancellation` stops the call, or is NULL. The call waits for the work of `memory->stream` before it touches the memory.
/// When it returns, the elements are there, for every stream and for the host. If it fails, what the memory has is not
/// specified, and nothing touches it any more.
///
/// Errors: CUZARR_STATUS_SELECTION_INVALID for a region outside of the array; CUZARR_STATUS_INVALID_ARGUMENT for memory
/// that is too small or overlaps itself; CUZARR_STATUS_DTYPE_MISMATCH for types that cannot be converted; what the store and
/// the codecs report, with the chunk in cuzarr_error_text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_read(
    array: *const cuzarr_array, region: *const cuzarr_region, memory: *const cuzarr_memory,
    cancellation: *const cuzarr_cancellation, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || {
        let (array, selection, memory) = part(array, region, memory, cancellation, false)?;
        array.read_into(&selection, &memory)
    }))
}

/// Writes elements from memory of the caller, on any device, to a region. The arguments are those of cuzarr_array_read; the
/// memory is not changed. When the call returns, the elements are stored, and the memory may be used again.
///
/// Chunks that the region covers in part are read, changed and stored. Writes of this library to the same chunk wait for
/// each other; for other programs, and for the Python package in this process, see the first page. If the call fails,
/// chunks that were stored before keep their new elements. No chunk is ever half written.
///
/// Errors: those of cuzarr_array_read; CUZARR_STATUS_READ_ONLY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_write(
    array: *const cuzarr_array, region: *const cuzarr_region, memory: *const cuzarr_memory,
    cancellation: *const cuzarr_cancellation, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || {
        let (array, selection, memory) = part(array, region, memory, cancellation, true)?;
        array.write_buffer(&selection, &memory)
    }))
}

/// One read of cuzarr_read_many: an array, a region of it, and the memory for its elements.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cuzarr_read {
    /// The array that is read. Several reads may name the same one.
    pub array: *const cuzarr_array,
    /// The region that is read. NULL: the whole array.
    pub region: *const cuzarr_region,
    /// The memory that gets the elements. Memory of two reads must not overlap.
    pub memory: *const cuzarr_memory,
}

/// Reads regions of any number of arrays by one call, which is faster than one call for each: chunks of all reads are
/// fetched and decoded together, and a chunk that several reads need is decoded once. `reads` has `count` values. The
/// call waits for the streams of all memory first, and all elements are there when it returns.
///
/// Errors: those of cuzarr_array_read for each; the first failure ends the whole call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_read_many(
    reads: *const cuzarr_read, count: usize, cancellation: *const cuzarr_cancellation, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || {
        let part = |read: &cuzarr_read| part(read.array, read.region, read.memory, cancellation, false);
        let parts = slice(reads, count, "reads")?.iter().map(part).collect::<Result<Vec<_>>>()?;
        let wanted =
            parts.iter().map(|(array, part, out)| ArraySelection::new(array, part.clone()).with_out(out.clone()));
        let wanted: Vec<_> = wanted.collect();
        if wanted.is_empty() { Ok(()) } else { read_all(&wanted).map(drop) }
    }))
}

/// Sets the folder with compiled kernels for GPUs, such as share/cuzarr/cubins of an installation; NULL for none. Without
/// it, NVIDIA's run-time compiler (NVRTC) makes them when they are first needed. The environment variable
/// CUZARR_CUBIN_DIR takes precedence. Call it before arrays are used on a GPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_set_cubin_directory(
    path: *const c_char, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || {
        cuzarr_device::set_cubin_directory(optional_text(path, "path")?.map(PathBuf::from));
        Ok(())
    }))
}
