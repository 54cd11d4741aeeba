"""NaNs in storage: those that are given or copied keep their bits, those that are computed are the canonical one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import on, to_host

import cuzarr

#: The bits of NaNs that are not canonical: of the real part and, where numbers are complex, of the imaginary one.
PAYLOADS = {
    "f2": 0x7E01,
    "bfloat16": 0x7F81,
    "f4": 0xFFC00000,
    "f8": 0x7FF8000000000007,
    "c8": 0x7FC00001,
    "c16": 0xFFF8000000000000,
}
CANONICAL = {"f2": 0x7E00, "bfloat16": 0x7FC0, "f4": 0x7FC00000, "f8": 0x7FF8000000000000}
FORMATS = [{"zarr_format": 2}, {"zarr_format": 3}, {"zarr_format": 3, "shards": (8, 4)}, {"zarr_format": 3, "compressors": None}]


def numpy_type(dtype: str) -> np.dtype[Any]:
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def bits(array: Any) -> np.ndarray[Any, Any]:
    """The elements' bits; of complex numbers those of each part."""
    array = np.ascontiguousarray(to_host(array))
    width = array.dtype.itemsize // (2 if array.dtype.kind == "c" else 1)
    return array.view(f"u{width}")


def nans(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    own = numpy_type(dtype)
    parts = 2 if own.kind == "c" else 1
    return np.full((*shape[:-1], shape[-1] * parts), PAYLOADS[dtype], f"u{own.itemsize // parts}").view(own)


def create(dtype: str, **settings: Any) -> cuzarr.Array:
    fill = complex(np.nan, np.nan) if dtype in ("c8", "c16") else np.nan
    if dtype == "bfloat16":
        settings["zarr_format"] = 3
    return cuzarr.create_array(
        {}, **({"shape": (16, 8), "chunks": (4, 4), "dtype": numpy_type(dtype), "fill_value": fill} | settings)
    )


def same_bits(array: cuzarr.Array, expected: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(bits(array.with_device("cpu")[...]), bits(expected))


@pytest.mark.parametrize("settings", FORMATS, ids=str)
@pytest.mark.parametrize("dtype", PAYLOADS)
def test_nans_of_another_payload_are_stored_where_the_fill_value_is_nan(
    dtype: str, settings: dict[str, Any], device: str
) -> None:
    value = nans(dtype, (16, 8))
    array = create(dtype, **settings)
    array.with_device(device)[...] = on(device, value) if dtype != "bfloat16" else value
    assert array.nchunks_initialized == array.nchunks
    same_bits(array, value)


@pytest.mark.parametrize("settings", FORMATS, ids=str)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c16"])
def test_parts_of_chunks_keep_the_bits_of_nans(dtype: str, settings: dict[str, Any], device: str) -> None:
    array, value = create(dtype, **settings), nans(dtype, (16, 8))
    target, given = array.with_device(device), on(device, value)
    expected = np.full((16, 8), array.fill_value)
    # A part of chunks that are not stored, a part of one that then is, rows of a list, and single points.
    target[1:3, 1:7] = given[1:3, 1:7]
    target[2:6, :] = given[2:6, :]
    target.oindex[[9, 10, 15], :] = given[:3, :]
    target.vindex[[13, 12], [0, 7]] = given[:2, 0]
    expected[1:3, 1:7] = value[1:3, 1:7]
    expected[2:6] = value[2:6]
    expected[[9, 10, 15]] = value[:3]
    expected[[13, 12], [0, 7]] = value[:2, 0]
    same_bits(array, expected)


@pytest.mark.parametrize("dtype", PAYLOADS)
def test_chunks_of_the_canonical_nan_stay_empty(dtype: str, device: str) -> None:
    array = create(dtype)
    array[...] = np.full((16, 8), array.fill_value)
    if dtype != "bfloat16":
        array.with_device(device)[2:7, :] = on(device, np.full((5, 8), array.fill_value))
    assert array.nchunks_initialized == 0


def test_complex_chunks_are_empty_only_if_both_parts_are_the_fill_values() -> None:
    array = create("c8", fill_value=complex(np.nan, 0.0))
    array[:4] = complex(np.nan, -0.0)
    array[4:8] = complex(np.nan, 0.0)
    assert array.nchunks_initialized == 2
    np.testing.assert_array_equal(np.signbit(array[:8].imag), np.repeat([True, False], 4)[:, None].repeat(8, 1))


@pytest.mark.parametrize("settings", FORMATS, ids=str)
@pytest.mark.parametrize("dtype", PAYLOADS)
def test_copies_keep_the_bits_of_nans(dtype: str, settings: dict[str, Any], device: str) -> None:
    value = nans(dtype, (16, 8))
    source = create(dtype)
    source[...] = value
    formats = {"zarr_format": 3} if dtype == "bfloat16" else {"zarr_format": settings["zarr_format"]}
    same_bits(cuzarr.copy(source, {}, device=device, **formats), value)
    same_bits(cuzarr.rechunk(source, {}, chunks=(16, 2), device=device), value)
    same_bits(cuzarr.from_array({}, data=source), value)
    same_bits(cuzarr.from_array({}, data=value, chunks=(4, 4), fill_value=source.fill_value), value)


def test_a_fill_value_with_a_payload_is_written_out_for_format_2(device: str) -> None:
    payload = nans("f4", (1,))[0]
    source = cuzarr.create_array({}, shape=(8,), chunks=(4,), dtype="f4", fill_value=payload)
    source[:2] = 1
    copied = cuzarr.copy(source, {}, zarr_format=2, device=device)
    same_bits(copied, to_host(source[...]))


@pytest.mark.parametrize("dtype", PAYLOADS)
def test_elements_that_are_only_moved_keep_the_bits_of_nans(dtype: str, device: str) -> None:
    value = nans(dtype, (16, 8))
    array = create(dtype).with_device(device)
    array[...] = value
    for plan, expected in [
        (cuzarr.xp.flip(array, axis=0), value),
        (cuzarr.xp.concatenate([array, array]), np.concatenate([value, value])),
        (cuzarr.xp.where(cuzarr.xp.isnan(array), array, array + array), value),
        (cuzarr.xp.permute_dims(array, (1, 0)), value.T),
    ]:
        target = create(dtype, shape=expected.shape)
        plan.store(target)
        same_bits(target, expected)


#: Computations whose results are all NaN, by the elements 0 and infinity. Processors give them different bits.
NAN_RESULTS: dict[str, Any] = {
    "0/0": lambda x: (x - x) / (x - x),
    "inf - inf": lambda x: 1 / (x - x) - 1 / (x - x),
    "sqrt(-1)": lambda x: cuzarr.xp.sqrt(-1 - abs(x)),
    "sign of NaN": lambda x: -(x * np.nan),
    "conversion": lambda x: (x * np.nan).astype("f4"),
    "running": lambda x: cuzarr.xp.cumsum(x / 0 - x / 0, axis=0),
}


@pytest.mark.parametrize("name", NAN_RESULTS)
@pytest.mark.parametrize("dtype", CANONICAL)
def test_computed_nans_are_canonical_and_their_chunks_empty(name: str, dtype: str, device: str) -> None:
    array = create(dtype).with_device(device)
    array[...] = np.ones((16, 8), numpy_type(dtype))
    plan = NAN_RESULTS[name](array)
    kind = "f4" if name == "conversion" else dtype
    target = create(kind)
    plan.store(target)
    assert target.nchunks_initialized == 0
    np.testing.assert_array_equal(bits(plan.compute()), CANONICAL[kind])


REDUCTIONS: dict[str, Any] = {
    name: (lambda x, name=name: getattr(cuzarr.xp, name)(x, axis=0))
    for name in ("sum", "prod", "mean", "std", "var", "min", "max", "median", "nanmean", "nanmin", "nanmedian")
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", CANONICAL)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_reductions_give_the_canonical_nan(name: str, dtype: str, device: str) -> None:
    array = create(dtype).with_device(device)
    array[...] = nans(dtype, (16, 8))
    result = bits(REDUCTIONS[name](array).compute())
    np.testing.assert_array_equal(result, CANONICAL[dtype])


def test_complex_reductions_give_the_canonical_nan(device: str) -> None:
    array = create("c8").with_device(device)
    array[...] = nans("c8", (16, 8))
    for name in ("sum", "mean"):
        np.testing.assert_array_equal(bits(REDUCTIONS[name](array).compute()), CANONICAL["f4"])


@pytest.mark.parametrize("method", ["mean", "max", "gaussian"])
@pytest.mark.parametrize("dtype", CANONICAL)
def test_pyramids_have_the_canonical_nan_and_empty_chunks(method: str, dtype: str, device: str, tmp_path: Path) -> None:
    array = create(dtype)
    array[...] = nans(dtype, (16, 8))
    group = cuzarr.pyramid(array, tmp_path / "p", levels=2, method=method, device=device)
    first, second = (group[name] for name in sorted(group.array_keys()))
    same_bits(first, nans(dtype, (16, 8)))
    np.testing.assert_array_equal(bits(second.with_device("cpu")[...]), CANONICAL[dtype])


def test_a_nearest_pyramid_keeps_the_bits_of_nans(device: str, tmp_path: Path) -> None:
    array = create("f4")
    array[...] = nans("f4", (16, 8))
    group = cuzarr.pyramid(array, tmp_path / "p", levels=2, method="nearest", device=device)
    same_bits(group[sorted(group.array_keys())[1]], nans("f4", (8, 4)))


@pytest.mark.parametrize("fill", [0x3FC0, 0xBF80, 0x7F80, 0x7FC0, 0x7F81, 0xFFC0])
def test_fill_values_of_bfloat16_keep_their_bits(fill: int) -> None:
    own = numpy_type("bfloat16")
    store: dict[str, Any] = {}
    cuzarr.create_array(store, shape=(2,), dtype=own, fill_value=np.array(fill, "u2").view(own)[()])
    array = cuzarr.open_array(store, mode="r")
    np.testing.assert_array_equal(bits(array.with_device("cpu")[...]), fill)
    assert bits(np.asarray(array.fill_value)) == fill


@pytest.mark.parametrize(("bits", "name"), [("u2", "f2"), ("u4", "f4"), ("u8", "f8")])
def test_fill_values_that_are_numbers_of_numpy_keep_a_signalling_nan(bits: str, name: str) -> None:
    exponent = {"u2": 0x7C01, "u4": 0x7F800001, "u8": 0x7FF0000000000001}[bits]
    fill = np.array([exponent], bits).view(name)[0]
    for array in (
        cuzarr.create_array({}, shape=(2,), dtype=name, fill_value=fill),
        cuzarr.full((2,), fill, store={}, dtype=name),
    ):
        assert array[:].view(bits).tolist() == [exponent, exponent]
