"""Kernels of the user's own. What needs no GPU runs everywhere; the rest where CUZARR_REQUIRE_GPU is set or one is found."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

import cuzarr
from cuzarr import _core, errors
from cuzarr.kernels import module as _modules

SOURCE = """
// A comment with a ) in it, and __global__ void commented(double x);
extern "C" __global__ void scale(float *__restrict__ x, const float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
struct Two { int a; double b; };
extern "C" __global__ void fields(double *out, Two two, /* unused, */ const double *nothing) {
    out[0] = two.a; out[1] = two.b; out[2] = nothing == nullptr;
}
template <typename T> __global__ void set(T *x, T value) { x[blockIdx.x] = value; }
extern "C" __global__ void fault(int *x) { x[1ll << 40] = 1; }
"""


def test_a_declaration_says_what_numbers_a_kernel_takes():
    scale = _modules._signature(SOURCE, "scale")
    assert scale == [None, np.dtype("f4"), np.dtype("i4")]
    assert _modules._signature(SOURCE, "fields") == [None, None, None]
    assert _modules._signature(SOURCE, "commented") is None
    text = "__global__ void f(unsigned long long n, size_t, uint8_t const b, bool c, long) {}"
    assert _modules._signature(text, "f") == [np.dtype(t) for t in ("u8", "u8", "u1", "?", "i8")]


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (2, "f4", np.float32(2).tobytes()),
        (-1, "i4", b"\xff" * 4),
        (0.1, "f8", np.float64(0.1).tobytes()),
        (True, "?", b"\x01"),
        (np.int16(3), None, b"\x03\x00"),
        (None, None, bytes(8)),
        (ctypes.c_int(7), None, b"\x07\0\0\0"),
    ],
)
def test_a_number_becomes_what_the_declaration_says(value, dtype, expected):
    dtype = dtype and np.dtype(dtype)
    assert _modules._value(value, dtype, len(expected), "here") == expected


@pytest.mark.parametrize(("value", "dtype"), [(1.5, "i4"), (1 << 40, "i4"), (-1, "u8"), (1, None), ("text", "i4")])
def test_a_number_that_would_be_read_as_another_is_refused(value, dtype):
    with pytest.raises(errors.InvalidArgumentError, match="here"):
        _modules._value(value, dtype and np.dtype(dtype), None, "here")


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [("float31 x", "T y"), ("T x", ""), ("T x", "T x"), ("T i", "T y"), ("x", "T y"), ("complex64 x", "T y")],
)
def test_parameters_without_meaning_are_refused(inputs, outputs):
    with pytest.raises(errors.CuzarrError):
        cuzarr.kernels.ElementwiseKernel(inputs, outputs, "y = x")


def test_host_memory_is_refused_with_the_way_out():
    double = cuzarr.kernels.ElementwiseKernel("T x", "T y", "y = 2 * x")
    with pytest.raises(errors.MemorySpaceError, match="GPU"):
        double(np.ones(3))
    with pytest.raises(errors.CuzarrError):
        cuzarr.kernels.Module(SOURCE, device="cpu")


@pytest.fixture
def device():
    device = os.environ.get("CUZARR_TEST_DEVICE", "cuda:0")
    try:
        _core.NdBuffer.empty([1], "int8", device, "C")
    except errors.CuzarrError as error:
        if os.environ.get("CUZARR_REQUIRE_GPU"):
            raise
        pytest.skip(f"no GPU: {error}")
    return device


def on_device(array, device):
    """A :class:`cuzarr.DeviceArray` with these elements, by the way of a store."""
    made = cuzarr.create_array({}, data=np.ascontiguousarray(array), device=device)
    with cuzarr.config.set({"array_type": "device"}):
        return made[...]


def host(array):
    return array.cpu() if isinstance(array, cuzarr.DeviceArray) else array.get()


def test_a_kernel_runs_with_numbers_structures_and_null(device):
    module = cuzarr.kernels.Module(SOURCE, device=device)
    x = on_device(np.arange(1000, dtype="f4"), device)
    module.get_function("scale")(x, 3, 999, grid=4, block=256)
    expected = np.arange(1000, dtype="f4") * 3
    expected[999] = 999
    np.testing.assert_array_equal(host(x), expected)

    class Two(ctypes.Structure):
        _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_double)]

    out = on_device(np.zeros(3), device)
    module.get_function("fields")(out, Two(5, 0.25), None, grid=1, block=1)
    np.testing.assert_array_equal(host(out), [5, 0.25, 1])

    module.get_function("set<double>")(out, np.float64(7), grid=(3,), block=1)
    np.testing.assert_array_equal(host(out), [7, 7, 7])


def test_launches_that_do_not_fit_are_refused(device):
    scale = cuzarr.kernels.Module(SOURCE, device=device).get_function("scale")
    x = on_device(np.ones(4, "f4"), device)
    for args, shape in [
        ((x, 1.0), {"grid": 1, "block": 4}),
        ((x, 1.0, 2.5), {"grid": 1, "block": 4}),
        ((x, 1.0, 4), {"grid": 0, "block": 4}),
        ((x, 1.0, 4), {"grid": 1, "block": 1 << 12}),
        ((x, np.float64(1), 4), {"grid": 1, "block": 4}),
    ]:
        with pytest.raises(errors.InvalidArgumentError):
            scale(*args, **shape)
    with pytest.raises(errors.MemorySpaceError, match="host memory"):
        scale(np.ones(4, "f4"), 1.0, 4, grid=1, block=4)
    with pytest.raises(errors.InvalidArgumentError, match="no kernel 'scales'"):
        cuzarr.kernels.Module(SOURCE, device=device).get_function("scales")
    np.testing.assert_array_equal(host(x), np.ones(4))


@pytest.mark.parametrize("shapes", [((7,), (7,)), ((3, 1, 5), (4, 1)), ((0, 4), (4,)), ((), (2, 2))])
def test_elementwise_kernels_broadcast_like_numpy(device, shapes):
    rng = np.random.default_rng(7)
    x, y = (np.asarray(rng.normal(size=shape)) for shape in shapes)
    # As NumPy rounds: after each step.
    kernel = cuzarr.kernels.ElementwiseKernel("T x, T y", "T z", "z = x * y - 1", options=["--fmad=false"])
    z = kernel(on_device(x, device), on_device(y, device))
    np.testing.assert_array_equal(host(z), x * y - 1)


def test_elementwise_kernels_take_scalars_raw_arrays_and_outputs(device):
    x = np.arange(100, dtype="i4")
    d = on_device(x, device)
    assert host(cuzarr.kernels.ElementwiseKernel("T x, T y", "T z", "z = x + y")(d, 5)).tolist() == (x + 5).tolist()
    reverse = cuzarr.kernels.ElementwiseKernel("raw T x", "T z", "z = x[n - 1 - i]")
    out = on_device(np.zeros(100, "i4"), device)
    assert host(reverse(d, out)).tolist() == x[::-1].tolist()
    assert host(cuzarr.kernels.ElementwiseKernel("T x", "T z", "z = x + 1")(d, d)).tolist() == (x + 1).tolist()
    with pytest.raises(errors.InvalidArgumentError, match="overlaps"):
        reverse(d, d)
    twice = cuzarr.kernels.ElementwiseKernel("T x", "T y, T z", "y = x; z = x")
    with pytest.raises(errors.InvalidArgumentError, match="overlaps"):
        twice(5, d, d)
    with pytest.raises(errors.DTypeMismatchError):
        cuzarr.kernels.ElementwiseKernel("float32 x", "float32 z", "z = x")(d)
    for number in (2.5, 1 << 40, 1 << 70, 1j, "text"):
        with pytest.raises(errors.InvalidArgumentError):
            twice(number, d, on_device(np.zeros(100, "i4"), device))
    with pytest.raises(errors.KernelCompileFailedError, match=r"mine\(2\)(.|\n)*nonsense"):
        cuzarr.kernels.ElementwiseKernel("T x", "T z", "T y = 2 * x;\nz = y + nonsense", "mine")(d)
    with pytest.raises(errors.ShapeMismatchError):
        cuzarr.kernels.ElementwiseKernel("T x, T y", "T z", "z = x")(d, on_device(np.zeros(3, "i4"), device))


@pytest.mark.parametrize("dtype", ["i1", "u2", "f4", "f8"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 1023, 1024, 100_003])
def test_every_element_is_done_once_whatever_the_alignment(device, dtype, size):
    x = np.arange(size + 1).astype(dtype)
    d = on_device(x, device)
    for start in (0, 1):
        out = on_device(np.zeros(size + 1, dtype), device)
        view = cuzarr.DeviceArray(_core.NdBuffer.from_cuda_array_interface(_part(d, start), device, d), d.dtype)
        target = cuzarr.DeviceArray(_core.NdBuffer.from_cuda_array_interface(_part(out, start), device, out), d.dtype)
        cuzarr.kernels.ElementwiseKernel("T x", "T z", "z += x + 1")(view, target)
        expected = np.zeros(size + 1, dtype)
        expected[start : size + start] = x[start : size + start] + np.ones(1, dtype)
        np.testing.assert_array_equal(host(out), expected)


def _part(array, start):
    """All but one element of an array, from its first or its second on."""
    interface = dict(array.__cuda_array_interface__)
    interface["shape"] = (array.size - 1,)
    interface["data"] = (interface["data"][0] + start * array.dtype.itemsize, False)
    return interface


def test_a_fault_says_that_the_gpu_is_lost(device):
    program = f"""
import numpy as np, cuzarr
from cuzarr import _core, errors
source = {SOURCE!r}
x = cuzarr.DeviceArray(_core.NdBuffer.empty([4], "int32", {device!r}, "C"), np.dtype("i4"))
try:
    cuzarr.kernels.Module(source, device={device!r}).get_function("fault")(x, grid=1, block=1)
except errors.DeviceFailedError as error:
    assert "lost" in str(error), error
    print("said so")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "said so\n", done.stderr
