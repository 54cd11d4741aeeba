//! Arrays: opening, creating, describing, reading and writing, at once and by writers.

use std::ffi::c_char;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use std::{process, thread};

use cuzarr::node::{ArraySelection, Writer, WriterProgress, read_all};
use cuzarr::store::Store;
use cuzarr::{Array, ArrayOptions, CancellationToken, NdBuffer, Result, Selection};
use cuzarr_device::Stream;

use crate::cancellation::{cuzarr_cancellation, token};
use crate::error::{call, cuzarr_error, cuzarr_status, make};
use crate::handle::{
    change, free, get, invalid, kind, look, optional_slice, optional_text, promised, put, put_text, required, slice,
    text,
};
use crate::json::{self, Options};
use crate::memory::{cuzarr_memory, cuzarr_region, selection, stream, wait, wrap};

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

/// A writer: it takes rows of arrays from a running program, and stores them in the background. A row is all elements with
/// one index along one dimension. Several threads may use the same handle; their calls that add or store rows wait for
/// each other.
pub struct cuzarr_writer(());

kind!(cuzarr_writer owns OpenWriter, tag b"czwriter");

/// What the handle of a writer owns.
pub struct OpenWriter {
    writer: Mutex<Writer>,
    progress: WriterProgress,
    cancellation: CancellationToken,
    arrays: Vec<Arc<RwLock<Array>>>,
    end: AtomicU64,
    /// Whether the caller keeps memory for the storing thread, which has this value as long as it runs.
    keeps: Arc<AtomicBool>,
    process: u32,
}

impl OpenWriter {
    fn with(&self, work: impl FnOnce(&mut Writer) -> Result<()>) -> Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = work(&mut writer);
        self.end.store(writer.end(), Ordering::Relaxed);
        outcome
    }

    /// Stores rows, and brings the new shapes to the handles of the arrays.
    fn store(&self, work: fn(&mut Writer) -> Result<()>) -> Result<()> {
        self.with(work)?;
        self.arrays.iter().try_for_each(|array| array.write().unwrap_or_else(PoisonError::into_inner).refresh())
    }
}

/// Opens a writer that adds rows to `count` arrays of one store and one device, and stores its handle in `writer`. Close it
/// with cuzarr_writer_close, and free it with cuzarr_writer_free. The handles of the arrays may be freed before.
///
/// `axes` has for each array the dimension along which rows are added; NULL: 0 for all. `cancellation` stops calls of this
/// writer that wait and ends the writer, or is NULL. No other writer of the process may have these elements.
///
/// `options` is a JSON object, or NULL. Members: "slots" (for each array, the number of blocks of rows for which there is
/// memory, on the arrays' device: one that is filled, and those that are being stored; 2), "resume" (true deletes chunks
/// behind the array's end first, which a killed program left) and "region" (an object with the lists "start" and "shape": the
/// part of an array of known shape that this writer fills; it consists of whole chunks, or whole shards). Without a region,
/// rows are added behind the array's end, and its shape grows.
///
/// Errors: CUZARR_STATUS_INVALID_ARGUMENT for arrays, dimensions and regions that cannot be written together;
/// CUZARR_STATUS_UNSUPPORTED for elements of variable length; what the store reports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_writer_open(
    arrays: *const *const cuzarr_array, axes: *const usize, count: usize, options: *const c_char,
    cancellation: *const cuzarr_cancellation, writer: *mut *mut cuzarr_writer, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(make(writer, error, || {
        let (options, axes) = (json::writer(optional_text(options, "options")?)?, optional_slice(axes, count, "axes")?);
        let arrays = slice(arrays, count, "arrays")?.iter().map(|array| get(*array).cloned());
        let arrays = arrays.collect::<Result<Vec<Arc<RwLock<Array>>>>>()?;
        let keeps = Arc::new(AtomicBool::new(false));
        let of_thread = (token(cancellation)?, Arc::clone(&keeps));
        let cancellation = CancellationToken::listening(move || {
            let (given, _running) = &of_thread;
            given.is_cancelled()
        });
        let under = |(number, array): (usize, &Arc<RwLock<Array>>)| {
            let array = array.read().unwrap_or_else(PoisonError::into_inner).under(cancellation.clone());
            (array, axes.map_or(0, |axes| axes[number]))
        };
        let writer = Writer::new(arrays.iter().enumerate().map(under).collect(), &options)?;
        let (progress, end, process) = (writer.progress(), AtomicU64::new(writer.end()), process::id());
        Ok(OpenWriter { writer: Mutex::new(writer), progress, cancellation, arrays, end, keeps, process })
    }))
}

/// Rows of one array, for cuzarr_writer_append and cuzarr_writer_write.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cuzarr_rows {
    /// Number of the array among those of the writer, from 0.
    pub array: usize,
    /// Number of dimensions of `shape`: that of the array, or one less for one row without a dimension of its own.
    pub ndim: usize,
    /// The array's shape but for the number of rows, or the shape of one row.
    pub shape: *const u64,
    /// The memory with the elements, of this shape.
    pub memory: *const cuzarr_memory,
}

