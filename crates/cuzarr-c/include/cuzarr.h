/* cuzarr: Zarr arrays straight into and out of GPU memory, or host memory. The C interface, which is also that of C++,
 * Fortran (module cuzarr) and of every language that calls C.
 *
 * Written by cbindgen from crates/cuzarr-c/src: change it there, then run `make header`.
 *
 * Errors. Functions that can fail return a status: 0 (CUZARR_STATUS_OK), or the kind of the error. Their last argument is
 * the place for a handle of the error, with its message and a hint; it may be NULL. It is set to NULL by calls that succeed.
 * Free errors with cuzarr_error_free. No function aborts the process or lets an exception out.
 *
 * Handles. cuzarr_array, cuzarr_group, cuzarr_writer, cuzarr_cancellation and cuzarr_error are made by this library and freed
 * by the function of their name that ends in _free, once. NULL and a handle of another kind are errors, and a freed handle is
 * undefined behaviour, as is every pointer that does not point to what its function's page says. When a function that makes
 * a handle fails, it stores NULL.
 *
 * Texts are UTF-8 and end with a zero byte. Texts that a function stores are freed with cuzarr_string_free; texts that a
 * function returns belong to their handle or to the library. Arguments are copied: they may be freed after the call.
 *
 * Threads. Every function may be called from any thread, and several threads may use one handle at once. A handle may
 * be freed when no call uses it any more. The library starts threads of its own with the first call that needs them.
 *
 * Streams. Reads and writes of arrays wait: when a read returns, its elements are there for the host and for every stream;
 * when a write returns, its elements are stored. Before they touch memory, they wait for the stream that the caller names.
 * Writers (cuzarr_writer_append) take rows in the order of this stream and store them later.
 *
 * Sizes are in bytes where a name says so, else in elements. Shapes are in the order of Zarr: the last dimension varies
 * fastest in memory of C order.
 *
 * Two engines in one process, such as this library and the Python package, share no locks, threads, caches or limits of
 * memory. Both may read the same array. Let only one of them write to a chunk at a time, as for two processes.
 *
 * DLPack: include dlpack/dlpack.h (version 1) before or after this header, if you use the functions named _dlpack.
 */


#ifndef CUZARR_H
#define CUZARR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* Defined by dlpack/dlpack.h. */
struct DLManagedTensorVersioned;


// Major version of this header.
#define CUZARR_VERSION_MAJOR 0

// Minor version of this header.
#define CUZARR_VERSION_MINOR 1

// Patch version of this header.
#define CUZARR_VERSION_PATCH 0

// The value of `stream` for memory that may be touched at once.
#define CUZARR_STREAM_READY 18446744073709551615ull

