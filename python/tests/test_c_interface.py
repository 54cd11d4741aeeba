"""Programs in C, C++ and Fortran that use the C interface as it is installed: those of examples/c and of the guide. They read what
zarr-python wrote, and zarr-python reads what they write. A test whose compiler is missing says so."""

from __future__ import annotations

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cuzarr

zarr = pytest.importorskip("zarr")

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "c"
STEPS = 9

pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="the examples are not at hand")


def run(*command: object, folder: pathlib.Path | None = None, **variables: str) -> str:
    # Compilers and these programs do without the sanitizer that scripts/with-simt preloads.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} | variables
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True, timeout=600, cwd=folder, env=environment)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder in which the C interface is installed, moved after it was installed there."""
    built = ROOT / "target" / "debug"
    if not (built / "libcuzarr.a").exists():
        pytest.skip("libcuzarr.a is not built: run make build")
    need("cc")
    folder = tmp_path_factory.mktemp("c")
    run(ROOT / "scripts" / "link-c-library", built)
    run(ROOT / "scripts" / "install-c", folder / "first", built)
    return (folder / "first").rename(folder / "prefix")


Compile = Callable[..., pathlib.Path]


@pytest.fixture
def compiled(prefix: pathlib.Path, tmp_path: pathlib.Path) -> Compile:
    """Compiles a program by the flags that pkg-config has, as the guide says it."""
    need("pkg-config")

    def compiled(compiler: str, *arguments: object) -> pathlib.Path:
        need(compiler)
        variables = {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "cuzarr", **variables).split()
        if compiler == "gfortran":
            arguments = (run("pkg-config", "--variable=fortran", "cuzarr", **variables).strip(), f"-J{tmp_path}", *arguments)
        program = tmp_path / "program"
        run(compiler, "-Wall", "-Wextra", "-Werror", *arguments, *flags, f"-Wl,-rpath,{prefix}/lib", "-o", program)
        return program

    return compiled


def heat(field: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The fields after each step, by NumPy."""
    fields = []
    for _ in range(STEPS):
        neighbours = field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:]
        field = field.copy()
        field[1:-1, 1:-1] += 0.2 * (neighbours - 4 * field[1:-1, 1:-1])
        fields.append(field)
    return np.stack(fields)


@pytest.mark.parametrize(
    "compiler",
    [["gcc", "-std=c11", "heat.c"], ["g++", "-std=c++17", "heat.cpp"], ["gfortran", "-std=f2018", "heat.f90"]],
    ids=lambda compiler: compiler[-1],
)
def test_heat_between_zarr_python_and(compiler: list[str], compiled: Compile, tmp_path: pathlib.Path) -> None:
    program = compiled(*compiler[:-1], EXAMPLES / compiler[-1])
    store = tmp_path / "heat.zarr"
    initial = np.random.default_rng(5).random((33, 47))
    group = zarr.create_group(store)
    group.create_array("initial", data=initial, chunks=(10, 20), shards=(40, 60))
    expected = heat(initial)
    printed = run(program, store, STEPS)
    assert re.search(r"(\d*\.\d+)\s*$", printed), printed
    number = float(printed.split()[-1])
    assert min(abs(number - expected[-1].max()), abs(number - expected[-1].sum())) < 1e-5
    temperature = zarr.open_group(store, mode="r")["temperature"]
    assert temperature.shape == expected.shape and temperature.chunks == (8, 33, 47)
    assert temperature.attrs["units"] == "K" and temperature.metadata.dimension_names == ("time", "y", "x")
    np.testing.assert_allclose(temperature[:], expected, rtol=1e-13)


