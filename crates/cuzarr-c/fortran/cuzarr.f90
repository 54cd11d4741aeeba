! The C interface of cuzarr for Fortran: Zarr arrays in GPU memory or host memory.
!
! The functions are those of cuzarr.h, where their pages are. Handles and texts are of type(c_ptr). Texts that are needed are
! character(kind=c_char) and end with c_null_char. Those that may be missing, and regions, are pointers: c_loc(...) or
! c_null_ptr. An array u(nx, ny, nz) of Fortran is the array of shape (nz, ny, nx) of Zarr, without any strides.
module cuzarr
    use, intrinsic :: iso_c_binding
    implicit none
    private

    ! A box of elements; the lists are pointers to integer(c_int64_t).
    type, bind(c), public :: cuzarr_region
        integer(c_size_t) :: ndim = 0
        type(c_ptr) :: start = c_null_ptr, shape = c_null_ptr, step = c_null_ptr
    end type cuzarr_region

    ! Memory with the elements of a region; strides is a pointer to integer(c_int64_t), device and dtype point to texts.
    type, bind(c), public :: cuzarr_memory
        type(c_ptr) :: data = c_null_ptr
        integer(c_size_t) :: size_bytes = 0, offset_bytes = 0
        type(c_ptr) :: strides = c_null_ptr, device = c_null_ptr, dtype = c_null_ptr
        integer(c_size_t) :: stream = 0
    end type cuzarr_memory

    ! One read of cuzarr_read_many: pointers to an array's handle, a region and memory.
    type, bind(c), public :: cuzarr_read
        type(c_ptr) :: array = c_null_ptr, region = c_null_ptr, memory = c_null_ptr
    end type cuzarr_read

    ! Rows of one array of a writer: its number, from 0; shape is a pointer to integer(c_int64_t), memory to cuzarr_memory.
    type, bind(c), public :: cuzarr_rows
        integer(c_size_t) :: array = 0, ndim = 0
        type(c_ptr) :: shape = c_null_ptr, memory = c_null_ptr
    end type cuzarr_rows

    ! The memory may be touched at once: 2**64 - 1.
    integer(c_size_t), parameter, public :: CUZARR_STREAM_READY = -1

    integer(c_int), parameter, public :: CUZARR_STATUS_OK = 0
    integer(c_int), parameter, public :: CUZARR_STATUS_INVALID_ARGUMENT = 1
    integer(c_int), parameter, public :: CUZARR_STATUS_OUT_OF_RANGE = 2
    integer(c_int), parameter, public :: CUZARR_STATUS_CONFIG_INVALID = 3
    integer(c_int), parameter, public :: CUZARR_STATUS_NODE_NOT_FOUND = 4
    integer(c_int), parameter, public :: CUZARR_STATUS_ARRAY_NOT_FOUND = 5
    integer(c_int), parameter, public :: CUZARR_STATUS_GROUP_NOT_FOUND = 6
    integer(c_int), parameter, public :: CUZARR_STATUS_CONTAINS_ARRAY = 7
    integer(c_int), parameter, public :: CUZARR_STATUS_CONTAINS_GROUP = 8
    integer(c_int), parameter, public :: CUZARR_STATUS_METADATA_INVALID = 9
    integer(c_int), parameter, public :: CUZARR_STATUS_UNKNOWN_CODEC = 10
    integer(c_int), parameter, public :: CUZARR_STATUS_UNKNOWN_DATA_TYPE = 11
    integer(c_int), parameter, public :: CUZARR_STATUS_UNSUPPORTED_FEATURE = 12
    integer(c_int), parameter, public :: CUZARR_STATUS_SELECTION_INVALID = 13
    integer(c_int), parameter, public :: CUZARR_STATUS_SHAPE_MISMATCH = 14
    integer(c_int), parameter, public :: CUZARR_STATUS_DTYPE_MISMATCH = 15
    integer(c_int), parameter, public :: CUZARR_STATUS_CHUNK_CORRUPT = 16
    integer(c_int), parameter, public :: CUZARR_STATUS_CHECKSUM_MISMATCH = 17
    integer(c_int), parameter, public :: CUZARR_STATUS_CHUNK_NOT_FOUND = 18
    integer(c_int), parameter, public :: CUZARR_STATUS_ENCODE_FAILED = 19
    integer(c_int), parameter, public :: CUZARR_STATUS_KEY_INVALID = 20
    integer(c_int), parameter, public :: CUZARR_STATUS_STORE_FAILED = 21
    integer(c_int), parameter, public :: CUZARR_STATUS_PERMISSION_DENIED = 22
    integer(c_int), parameter, public :: CUZARR_STATUS_READ_ONLY = 23
    integer(c_int), parameter, public :: CUZARR_STATUS_MEMORY_SPACE = 24
    integer(c_int), parameter, public :: CUZARR_STATUS_UNSUPPORTED = 25
    integer(c_int), parameter, public :: CUZARR_STATUS_DEVICE_UNAVAILABLE = 26
    integer(c_int), parameter, public :: CUZARR_STATUS_LIBRARY_MISSING = 27
    integer(c_int), parameter, public :: CUZARR_STATUS_BUDGET_EXCEEDED = 28
    integer(c_int), parameter, public :: CUZARR_STATUS_OUT_OF_MEMORY = 29
    integer(c_int), parameter, public :: CUZARR_STATUS_KERNEL_COMPILE_FAILED = 30
    integer(c_int), parameter, public :: CUZARR_STATUS_DEVICE_FAILED = 31
    integer(c_int), parameter, public :: CUZARR_STATUS_FALLBACK_REFUSED = 32
    integer(c_int), parameter, public :: CUZARR_STATUS_CANCELLED = 33
    integer(c_int), parameter, public :: CUZARR_STATUS_OTHER = 999
    integer(c_int), parameter, public :: CUZARR_STATUS_PANICKED = 1000

    public :: cuzarr_text
    public :: cuzarr_array_open, cuzarr_array_create, cuzarr_array_free, &
        cuzarr_array_ndim, cuzarr_array_shape, cuzarr_array_chunk_shape, &
        cuzarr_array_dtype, cuzarr_array_element_bytes, cuzarr_array_metadata, &
        cuzarr_array_attributes, cuzarr_array_set_attributes, cuzarr_array_read, &
        cuzarr_array_write, cuzarr_read_many, cuzarr_writer_open, &
        cuzarr_writer_append, cuzarr_writer_write, cuzarr_writer_flush, &
        cuzarr_writer_close, cuzarr_writer_free, cuzarr_writer_progress, &
        cuzarr_set_cubin_directory, &
        cuzarr_cancellation_new, cuzarr_cancellation_cancel, cuzarr_cancellation_is_cancelled, &
        cuzarr_cancellation_free, cuzarr_array_read_dlpack, cuzarr_array_read_into_dlpack, &
        cuzarr_array_write_dlpack, cuzarr_error_status, cuzarr_error_message, &
        cuzarr_error_hint, cuzarr_error_text, cuzarr_error_free, &
        cuzarr_status_name, cuzarr_version, cuzarr_string_free, &
        cuzarr_group_open, cuzarr_group_create, cuzarr_group_free, &
        cuzarr_group_members, cuzarr_group_attributes, cuzarr_group_set_attributes, &
        cuzarr_group_array, cuzarr_group_create_array

    interface
        function cuzarr_array_open(url, device, options, array, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_char
            character(kind=c_char), intent(in) :: url(*)
            type(c_ptr), value :: device, options
            type(c_ptr), intent(out) :: array, error
            integer(c_int) :: answer
        end function cuzarr_array_open
        function cuzarr_array_create(url, device, description, options, array, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_char
            character(kind=c_char), intent(in) :: url(*), description(*)
            type(c_ptr), value :: device, options
            type(c_ptr), intent(out) :: array, error
            integer(c_int) :: answer
        end function cuzarr_array_create
        subroutine cuzarr_array_free(array) bind(c)
            import :: c_ptr
            type(c_ptr), value :: array
        end subroutine cuzarr_array_free
        function cuzarr_array_ndim(array, ndim, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_size_t
            type(c_ptr), value :: array
            integer(c_size_t), intent(out) :: ndim
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_array_ndim
        function cuzarr_array_shape(array, ndim, shape, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_size_t, c_int64_t
            type(c_ptr), value :: array
            integer(c_size_t), value :: ndim
            integer(c_int64_t), intent(out) :: shape(*)
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_array_shape
        function cuzarr_array_chunk_shape(array, ndim, shape, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_size_t, c_int64_t
            type(c_ptr), value :: array
            integer(c_size_t), value :: ndim
            integer(c_int64_t), intent(out) :: shape(*)
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_array_chunk_shape
        function cuzarr_array_dtype(array, dtype, error) bind(c) result(answer)
            import :: c_ptr, c_int
            type(c_ptr), value :: array
            type(c_ptr), intent(out) :: dtype, error
            integer(c_int) :: answer
        end function cuzarr_array_dtype
        function cuzarr_array_element_bytes(array, size_bytes, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_size_t
            type(c_ptr), value :: array
            integer(c_size_t), intent(out) :: size_bytes
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_array_element_bytes
        function cuzarr_array_metadata(array, json, error) bind(c) result(answer)
            import :: c_ptr, c_int
            type(c_ptr), value :: array
            type(c_ptr), intent(out) :: json, error
            integer(c_int) :: answer
        end function cuzarr_array_metadata
        function cuzarr_array_attributes(array, json, error) bind(c) result(answer)
            import :: c_ptr, c_int
            type(c_ptr), value :: array
            type(c_ptr), intent(out) :: json, error
            integer(c_int) :: answer
        end function cuzarr_array_attributes
        function cuzarr_array_set_attributes(array, json, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_char
            type(c_ptr), value :: array
            character(kind=c_char), intent(in) :: json(*)
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_array_set_attributes
        function cuzarr_array_read(array, region, memory, cancellation, error) bind(c) result(answer)
            import :: c_ptr, c_int, cuzarr_memory
            type(c_ptr), value :: array, region, cancellation
            type(cuzarr_memory), intent(in) :: memory
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_array_read
        function cuzarr_array_write(array, region, memory, cancellation, error) bind(c) result(answer)
            import :: c_ptr, c_int, cuzarr_memory
            type(c_ptr), value :: array, region, cancellation
            type(cuzarr_memory), intent(in) :: memory
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_array_write
        function cuzarr_read_many(reads, count, cancellation, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_size_t, cuzarr_read
            type(cuzarr_read), intent(in) :: reads(*)
            integer(c_size_t), value :: count
            type(c_ptr), value :: cancellation
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_read_many
        function cuzarr_writer_open(arrays, axes, count, options, cancellation, writer, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_size_t
            type(c_ptr), intent(in) :: arrays(*)
            type(c_ptr), value :: axes, options, cancellation
            integer(c_size_t), value :: count
            type(c_ptr), intent(out) :: writer, error
            integer(c_int) :: answer
        end function cuzarr_writer_open
        function cuzarr_writer_append(writer, rows, count, keeps, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_size_t, c_bool, cuzarr_rows
            type(c_ptr), value :: writer
            type(cuzarr_rows), intent(in) :: rows(*)
            integer(c_size_t), value :: count
            logical(c_bool), value :: keeps
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_writer_append
        function cuzarr_writer_write(writer, row, rows, count, keeps, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_size_t, c_int64_t, c_bool, cuzarr_rows
            type(c_ptr), value :: writer
            integer(c_int64_t), value :: row
            type(cuzarr_rows), intent(in) :: rows(*)
            integer(c_size_t), value :: count
            logical(c_bool), value :: keeps
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_writer_write
        function cuzarr_writer_flush(writer, error) bind(c) result(answer)
            import :: c_ptr, c_int
            type(c_ptr), value :: writer
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_writer_flush
        function cuzarr_writer_close(writer, error) bind(c) result(answer)
            import :: c_ptr, c_int
            type(c_ptr), value :: writer
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_writer_close
        subroutine cuzarr_writer_free(writer) bind(c)
            import :: c_ptr
            type(c_ptr), value :: writer
        end subroutine cuzarr_writer_free
        function cuzarr_writer_progress(writer, position, end, waited_seconds, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_int64_t, c_double
            type(c_ptr), value :: writer
            integer(c_int64_t), intent(out) :: position, end
            real(c_double), intent(out) :: waited_seconds
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_writer_progress
        function cuzarr_set_cubin_directory(path, error) bind(c) result(answer)
            import :: c_ptr, c_int
            type(c_ptr), value :: path
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_set_cubin_directory
        function cuzarr_cancellation_new(cancellation, error) bind(c) result(answer)
            import :: c_ptr, c_int
            type(c_ptr), intent(out) :: cancellation, error
            integer(c_int) :: answer
        end function cuzarr_cancellation_new
        function cuzarr_cancellation_cancel(cancellation, error) bind(c) result(answer)
            import :: c_ptr, c_int
            type(c_ptr), value :: cancellation
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_cancellation_cancel
        function cuzarr_cancellation_is_cancelled(cancellation, is_cancelled, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_bool
            type(c_ptr), value :: cancellation
            logical(c_bool), intent(out) :: is_cancelled
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_cancellation_is_cancelled
        subroutine cuzarr_cancellation_free(cancellation) bind(c)
            import :: c_ptr
            type(c_ptr), value :: cancellation
        end subroutine cuzarr_cancellation_free
        function cuzarr_array_read_dlpack(array, region, cancellation, tensor, error) bind(c) result(answer)
            import :: c_ptr, c_int
            type(c_ptr), value :: array, region, cancellation
            type(c_ptr), intent(out) :: tensor, error
            integer(c_int) :: answer
        end function cuzarr_array_read_dlpack
        function cuzarr_array_read_into_dlpack(array, region, tensor, stream, cancellation, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_size_t
            type(c_ptr), value :: array, region, tensor, cancellation
            integer(c_size_t), value :: stream
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_array_read_into_dlpack
        function cuzarr_array_write_dlpack(array, region, tensor, stream, cancellation, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_size_t
            type(c_ptr), value :: array, region, tensor, cancellation
            integer(c_size_t), value :: stream
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_array_write_dlpack
        function cuzarr_error_status(error) bind(c) result(answer)
            import :: c_ptr, c_int
            type(c_ptr), value :: error
            integer(c_int) :: answer
        end function cuzarr_error_status
        function cuzarr_error_message(error) bind(c) result(answer)
            import :: c_ptr
            type(c_ptr), value :: error
            type(c_ptr) :: answer
        end function cuzarr_error_message
        function cuzarr_error_hint(error) bind(c) result(answer)
            import :: c_ptr
            type(c_ptr), value :: error
            type(c_ptr) :: answer
        end function cuzarr_error_hint
        function cuzarr_error_text(error) bind(c) result(answer)
            import :: c_ptr
            type(c_ptr), value :: error
            type(c_ptr) :: answer
        end function cuzarr_error_text
        subroutine cuzarr_error_free(error) bind(c)
            import :: c_ptr
            type(c_ptr), value :: error
        end subroutine cuzarr_error_free
        function cuzarr_status_name(status) bind(c) result(answer)
            import :: c_ptr, c_int32_t
            integer(c_int32_t), value :: status
            type(c_ptr) :: answer
        end function cuzarr_status_name
        function cuzarr_version() bind(c) result(answer)
            import :: c_ptr
            type(c_ptr) :: answer
        end function cuzarr_version
        subroutine cuzarr_string_free(text) bind(c)
            import :: c_ptr
            type(c_ptr), value :: text
        end subroutine cuzarr_string_free
        function cuzarr_group_open(url, device, options, group, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_char
            character(kind=c_char), intent(in) :: url(*)
            type(c_ptr), value :: device, options
            type(c_ptr), intent(out) :: group, error
            integer(c_int) :: answer
        end function cuzarr_group_open
        function cuzarr_group_create(url, device, description, options, group, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_char
            character(kind=c_char), intent(in) :: url(*)
            type(c_ptr), value :: device, description, options
            type(c_ptr), intent(out) :: group, error
            integer(c_int) :: answer
        end function cuzarr_group_create
        subroutine cuzarr_group_free(group) bind(c)
            import :: c_ptr
            type(c_ptr), value :: group
        end subroutine cuzarr_group_free
        function cuzarr_group_members(group, json, error) bind(c) result(answer)
            import :: c_ptr, c_int
            type(c_ptr), value :: group
            type(c_ptr), intent(out) :: json, error
            integer(c_int) :: answer
        end function cuzarr_group_members
        function cuzarr_group_attributes(group, json, error) bind(c) result(answer)
            import :: c_ptr, c_int
            type(c_ptr), value :: group
            type(c_ptr), intent(out) :: json, error
            integer(c_int) :: answer
        end function cuzarr_group_attributes
        function cuzarr_group_set_attributes(group, json, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_char
            type(c_ptr), value :: group
            character(kind=c_char), intent(in) :: json(*)
            type(c_ptr), intent(out) :: error
            integer(c_int) :: answer
        end function cuzarr_group_set_attributes
        function cuzarr_group_array(group, path, array, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_char
            type(c_ptr), value :: group
            character(kind=c_char), intent(in) :: path(*)
            type(c_ptr), intent(out) :: array, error
            integer(c_int) :: answer
        end function cuzarr_group_array
        function cuzarr_group_create_array(group, path, description, array, error) bind(c) result(answer)
            import :: c_ptr, c_int, c_char
            type(c_ptr), value :: group
            character(kind=c_char), intent(in) :: path(*), description(*)
            type(c_ptr), intent(out) :: array, error
            integer(c_int) :: answer
        end function cuzarr_group_create_array

        function c_length(text) bind(c, name="strlen") result(length)
            import :: c_ptr, c_size_t
            type(c_ptr), value :: text
            integer(c_size_t) :: length
        end function c_length
    end interface

contains

    ! A text of C as a text of Fortran; empty for a null pointer.
    function cuzarr_text(text) result(copy)
        type(c_ptr), intent(in) :: text
        character(len=:), allocatable :: copy
        character(kind=c_char), pointer :: characters(:)
        integer :: at

        if (.not. c_associated(text)) then
            copy = ""
            return
        end if
        call c_f_pointer(text, characters, [c_length(text)])
        allocate (character(len=size(characters)) :: copy)
        do at = 1, size(characters)
            copy(at:at) = characters(at)
        end do
    end function cuzarr_text
end module cuzarr