// The result of a call. Every value but CUZARR_STATUS_OK is an error, and names its kind. Numbers never change; later
// versions may add some.
typedef enum cuzarr_status {
    // The call did what its page says.
    CUZARR_STATUS_OK = 0,
    // An argument is not valid, such as NULL where a pointer is needed, or a handle of another kind.
    CUZARR_STATUS_INVALID_ARGUMENT = 1,
    // A number does not fit the element type.
    CUZARR_STATUS_OUT_OF_RANGE = 2,
    // A setting is not valid, such as an environment variable.
    CUZARR_STATUS_CONFIG_INVALID = 3,
    // There is no array or group at this path.
    CUZARR_STATUS_NODE_NOT_FOUND = 4,
    // There is no array at this path.
    CUZARR_STATUS_ARRAY_NOT_FOUND = 5,
    // There is no group at this path.
    CUZARR_STATUS_GROUP_NOT_FOUND = 6,
    // An array already exists at the path.
    CUZARR_STATUS_CONTAINS_ARRAY = 7,
    // A group already exists at the path.
    CUZARR_STATUS_CONTAINS_GROUP = 8,
    // Metadata is not JSON, or violates its specification.
    CUZARR_STATUS_METADATA_INVALID = 9,
    // The name of a codec is not known.
    CUZARR_STATUS_UNKNOWN_CODEC = 10,
    // The name of a data type is not known.
    CUZARR_STATUS_UNKNOWN_DATA_TYPE = 11,
    // The metadata requires an extension or a feature that is not supported.
    CUZARR_STATUS_UNSUPPORTED_FEATURE = 12,
    // The region does not fit the array.
    CUZARR_STATUS_SELECTION_INVALID = 13,
    // Shapes differ that must agree.
    CUZARR_STATUS_SHAPE_MISMATCH = 14,
    // Data types differ that must agree.
    CUZARR_STATUS_DTYPE_MISMATCH = 15,
    // Encoded bytes cannot be decoded.
    CUZARR_STATUS_CHUNK_CORRUPT = 16,
    // A stored checksum differs from the computed one.
    CUZARR_STATUS_CHECKSUM_MISMATCH = 17,
    // A chunk is missing, and the option read_missing_chunks is false.
    CUZARR_STATUS_CHUNK_NOT_FOUND = 18,
    // A value cannot be encoded as the codec or data type requires.
    CUZARR_STATUS_ENCODE_FAILED = 19,
    // A key leads outside the store, or is not valid.
    CUZARR_STATUS_KEY_INVALID = 20,
    // The store (a file system, server or other backend) could not carry out a request.
    CUZARR_STATUS_STORE_FAILED = 21,
    // The store denies the operation to this user.
    CUZARR_STATUS_PERMISSION_DENIED = 22,
    // The store or array was opened for reading only.
    CUZARR_STATUS_READ_ONLY = 23,
    // The memory is on a device where the operation cannot use it.
    CUZARR_STATUS_MEMORY_SPACE = 24,
    // The operation has no implementation for this data type or device.
    CUZARR_STATUS_UNSUPPORTED = 25,
    // The device does not exist, or its driver cannot be used.
    CUZARR_STATUS_DEVICE_UNAVAILABLE = 26,
    // A library for this operation was not found, or is too old.
    CUZARR_STATUS_LIBRARY_MISSING = 27,
    // The operation needs more bytes than a limit, such as memory_limit_bytes, allows.
    CUZARR_STATUS_BUDGET_EXCEEDED = 28,
    // The device or the host is out of memory.
    CUZARR_STATUS_OUT_OF_MEMORY = 29,
    // A kernel did not compile.
    CUZARR_STATUS_KERNEL_COMPILE_FAILED = 30,
    // The device's driver reported a failure.
    CUZARR_STATUS_DEVICE_FAILED = 31,
    // A part of the call would have to run on the host instead of the device, and the option strict forbids it.
    CUZARR_STATUS_FALLBACK_REFUSED = 32,
    // The call was stopped by its cancellation.
    CUZARR_STATUS_CANCELLED = 33,
    // An error whose kind this version of the header does not name.
    CUZARR_STATUS_OTHER = 999,
    // A fault of cuzarr itself. The process may go on; report it.
    CUZARR_STATUS_PANICKED = 1000,
} cuzarr_status;

// An open array. Several threads may use the same handle at once.
typedef struct cuzarr_array cuzarr_array;

// A cancellation: a handle that calls are given, and by which any thread stops them. A cancelled one stays cancelled.
// Several calls may have the same one.
typedef struct cuzarr_cancellation cuzarr_cancellation;

// An error: its kind, a message and a hint. A call that fails makes one, and its caller frees it with
// cuzarr_error_free. It does not depend on the handles of the call.
typedef struct cuzarr_error cuzarr_error;

// An open group. Several threads may use the same handle at once.
typedef struct cuzarr_group cuzarr_group;

// A writer: it takes rows of arrays from a running program, and stores them in the background. A row is all elements with
// one index along one dimension. Several threads may use the same handle; their calls that add or store rows wait for
// each other.
typedef struct cuzarr_writer cuzarr_writer;