@pytest.mark.parametrize("source", ["heat.c", "heat.cpp", "heat.f90"])
def test_a_missing_group_is_told_by(source: str, compiled: Compile, tmp_path: pathlib.Path) -> None:
    compiler = {".c": "gcc", ".cpp": "g++", ".f90": "gfortran"}[pathlib.Path(source).suffix]
    program = compiled(compiler, *(["-std=c++17"] if source == "heat.cpp" else []), EXAMPLES / source)
    done = subprocess.run([program, tmp_path / "nothing", "1"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "no group" in done.stdout + done.stderr, done


BLOCK = re.compile(r"^```c\n(.*?)^```", re.M | re.S)


def test_the_programs_of_the_guide(compiled: Compile, prefix: pathlib.Path, tmp_path: pathlib.Path) -> None:
    page = (ROOT / "docs" / "guide" / "c.md").read_text()
    first, *parts = BLOCK.findall(page)
    assert "int main(void)" in first and len(parts) == 5
    (tmp_path / "first.c").write_text(first)
    printed = run(compiled("gcc", tmp_path / "first.c"), folder=tmp_path)
    assert printed == "-1 290 291\n" and "It prints `-1 290 291`" in page
    static = re.search(r"^cc .*libcuzarr\.a .*$", page, re.M)
    assert static is not None
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "first.c").write_text(first)
    run("bash", "-c", static[0], folder=tmp_path / "static", PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig"))
    assert run("./first", folder=tmp_path / "static") == printed
    array = zarr.open_array(tmp_path / "first.zarr", mode="r")
    assert array[7, 499] == 779 and array[8, 0] == -1 and array.attrs["units"] == "K"
    # The other blocks use the array of the first one. That of a GPU is compiled alone.
    before, _, _ = first.partition("int main(void)")
    calls = "".join(f"    part{number}(array);\n" for number, part in enumerate(parts) if "cuda:" not in part)
    functions = "".join(
        f"void part{number}(cuzarr_array *array);\nvoid part{number}(cuzarr_array *array)\n{{\n    (void)array;\n{part}}}\n"
        for number, part in enumerate(parts)
    )
    main = f'int main(void)\n{{\n    cuzarr_array *array = NULL;\n    check(cuzarr_array_open("first.zarr", "cpu", "{{}}", &array, &error));\n{calls}'
    (tmp_path / "parts.c").write_text(before + functions + main + "    cuzarr_array_free(array);\n    return 0;\n}\n")
    run(compiled("gcc", tmp_path / "parts.c"), folder=tmp_path)
    steps = zarr.open_array(tmp_path / "steps.zarr", mode="r")
    assert steps.shape == (20, 500)
    np.testing.assert_array_equal(steps[:, 0], np.arange(20))


FORTRAN = """
program rows
    use, intrinsic :: iso_c_binding
    use cuzarr
    implicit none
    type(c_ptr) :: group, arrays(2), writer, error
    character(kind=c_char, len=16), target :: options = '{"slots": 3}'//c_null_char
    type(cuzarr_memory), target :: field_memory, time_memory
    type(cuzarr_rows) :: step(2)
    real(c_float), target :: field(4, 3)
    integer(c_int64_t), target :: time, extent(2) = [3, 4]
    integer(c_int64_t) :: position, last
    real(c_double) :: waited
    character(len=1024) :: store
    integer :: at

    call get_command_argument(1, store)
    call check(cuzarr_group_open(trim(store)//c_null_char, c_null_ptr, c_null_ptr, group, error))
    call check(cuzarr_group_array(group, "field"//c_null_char, arrays(1), error))
    call check(cuzarr_group_array(group, "time"//c_null_char, arrays(2), error))
    call check(cuzarr_writer_open(arrays, c_null_ptr, 2_c_size_t, c_loc(options), c_null_ptr, writer, error))
    field_memory%data = c_loc(field)
    field_memory%size_bytes = c_sizeof(field)
    time_memory%data = c_loc(time)
    time_memory%size_bytes = c_sizeof(time)
    step(1)%ndim = 2
    step(1)%shape = c_loc(extent)
    step(1)%memory = c_loc(field_memory)
    step(2)%array = 1
    step(2)%memory = c_loc(time_memory)
    ! The rows come from the last one to the first.
    do at = 4, 0, -1
        field = real(at, c_float)
        field(2, 3) = -1
        time = 10*at
        call check(cuzarr_writer_write(writer, int(at, c_int64_t), step, 2_c_size_t, .false._c_bool, error))
    end do
    call check(cuzarr_writer_flush(writer, error))
    field = 5
    time = 50
    call check(cuzarr_writer_append(writer, step, 2_c_size_t, .true._c_bool, error))
    call check(cuzarr_writer_close(writer, error))
    call check(cuzarr_writer_progress(writer, position, last, waited, error))
    print '(i0, 1x, i0, 1x, l1)', position, last, waited >= 0
    call cuzarr_writer_free(writer)
    call cuzarr_array_free(arrays(1))
    call cuzarr_array_free(arrays(2))
    call cuzarr_group_free(group)

contains

    subroutine check(status)
        integer(c_int), intent(in) :: status

        if (status == CUZARR_STATUS_OK) return
        print '(a)', cuzarr_text(cuzarr_error_text(error))
        error stop 1
    end subroutine check
end program rows
"""


def test_fortran_writes_rows_of_two_arrays_in_any_order(compiled: Compile, tmp_path: pathlib.Path) -> None:
    (tmp_path / "rows.f90").write_text(FORTRAN)
    program = compiled("gfortran", "-std=f2018", tmp_path / "rows.f90")
    group = zarr.create_group(tmp_path / "rows.zarr")
    group.create_array("field", shape=(0, 3, 4), chunks=(2, 3, 4), dtype="float32")
    group.create_array("time", shape=(0,), chunks=(4,), dtype="int64")
    assert run(program, tmp_path / "rows.zarr") == "6 6 T\n"
    group = zarr.open_group(tmp_path / "rows.zarr", mode="r")
    expected = np.repeat(np.arange(6, dtype="float32"), 12).reshape(6, 3, 4)
    expected[:5, 2, 1] = -1
    np.testing.assert_array_equal(group["field"][:], expected)
    np.testing.assert_array_equal(group["time"][:], 10 * np.arange(6))


class Tensor:
    """A structure of DLPack that a call stored, for consumers of the same process."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: object) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(self.address, b"dltensor_versioned", None)


def test_both_engines_read_one_array_in_one_process(prefix: pathlib.Path, tmp_path: pathlib.Path) -> None:
    values = np.arange(600, dtype="int32").reshape(20, 30)
    ours = cuzarr.create_array(tmp_path / "array.zarr", data=values, chunks=(7, 8))
    library = ctypes.CDLL(str(prefix / "lib" / "libcuzarr.so"))
    array, tensor = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.cuzarr_array_open(str(tmp_path / "array.zarr").encode(), b"cpu", None, ctypes.byref(array), None) == 0
    assert library.cuzarr_array_read_dlpack(array, None, None, ctypes.byref(tensor), None) == 0
    assert tensor.value is not None
    theirs = np.from_dlpack(Tensor(tensor.value))
    # NumPy calls the deleter when its array is gone, after the handle.
    library.cuzarr_array_free(array)
    np.testing.assert_array_equal(theirs, ours[:])
    np.testing.assert_array_equal(theirs, values)


@pytest.mark.parametrize("target", ["cuzarr", "cuzarr_static"])
def test_cmake_finds_it(target: str, prefix: pathlib.Path, tmp_path: pathlib.Path) -> None:
    need("cmake", "gcc")
    (tmp_path / "version.c").write_text(
        "#include <cuzarr.h>\n#include <stdio.h>\nint main(void) { return puts(cuzarr_version()) < 0; }\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(version C)\nfind_package(cuzarr 0.1 REQUIRED)\nadd_executable(version version.c)\n"
        f"target_link_libraries(version PRIVATE cuzarr::{target})\n"
        'if(NOT EXISTS "${cuzarr_FORTRAN}")\n    message(FATAL_ERROR "no Fortran module: ${cuzarr_FORTRAN}")\nendif()\n'
    )
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    assert (
        run(tmp_path / "build" / "version") == re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M)[1] + "\n"
    )


def test_cmake_refuses_another_version(prefix: pathlib.Path, tmp_path: pathlib.Path) -> None:
    need("cmake")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(version C)\nfind_package(cuzarr 0.2 REQUIRED)\n"
    )
    done = subprocess.run(
        ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0 and "0.1.0" in done.stderr
