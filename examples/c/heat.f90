! The heat equation in two dimensions, by Fortran, in host memory.
!
!     heat STORE STEPS
!
! STORE is a path or URL of a group with the array "initial": float64, of any shape. The program adds the array
! "temperature" with one field for each step, and prints the highest temperature at the end. A writer stores the fields of
! 8 steps at a time, while the program computes the next ones.
!
!     gfortran $(pkg-config --variable=fortran cuzarr) heat.f90 -o heat $(pkg-config --libs cuzarr)
program heat
    use, intrinsic :: iso_c_binding
    use cuzarr
    implicit none

    real(c_double), parameter :: diffusion = 0.2_c_double
    character(len=4096) :: store, argument
    character(kind=c_char, len=:), allocatable :: description
    character(kind=c_char, len=8), target :: dtype = "float64"//c_null_char
    type(c_ptr) :: group, initial, temperature, writer, error
    type(cuzarr_memory), target :: memory
    type(cuzarr_rows) :: field(1)
    integer(c_int64_t), target :: shape_2(2)
    ! Zarr's last dimension comes first in Fortran: the array of shape (rows, columns) is field(columns, rows).
    real(c_double), allocatable, target :: now(:, :), next(:, :)
    integer :: steps, at, x, y
    character(len=256) :: text

    if (command_argument_count() /= 2) error stop "usage: heat STORE STEPS"
    call get_command_argument(1, store)
    call get_command_argument(2, argument)
    read (argument, *) steps

    call check(cuzarr_group_open(trim(store)//c_null_char, c_null_ptr, c_null_ptr, group, error))
    call check(cuzarr_group_array(group, "initial"//c_null_char, initial, error))
    call check(cuzarr_array_shape(initial, 2_c_size_t, shape_2, error))
    allocate (now(shape_2(2), shape_2(1)), next(shape_2(2), shape_2(1)))
    memory%size_bytes = size(now)*c_sizeof(now(1, 1))
    memory%dtype = c_loc(dtype)
    memory%data = c_loc(now)
    call check(cuzarr_array_read(initial, c_null_ptr, memory, c_null_ptr, error))
    call cuzarr_array_free(initial)

    write (text, '("{""shape"": [0, ", i0, ", ", i0, "], ""chunks"": [8, ", i0, ", ", i0, "], ")') shape_2, shape_2
    description = trim(text)//'"dtype": "float64", "overwrite": true, "dimension_names": ["time", "y", "x"], '// &
        '"attributes": {"units": "K"}}'//c_null_char
    call check(cuzarr_group_create_array(group, "temperature"//c_null_char, description, temperature, error))

    call check(cuzarr_writer_open([temperature], c_null_ptr, 1_c_size_t, c_null_ptr, c_null_ptr, writer, error))
    field(1)%ndim = 2
    field(1)%shape = c_loc(shape_2)
    field(1)%memory = c_loc(memory)
    do at = 1, steps
        next = now
        do y = 2, size(now, 2) - 1
            do x = 2, size(now, 1) - 1
                next(x, y) = now(x, y) + diffusion*(now(x, y - 1) + now(x, y + 1) + now(x - 1, y) + now(x + 1, y) - 4*now(x, y))
            end do
        end do
        memory%data = c_loc(next)
        call check(cuzarr_writer_append(writer, field, 1_c_size_t, .false._c_bool, error))
        now = next
    end do
    call check(cuzarr_writer_close(writer, error))
    call cuzarr_writer_free(writer)
    print '("highest temperature after ", i0, " steps: ", f0.6)', steps, maxval(now)
    call cuzarr_array_free(temperature)
    call cuzarr_group_free(group)

contains

    ! Ends the program if a call failed, with all that its error says.
    subroutine check(status)
        integer(c_int), intent(in) :: status

        if (status == CUZARR_STATUS_OK) return
        print '(2a)', "heat: ", cuzarr_text(cuzarr_error_text(error))
        call cuzarr_error_free(error)
        error stop 1
    end subroutine check
end program heat