// A box of elements of an array. A pointer to a region that is NULL means the whole array.
typedef struct cuzarr_region {
    // Number of dimensions, which must be that of the array. The lists below have this length.
    size_t ndim;
    // Index of the first element along each dimension. NULL: 0 everywhere.
    const uint64_t *start;
    // Number of elements along each dimension. Must not be NULL unless ndim is 0.
    const uint64_t *shape;
    // Distance of neighbouring elements along each dimension, at least 1. NULL: 1 everywhere.
    const uint64_t *step;
} cuzarr_region;

// Memory of the caller, with the elements of a region, or of rows for a writer, and of their shape. cuzarr uses it during
// the call alone; cuzarr_writer_append has an exception.
typedef struct cuzarr_memory {
    // Address of the memory. May be NULL if there are no elements.
    void *data;
    // Size of the memory in bytes. Elements outside of it are an error.
    size_t size_bytes;
    // Bytes from `data` to the region's first element, such as for negative strides.
    size_t offset_bytes;
    // Distance of neighbouring elements along each dimension in bytes; may be negative. NULL: C order without gaps, the
    // last dimension varies fastest. What a read fills must not overlap itself. A write may have strides of 0.
    const int64_t *strides;
    // Where the memory is: "cpu" or "cuda:N". NULL: "cpu". An address on another device than this is undefined
    // behaviour, as a dangling pointer is.
    const char *device;
    // Type of the elements in memory, by its name in Zarr v3: "float32". NULL: the array's own. Elements are converted
    // between this type and the array's, as NumPy's astype does it.
    const char *dtype;
    // The stream whose work fills or uses the memory: 0 or 1 for the legacy default stream, 2 for that of the thread, a
    // cudaStream_t or CUstream as an integer, or CUZARR_STREAM_READY. The call waits for the work that the stream
    // has got so far, before it touches the memory. In host memory, only 0 and CUZARR_STREAM_READY are allowed.
    size_t stream;
} cuzarr_memory;

// One read of cuzarr_read_many: an array, a region of it, and the memory for its elements.
typedef struct cuzarr_read {
    // The array that is read. Several reads may name the same one.
    const struct cuzarr_array *array;
    // The region that is read. NULL: the whole array.
    const struct cuzarr_region *region;
    // The memory that gets the elements. Memory of two reads must not overlap.
    const struct cuzarr_memory *memory;
} cuzarr_read;

// Rows of one array, for cuzarr_writer_append and cuzarr_writer_write.
typedef struct cuzarr_rows {
    // Number of the array among those of the writer, from 0.
    size_t array;
    // Number of dimensions of `shape`: that of the array, or one less for one row without a dimension of its own.
    size_t ndim;
    // The array's shape but for the number of rows, or the shape of one row.
    const uint64_t *shape;
    // The memory with the elements, of this shape.
    const struct cuzarr_memory *memory;
} cuzarr_rows;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Opens the array at a path or URL, and stores its handle in `array`. Free it with cuzarr_array_free.
//
// `url` names a directory, a ZIP file ("zip::a.zip"), memory of this process ("memory://name"), a bucket ("s3://…",
// "gs://…", "az://…"), a web server ("https://…") or a table of references ("reference::refs.json"). `device` is where
// cuzarr_array_read_dlpack makes its results: "cpu" or "cuda:N"; NULL for the setting CUZARR_DEVICE, or "cpu".
//
// `options` is a JSON object, or NULL. Members: "mode" ("r" or "r+", which is the default), "storage_options" (an object,
// as in Python), "accelerator", "strict", "threads", "memory_limit_bytes", "read_missing_chunks", "write_empty_chunks",
// "chunk_cache", "chunk_cache_bytes", "chunk_cache_max_age" (seconds), "variable_limit_bytes", "coalesce_gap_bytes" and
// "coalesce_max_bytes". They mean what the settings of these names mean.
//
// Errors: CUZARR_STATUS_ARRAY_NOT_FOUND, and what the store and the metadata report.
enum cuzarr_status cuzarr_array_open(const char *url,
                                     const char *device,
                                     const char *options,
                                     struct cuzarr_array **array,
                                     struct cuzarr_error **error);

