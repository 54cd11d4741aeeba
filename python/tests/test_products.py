"""Products of matrices in memory of the host and of a GPU, beside NumPy's. Floats on a GPU need cuBLAS."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import (
    DTypeMismatchError,
    LibraryMissingError,
    MemorySpaceError,
    ShapeMismatchError,
    UnsupportedError,
)

xp: Any = cuzarr.xp
WHOLE = "? i1 u1 i2 u2 i4 u4 i8 u8".split()
FLOATS = "f2 f4 f8 c8 c16".split()
SHAPES = [
    ((2, 3), (3, 4)),
    ((1, 1), (1, 1)),
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (7, 3, 1)),
    ((1, 2, 3), (6, 3, 2)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((4, 2, 3), (0, 1, 3, 4)),
    ((1, 40), (40, 1)),
    ((33, 70), (70, 65)),
]


def values_of(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    choose = np.random.default_rng(seed)
    if dtype == "?":
        return choose.random(shape) < 0.3
    if dtype[0] in "iu":
        return choose.integers(0, 120, shape).astype(dtype) * np.array(7, dtype)
    # Whole numbers: sums of them are exact in any order.
    own = choose.integers(-3, 4, shape).astype(dtype)
    return own + (choose.integers(-3, 4, shape) * 1j).astype(dtype) if dtype[0] == "c" else own


def there(values: np.ndarray[Any, Any], device: str) -> Any:
    return cuzarr.DeviceArray.from_host(values, device)


def same(got: Any, expected: Any) -> None:
    assert isinstance(got, cuzarr.DeviceArray)
    expected = np.asarray(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_array_equal(got.cpu(), expected)


@pytest.fixture
def with_cublas(gpu: str) -> str:
    one = there(np.ones((1, 1), "f4"), gpu)
    try:
        one._buffer.matmul(one._buffer)
    except LibraryMissingError as error:
        pytest.skip(f"skipped: {error}")
    return gpu


def check(dtype: str, device: str) -> None:
    for number, (ours, theirs) in enumerate(SHAPES):
        a, b = values_of(dtype, ours, number), values_of(dtype, theirs, number + 50)
        x, y = there(a, device), there(b, device)
        same(x @ y, a @ b)
        same(np.matmul(x, y), np.matmul(a, b))
        # The same matrices, stored column by column.
        turned = there(np.ascontiguousarray(a.T), device).T, there(np.ascontiguousarray(b.T), device).T
        same(turned[0] @ y, a @ b)
        same(x @ turned[1], a @ b)
        same(turned[0] @ turned[1], a @ b)
        apart = [there(np.repeat(np.repeat(one, 2, 0), 3, -1), device)[::2, ..., ::3] for one in (a, b) if one.ndim > 1]
        if len(apart) == 2:
            same(apart[0] @ apart[1], a @ b)
            same(x[..., ::-1] @ y[..., ::-1, :], a @ b)
    a, b = values_of(dtype, (4, 3, 5), 1), values_of(dtype, (5, 3, 6), 2)
    x, y = there(a, device), there(b, device)
    for axes in (1, ([2, 1], [0, 1]), ([1], [1]), (2, 0), 0):
        same(xp.tensordot(x, y, axes=axes), np.tensordot(a, b, axes))
    same(np.tensordot(x, y, axes=1), np.tensordot(a, b, 1))
    same(xp.tensordot(x[0], x[0], axes=2), np.tensordot(a[0], a[0], 2))
    same(xp.vecdot(x, x[0]), np.sum((a.conj() if dtype[0] == "c" else a) * a[0], -1, dtype=a.dtype))


@pytest.mark.parametrize("dtype", WHOLE)
def test_products_of_whole_numbers_and_bools_have_numpys_bits(gpu: str, dtype: str) -> None:
    check(dtype, gpu)


@pytest.mark.parametrize("dtype", FLOATS)
def test_products_of_floats_and_complex_numbers_are_numpys(with_cublas: str, dtype: str) -> None:
    check(dtype, with_cublas)


def test_products_of_random_floats_are_near_to_exact_ones(with_cublas: str) -> None:
    choose = np.random.default_rng(3)
    for dtype, tolerance in (("f2", 2e-3), ("f4", 1e-5), ("f8", 1e-13), ("c8", 1e-5), ("c16", 1e-13)):
        a, b = choose.random((3, 65, 130)), choose.random((3, 130, 67))
        if dtype[0] == "c":
            a, b = a + 0.5j, b - 0.25j
        a, b = a.astype(dtype), b.astype(dtype)
        got = (there(a, with_cublas) @ there(b, with_cublas)).cpu()
        wide = "c16" if dtype[0] == "c" else "f8"
        np.testing.assert_allclose(got, a.astype(wide) @ b.astype(wide), rtol=tolerance)
    odd = np.array([[np.inf, 1.0], [np.nan, 2.0]])
    np.testing.assert_array_equal((there(odd, with_cublas) @ there(np.eye(2), with_cublas)).cpu(), odd @ np.eye(2))


def test_many_matrices_and_types_that_meet(with_cublas: str) -> None:
    a, b = values_of("f4", (70000, 2, 3), 1), values_of("f4", (70000, 3, 2), 2)
    same(there(a, with_cublas) @ there(b, with_cublas), a @ b)
    c, d = values_of("f4", (5, 6), 3), values_of("i4", (6, 7), 4) % 10
    same(there(c, with_cublas) @ there(d, with_cublas), c @ d)
    numbers = pytest.importorskip("ml_dtypes").bfloat16
    small = values_of("f4", (5, 6), 5)
    got = there(small.astype(numbers), with_cublas) @ there(small.T.astype(numbers), with_cublas)
    assert got.dtype == numbers
    np.testing.assert_array_equal(got.cpu().astype("f4"), small @ small.T)


def test_products_of_the_host_are_numpys(gpu: str) -> None:
    first, second = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    for got, expected in [
        (xp.matmul(first, second), first @ second),
        (xp.tensordot(first, second, axes=1), np.tensordot(first, second, 1)),
        (there(first, "cpu") @ second, first @ second),
        (second.T @ there(first, "cpu").T, second.T @ first.T),
    ]:
        np.testing.assert_array_equal(got, expected)
    with pytest.raises(ShapeMismatchError, match="matmul"):
        xp.matmul(first, first)


def test_wrong_products_are_refused(gpu: str) -> None:
    x = there(np.ones((2, 3), "i4"), gpu)
    for call in (
        lambda: x @ x,
        lambda: x @ x[0, 0],
        lambda: x @ x[0, :2],
        lambda: there(np.ones((2, 2, 3), "i4"), gpu) @ there(np.ones((3, 3, 2), "i4"), gpu),
        lambda: xp.tensordot(x, x, axes=3),
        lambda: xp.tensordot(x, x, axes=1),
        lambda: xp.tensordot(x, x, axes=([0, 0], [0, 0])),
        lambda: xp.tensordot(x, x, axes=([0], [0, 1])),
        lambda: xp.tensordot(x, x, axes=([5], [0])),
    ):
        with pytest.raises(ShapeMismatchError, match="matmul|tensordot"):
            call()
    for beside in (lambda: x @ np.ones((3, 2), "i4"), lambda: np.ones((3, 2), "i4") @ x):
        with pytest.raises(MemorySpaceError, match="move one"):
            beside()
    with pytest.raises(DTypeMismatchError, match="no numbers"):
        there(np.zeros((2, 2), "S2"), gpu) @ there(np.zeros((2, 2), "S2"), gpu)
    stored = cuzarr.create_array({}, data=np.ones((3, 2)), chunks=(1, 2))
    for lazy in (stored, stored + 1):
        with pytest.raises(UnsupportedError, match="matmul"):
            x @ lazy


def test_floats_without_cublas_say_what_to_use(gpu: str) -> None:
    one = there(np.ones((2, 2), "f4"), gpu)
    try:
        one._buffer.matmul(one._buffer)
    except LibraryMissingError:
        for call in (lambda: one @ one, lambda: np.matmul(one, one), lambda: xp.tensordot(one, one, axes=1)):
            with pytest.raises(UnsupportedError, match=r"(?s)without cuBLAS.*CuPy's cupy.(matmul|tensordot)"):
                call()
    else:
        pytest.skip("skipped: cuBLAS is here")