/// Adds rows behind the last rows of arrays: of one, or by one call of several arrays, the same number for each. `rows` has
/// `count` values. Either all are added or none, unless the writer fails.
///
/// The call copies the rows and returns. It waits only while the memory of all slots is in use. Rows on a GPU are copied in
/// the order of the stream that their memory names: after the work that it has got so far, and before all later work. So
/// when the call returns, later work on this stream may overwrite or free the memory. Rows in host memory, and those with
/// CUZARR_STREAM_READY, were copied when the call returns.
///
/// With `keeps`, nothing is copied where a whole block of rows lies in this memory. Then leave the memory as it is until
/// cuzarr_writer_flush or cuzarr_writer_close succeeded, or cuzarr_writer_free returned.
///
/// Rows are gathered until a chunk, or a shard, is whole, and are then stored by a thread of the writer. A failure of this
/// thread is the error of the next call. The writer has then ended, and every later call fails with it. Rows before the
/// position of cuzarr_writer_progress are stored.
///
/// Errors: CUZARR_STATUS_SHAPE_MISMATCH, CUZARR_STATUS_OUT_OF_RANGE and those of memory in cuzarr_array_write, after which
/// the writer goes on; CUZARR_STATUS_INVALID_ARGUMENT also for a closed writer; the failure that ended the writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_writer_append(
    writer: *const cuzarr_writer, rows: *const cuzarr_rows, count: usize, keeps: bool, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || add(writer, rows, count, None, keeps)))
}

/// Adds rows like cuzarr_writer_append, but from row `row` of the arrays on, which may have different numbers of rows. Rows
/// may come in any order as far as there are slots for their blocks, and again. An array ends before the first row that did
/// not come.
///
/// Errors: those of cuzarr_writer_append; CUZARR_STATUS_INVALID_ARGUMENT for rows that need more slots.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_writer_write(
    writer: *const cuzarr_writer, row: u64, rows: *const cuzarr_rows, count: usize, keeps: bool,
    error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || add(writer, rows, count, Some(row), keeps)))
}

/// Adds rows of the caller to arrays of a writer: from `row` on, or behind the last ones.
unsafe fn add(
    writer: *const cuzarr_writer, rows: *const cuzarr_rows, count: usize, row: Option<u64>, keeps: bool,
) -> Result<()> {
    let (writer, rows) = promised!((get(writer)?, slice(rows, count, "rows")?));
    writer.cancellation.check()?;
    let given = |(number, of): (usize, &cuzarr_rows)| {
        let none = || invalid(format!("there is no array {} of {}", of.array, writer.arrays.len()));
        let array = writer.arrays.get(of.array).ok_or_else(none)?.read().unwrap_or_else(PoisonError::into_inner);
        if rows[..number].iter().any(|other| other.array == of.array) {
            return Err(invalid(format!("rows of array {} come twice in one call", of.array)));
        }
        // Before the shape is read: it has as many numbers as the caller believes the array to have dimensions.
        if of.ndim > array.shape().len() {
            return Err(invalid(format!("rows of {} dimensions, the array has {}", of.ndim, array.shape().len())));
        }
        let memory = promised!(&*required(of.memory.cast_mut(), "the memory")?);
        let shape = promised!(slice(of.shape, of.ndim, "the rows' shape"))?;
        let value = promised!(wrap(memory, shape, array.metadata().data_type().device_dtype(), true))?;
        let stream = promised!(stream(value.device(), memory.stream))?;
        Ok((of.array, value, stream))
    };
    let given = rows.iter().enumerate().map(given).collect::<Result<Vec<_>>>()?;
    writer.keeps.fetch_or(keeps, Ordering::Relaxed);
    writer.with(|writer| writer.add(&given, row, keeps))?;
    // Without a stream, the writer lets the default stream wait for its copies.
    let mut ready = given.iter().filter(|(_, _, stream)| stream.is_none());
    ready.try_for_each(|(_, value, _)| Ok(Stream::legacy(value.device())?.synchronize()?))
}

/// Stores all rows that were added, and waits until they are stored. A chunk that is not whole is written now, and again
/// when it is. The shapes of the arrays' handles are then those of the store.
///
/// Errors: the failure that ended the writer; CUZARR_STATUS_CANCELLED; CUZARR_STATUS_INVALID_ARGUMENT for a closed writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_writer_flush(
    writer: *const cuzarr_writer, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || get(writer)?.store(Writer::flush)))
}

/// Stores all rows that were added like cuzarr_writer_flush, and ends the writer, also if it fails. The handle stays until
/// cuzarr_writer_free. A second call does nothing.
///
/// Errors: those of cuzarr_writer_flush.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_writer_close(
    writer: *const cuzarr_writer, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || get(writer)?.store(Writer::close)))
}

/// Frees the handle of a writer. Rows that are gathered are lost, unless the writer was closed. When it returns, nothing
/// uses memory that was added with `keeps`. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_writer_free(writer: *mut cuzarr_writer) {
    let of = promised!(get(writer)).map(|writer| (Arc::clone(&writer.keeps), writer.process));
    promised!(free(writer));
    // The storing thread may use memory that the caller keeps until it ends; a forked child has no such thread.
    let uses = |(keeps, of): &(Arc<AtomicBool>, u32)| keeps.load(Ordering::Relaxed) && *of == process::id();
    while of.as_ref().is_ok_and(|of| uses(of) && Arc::strong_count(&of.0) > 1) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Stores how far a writer has come, also while another thread waits in a call of it: in `position` the first row that is
/// not stored yet, of several arrays the smallest; in `end` the row behind the last one that was added, of several arrays
/// the largest; and in `waited_seconds` how long calls waited because rows came faster than they were stored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_writer_progress(
    writer: *const cuzarr_writer, position: *mut u64, end: *mut u64, waited_seconds: *mut f64,
    error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || {
        let (writer, stored) = (get(writer)?, get(writer)?.progress.position());
        put(position, "position", stored)?;
        // A call that has not returned may have added more rows.
        put(end, "end", writer.end.load(Ordering::Relaxed).max(stored))?;
        put(waited_seconds, "waited_seconds", writer.progress.waited().as_secs_f64())
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