// Creates an array at a path or URL, and stores its handle in `array`. Free it with cuzarr_array_free. `device` and
// `options` are those of cuzarr_array_open. To create an array inside a group, use cuzarr_group_create_array.
//
// `description` is a JSON object. Members: "shape" (a list) and "dtype" (a data type of Zarr v3, such as "float32") are
// needed; "chunks" and "shards" (lists), "compressor" ("zstd", "gzip" or "blosc", with a level as in "zstd:5", or "none"),
// "codecs" (the list of a Zarr v3 document, in place of a compressor), "fill_value", "attributes", "dimension_names",
// "zarr_format" (2 or 3) and "overwrite" (true replaces an array or group that is there).
//
// Errors: CUZARR_STATUS_CONTAINS_ARRAY or CUZARR_STATUS_CONTAINS_GROUP if something is there; what the store and the
// metadata report.
enum cuzarr_status cuzarr_array_create(const char *url,
                                       const char *device,
                                       const char *description,
                                       const char *options,
                                       struct cuzarr_array **array,
                                       struct cuzarr_error **error);

// Frees the handle of an array. What is stored stays. Calls of other threads with this handle must have ended; memory
// that cuzarr_array_read_dlpack gave lives on. Does nothing for NULL.
void cuzarr_array_free(struct cuzarr_array *array);

// Stores the number of dimensions of an array in `ndim`. An array without dimensions has one element.
enum cuzarr_status cuzarr_array_ndim(const struct cuzarr_array *array,
                                     size_t *ndim,
                                     struct cuzarr_error **error);

// Stores the number of elements along each dimension in `shape`, which has room for `ndim` numbers.
//
// Errors: CUZARR_STATUS_INVALID_ARGUMENT if `ndim` is not the array's number of dimensions.
enum cuzarr_status cuzarr_array_shape(const struct cuzarr_array *array,
                                      size_t ndim,
                                      uint64_t *shape,
                                      struct cuzarr_error **error);

// Stores the shape of the chunks, which are decoded as a whole, in `shape`, which has room for `ndim` numbers. Reads of
// whole chunks are the fastest.
//
// Errors: those of cuzarr_array_shape.
enum cuzarr_status cuzarr_array_chunk_shape(const struct cuzarr_array *array,
                                            size_t ndim,
                                            uint64_t *shape,
                                            struct cuzarr_error **error);

// Stores the array's data type in `dtype`, as Zarr v3 writes it: a name such as float32, or JSON for a type with
// parameters. Free the text with cuzarr_string_free.
enum cuzarr_status cuzarr_array_dtype(const struct cuzarr_array *array,
                                      char **dtype,
                                      struct cuzarr_error **error);

// Stores the size of an element in bytes in `size_bytes`; 0 if elements have no fixed size, such as strings.
enum cuzarr_status cuzarr_array_element_bytes(const struct cuzarr_array *array,
                                              size_t *size_bytes,
                                              struct cuzarr_error **error);

// Stores the array's metadata document in `json`: zarr.json, or .zarray in format 2. Free the text with
// cuzarr_string_free.
enum cuzarr_status cuzarr_array_metadata(const struct cuzarr_array *array,
                                         char **json,
                                         struct cuzarr_error **error);

// Stores the array's attributes in `json`: the text of a JSON object in UTF-8. Free it with cuzarr_string_free. They are
// those that were there when the array was opened, with the later changes by this handle.
enum cuzarr_status cuzarr_array_attributes(const struct cuzarr_array *array,
                                           char **json,
                                           struct cuzarr_error **error);

// Replaces all attributes of the array, in the handle and in the store, by the members of the JSON object in `json`.
//
// Errors: CUZARR_STATUS_METADATA_INVALID if it is no JSON object; what the store reports.
enum cuzarr_status cuzarr_array_set_attributes(const struct cuzarr_array *array,
                                               const char *json,
                                               struct cuzarr_error **error);

// Reads the elements of a region into memory of the caller, on any device.
//
// `region` is NULL for the whole array. `memory` has the region's shape, and its type; elements are converted to it.
// `cancellation` stops the call, or is NULL. The call waits for the work of `memory->stream` before it touches the memory.
// When it returns, the elements are there, for every stream and for the host. If it fails, what the memory has is not
// specified, and nothing touches it any more.
//
// Errors: CUZARR_STATUS_SELECTION_INVALID for a region outside of the array; CUZARR_STATUS_INVALID_ARGUMENT for memory
// that is too small or overlaps itself; CUZARR_STATUS_DTYPE_MISMATCH for types that cannot be converted; what the store and
// the codecs report, with the chunk in cuzarr_error_text.
enum cuzarr_status cuzarr_array_read(const struct cuzarr_array *array,
                                     const struct cuzarr_region *region,
                                     const struct cuzarr_memory *memory,
                                     const struct cuzarr_cancellation *cancellation,
                                     struct cuzarr_error **error);

// Writes elements from memory of the caller, on any device, to a region. The arguments are those of cuzarr_array_read; the
// memory is not changed. When the call returns, the elements are stored, and the memory may be used again.
//
// Chunks that the region covers in part are read, changed and stored. Writes of this library to the same chunk wait for
// each other; for other programs, and for the Python package in this process, see the first page. If the call fails,
// chunks that were stored before keep their new elements. No chunk is ever half written.
//
// Errors: those of cuzarr_array_read; CUZARR_STATUS_READ_ONLY.
enum cuzarr_status cuzarr_array_write(const struct cuzarr_array *array,
                                      const struct cuzarr_region *region,
                                      const struct cuzarr_memory *memory,
                                      const struct cuzarr_cancellation *cancellation,
                                      struct cuzarr_error **error);

// Reads regions of any number of arrays by one call, which is faster than one call for each: chunks of all reads are
// fetched and decoded together, and a chunk that several reads need is decoded once. `reads` has `count` values. The
// call waits for the streams of all memory first, and all elements are there when it returns.
//
// Errors: those of cuzarr_array_read for each; the first failure ends the whole call.
enum cuzarr_status cuzarr_read_many(const struct cuzarr_read *reads,
                                    size_t count,
                                    const struct cuzarr_cancellation *cancellation,
                                    struct cuzarr_error **error);

// Opens a writer that adds rows to `count` arrays of one store and one device, and stores its handle in `writer`. Close it
// with cuzarr_writer_close, and free it with cuzarr_writer_free. The handles of the arrays may be freed before.
//
// `axes` has for each array the dimension along which rows are added; NULL: 0 for all. `cancellation` stops calls of this
// writer that wait and ends the writer, or is NULL. No other writer of the process may have these elements.
//
// `options` is a JSON object, or NULL. Members: "slots" (for each array, the number of blocks of rows for which there is
// memory, on the arrays' device: one that is filled, and those that are being stored; 2), "resume" (true deletes chunks
// behind the array's end first, which a killed program left) and "region" (an object with the lists "start" and "shape": the
// part of an array of known shape that this writer fills; it consists of whole chunks, or whole shards). Without a region,
// rows are added behind the array's end, and its shape grows.
//
// Errors: CUZARR_STATUS_INVALID_ARGUMENT for arrays, dimensions and regions that cannot be written together;
// CUZARR_STATUS_UNSUPPORTED for elements of variable length; what the store reports.
enum cuzarr_status cuzarr_writer_open(const struct cuzarr_array *const *arrays,
                                      const size_t *axes,
                                      size_t count,
                                      const char *options,
                                      const struct cuzarr_cancellation *cancellation,
                                      struct cuzarr_writer **writer,
                                      struct cuzarr_error **error);

// Adds rows behind the last rows of arrays: of one, or by one call of several arrays, the same number for each. `rows` has
// `count` values. Either all are added or none, unless the writer fails.
//
// The call copies the rows and returns. It waits only while the memory of all slots is in use. Rows on a GPU are copied in
// the order of the stream that their memory names: after the work that it has got so far, and before all later work. So
// when the call returns, later work on this stream may overwrite or free the memory. Rows in host memory, and those with
// CUZARR_STREAM_READY, were copied when the call returns.
//
// With `keeps`, nothing is copied where a whole block of rows lies in this memory. Then leave the memory as it is until
// cuzarr_writer_flush or cuzarr_writer_close succeeded, or cuzarr_writer_free returned.
//
// Rows are gathered until a chunk, or a shard, is whole, and are then stored by a thread of the writer. A failure of this
// thread is the error of the next call. The writer has then ended, and every later call fails with it. Rows before the
// position of cuzarr_writer_progress are stored.
//
// Errors: CUZARR_STATUS_SHAPE_MISMATCH, CUZARR_STATUS_OUT_OF_RANGE and those of memory in cuzarr_array_write, after which
// the writer goes on; CUZARR_STATUS_INVALID_ARGUMENT also for a closed writer; the failure that ended the writer.
enum cuzarr_status cuzarr_writer_append(const struct cuzarr_writer *writer,
                                        const struct cuzarr_rows *rows,
                                        size_t count,
                                        bool keeps,
                                        struct cuzarr_error **error);

// Adds rows like cuzarr_writer_append, but from row `row` of the arrays on, which may have different numbers of rows. Rows
// may come in any order as far as there are slots for their blocks, and again. An array ends before the first row that did
// not come.
//
// Errors: those of cuzarr_writer_append; CUZARR_STATUS_INVALID_ARGUMENT for rows that need more slots.
enum cuzarr_status cuzarr_writer_write(const struct cuzarr_writer *writer,
                                       uint64_t row,
                                       const struct cuzarr_rows *rows,
                                       size_t count,
                                       bool keeps,
                                       struct cuzarr_error **error);

// Stores all rows that were added, and waits until they are stored. A chunk that is not whole is written now, and again
// when it is. The shapes of the arrays' handles are then those of the store.
//
// Errors: the failure that ended the writer; CUZARR_STATUS_CANCELLED; CUZARR_STATUS_INVALID_ARGUMENT for a closed writer.
enum cuzarr_status cuzarr_writer_flush(const struct cuzarr_writer *writer,
                                       struct cuzarr_error **error);

// Stores all rows that were added like cuzarr_writer_flush, and ends the writer, also if it fails. The handle stays until
// cuzarr_writer_free. A second call does nothing.
//
// Errors: those of cuzarr_writer_flush.
enum cuzarr_status cuzarr_writer_close(const struct cuzarr_writer *writer,
                                       struct cuzarr_error **error);

// Frees the handle of a writer. Rows that are gathered are lost, unless the writer was closed. When it returns, nothing
// uses memory that was added with `keeps`. Does nothing for NULL.
void cuzarr_writer_free(struct cuzarr_writer *writer);

// Stores how far a writer has come, also while another thread waits in a call of it: in `position` the first row that is
// not stored yet, of several arrays the smallest; in `end` the row behind the last one that was added, of several arrays
// the largest; and in `waited_seconds` how long calls waited because rows came faster than they were stored.
enum cuzarr_status cuzarr_writer_progress(const struct cuzarr_writer *writer,
                                          uint64_t *position,
                                          uint64_t *end,
                                          double *waited_seconds,
                                          struct cuzarr_error **error);

// Sets the folder with compiled kernels for GPUs, such as share/cuzarr/cubins of an installation; NULL for none. Without
// it, NVIDIA's run-time compiler (NVRTC) makes them when they are first needed. The environment variable
// CUZARR_CUBIN_DIR takes precedence. Call it before arrays are used on a GPU.
enum cuzarr_status cuzarr_set_cubin_directory(const char *path,
                                              struct cuzarr_error **error);

// Makes a cancellation, and stores its handle in `cancellation`. Free it with cuzarr_cancellation_free.
enum cuzarr_status cuzarr_cancellation_new(struct cuzarr_cancellation **cancellation,
                                           struct cuzarr_error **error);

// Stops the calls that were given this cancellation. Returns at once; the calls end before the next stored object that
// they would touch, with CUZARR_STATUS_CANCELLED. May be called from any thread, but not from a signal handler.
enum cuzarr_status cuzarr_cancellation_cancel(const struct cuzarr_cancellation *cancellation,
                                              struct cuzarr_error **error);

// Stores whether a cancellation was cancelled in `is_cancelled`.
enum cuzarr_status cuzarr_cancellation_is_cancelled(const struct cuzarr_cancellation *cancellation,
                                                    bool *is_cancelled,
                                                    struct cuzarr_error **error);

// Frees a cancellation. Calls that were given it go on, and are no longer stopped by it. Does nothing for NULL.
void cuzarr_cancellation_free(struct cuzarr_cancellation *cancellation);

// Reads the elements of a region into new memory on the array's device, and stores it in `tensor` as a structure of
// DLPack, version 1. The caller owns it, and ends it by one call of its deleter, from any thread, also after the array was freed. When the
// call returns, the elements are there, for every stream and for the host.
//
// Errors: those of cuzarr_array_read; CUZARR_STATUS_UNSUPPORTED for data types that DLPack does not have.
enum cuzarr_status cuzarr_array_read_dlpack(const struct cuzarr_array *array,
                                            const struct cuzarr_region *region,
                                            const struct cuzarr_cancellation *cancellation,
                                            struct DLManagedTensorVersioned **tensor,
                                            struct cuzarr_error **error);

// Reads the elements of a region into the memory of a DLPack tensor of another library, on any device. Takes the tensor
// over: its deleter is called once, from any thread, also if the call fails. That may be a moment after the call. Keep the
// memory by the library that owns it, to use the elements. `stream` is that of cuzarr_memory. When the call returns, the elements are there, for
// every stream and for the host.
//
// Errors: those of cuzarr_array_read; CUZARR_STATUS_UNSUPPORTED for structures of another major version, and for devices
// and types that cuzarr does not have.
enum cuzarr_status cuzarr_array_read_into_dlpack(const struct cuzarr_array *array,
                                                 const struct cuzarr_region *region,
                                                 struct DLManagedTensorVersioned *tensor,
                                                 size_t stream,
                                                 const struct cuzarr_cancellation *cancellation,
                                                 struct cuzarr_error **error);

// Writes a DLPack tensor of any library, on any device, to a region. Takes the tensor over: its deleter is called once, from
// any thread, also if the call fails. That may be a moment after the call. The tensor's shape is broadcast to the region's. `stream` is that of cuzarr_memory: the
// call waits for its work before it reads the memory. When the call returns, the elements are stored.
//
// Errors: those of cuzarr_array_write and cuzarr_array_read_into_dlpack.
enum cuzarr_status cuzarr_array_write_dlpack(const struct cuzarr_array *array,
                                             const struct cuzarr_region *region,
                                             struct DLManagedTensorVersioned *tensor,
                                             size_t stream,
                                             const struct cuzarr_cancellation *cancellation,
                                             struct cuzarr_error **error);

// Returns the kind of an error, which is also what the call returned. Returns CUZARR_STATUS_OK for NULL, and
// CUZARR_STATUS_INVALID_ARGUMENT for a handle of another kind.
enum cuzarr_status cuzarr_error_status(const struct cuzarr_error *error);

// Returns the message of an error: what happened, what was given and what was expected, in English. The text belongs to
// the error and lives as long as it. NULL for NULL and for a handle of another kind.
const char *cuzarr_error_message(const struct cuzarr_error *error);

// Returns the hint of an error: what to do about it. The text belongs to the error and lives as long as it. NULL if there
// is no hint, for NULL and for a handle of another kind.
const char *cuzarr_error_hint(const struct cuzarr_error *error);

// Returns all that an error says, to be printed: where it happened (array, chunk, codec), the message and the hint. The
// text belongs to the error and lives as long as it. NULL for NULL and for a handle of another kind.
const char *cuzarr_error_text(const struct cuzarr_error *error);

// Frees an error, with its texts. Does nothing for NULL.
void cuzarr_error_free(struct cuzarr_error *error);

// Returns the name of a status, such as "ChunkCorrupt"; "Other" for a number without a name. The text lives for ever.
const char *cuzarr_status_name(int32_t status);

// Returns the version of the library, such as "0.1.0". The text lives for ever. Compare it with CUZARR_VERSION_MAJOR and
// its neighbours, which are those of the header.
const char *cuzarr_version(void);

// Frees a text that a function of this library made, such as cuzarr_array_attributes. Does nothing for NULL. Texts that
// belong to a handle, such as those of errors, are not freed by it.
void cuzarr_string_free(char *text);

// Opens the group at a path or URL, and stores its handle in `group`. Free it with cuzarr_group_free. The arguments are
// those of cuzarr_array_open; arrays that are opened by the group have its device and options.
//
// Errors: CUZARR_STATUS_GROUP_NOT_FOUND, and what the store and the metadata report.
enum cuzarr_status cuzarr_group_open(const char *url,
                                     const char *device,
                                     const char *options,
                                     struct cuzarr_group **group,
                                     struct cuzarr_error **error);

// Creates a group at a path or URL, and stores its handle in `group`. Free it with cuzarr_group_free. `description` is a
// JSON object with "attributes", "zarr_format" (2 or 3) and "overwrite", or NULL. The other arguments are those of
// cuzarr_array_open.
//
// Errors: CUZARR_STATUS_CONTAINS_ARRAY or CUZARR_STATUS_CONTAINS_GROUP if something is there; what the store reports.
enum cuzarr_status cuzarr_group_create(const char *url,
                                       const char *device,
                                       const char *description,
                                       const char *options,
                                       struct cuzarr_group **group,
                                       struct cuzarr_error **error);

// Frees the handle of a group. What is stored stays, and arrays that were opened by it live on. Does nothing for NULL.
void cuzarr_group_free(struct cuzarr_group *group);

// Stores the direct members of the group in `json`: a JSON object with the name of each, and "array" or "group". Free it
// with cuzarr_string_free. A member whose metadata cannot be read is "unreadable".
//
// Errors: what the store reports.
enum cuzarr_status cuzarr_group_members(const struct cuzarr_group *group,
                                        char **json,
                                        struct cuzarr_error **error);

// Stores the group's attributes in `json`: the text of a JSON object in UTF-8. Free it with cuzarr_string_free.
enum cuzarr_status cuzarr_group_attributes(const struct cuzarr_group *group,
                                           char **json,
                                           struct cuzarr_error **error);

// Replaces all attributes of the group, in the handle and in the store, by the members of the JSON object in `json`.
//
// Errors: CUZARR_STATUS_METADATA_INVALID if it is no JSON object; what the store reports.
enum cuzarr_status cuzarr_group_set_attributes(const struct cuzarr_group *group,
                                               const char *json,
                                               struct cuzarr_error **error);

// Opens the array at a path below the group, such as "t2m" or "pressure/t2m", and stores its handle in `array`. Free it
// with cuzarr_array_free.
//
// Errors: CUZARR_STATUS_ARRAY_NOT_FOUND, and what the store and the metadata report.
enum cuzarr_status cuzarr_group_array(const struct cuzarr_group *group,
                                      const char *path,
                                      struct cuzarr_array **array,
                                      struct cuzarr_error **error);

// Creates an array at a path below the group, with the groups between them, and stores its handle in `array`. Free it with
// cuzarr_array_free. `description` is that of cuzarr_array_create; its format must be that of the group.
//
// Errors: those of cuzarr_array_create.
enum cuzarr_status cuzarr_group_create_array(const struct cuzarr_group *group,
                                             const char *path,
                                             const char *description,
                                             struct cuzarr_array **array,
                                             struct cuzarr_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CUZARR_H */
