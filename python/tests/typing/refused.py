"""What type checkers refuse. `make types` fails where one of these lines is no error: an `ignore` that nothing needs is one."""

# mypy: warn_unused_ignores
# pyright: reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cuzarr
from cuzarr import codecs, storage, xp


def choices(folder: Path) -> None:
    cuzarr.open_array(folder, mode="zzz")  # type: ignore[arg-type]
    cuzarr.open_group(folder, mode="rw")  # type: ignore[arg-type]
    cuzarr.open(folder, zarr_format=4)  # type: ignore[arg-type]
    storage.make_store_path(folder, mode="x")  # type: ignore[arg-type]
    codecs.BloscCodec(cname="zstandard")  # type: ignore[arg-type]
    codecs.BytesCodec(endian="middle")  # type: ignore[arg-type]
    codecs.ShardingCodec(chunk_shape=(2,), index_location="middle")  # type: ignore[arg-type]


def arguments_of_new_arrays() -> None:
    cuzarr.create_array({}, shape=3, dtype="int8", chunks="big")  # type: ignore[arg-type]
    cuzarr.create_array({}, shape=3, dtype="int8", shards="full")  # type: ignore[arg-type]
    cuzarr.create_array({}, shape="3", dtype="int8")  # type: ignore[arg-type]
    cuzarr.create_array({}, shape=3, dtype="int8", order="D")  # type: ignore[arg-type]
    cuzarr.create_array({}, shape=3, dtype="int8", compressors=5)  # type: ignore[arg-type]
    cuzarr.create_array({}, shape=3, dtype="int8", chunk_key_encoding=("v4", "."))  # type: ignore[arg-type]
    cuzarr.create_array(5, shape=3, dtype="int8")  # type: ignore[arg-type]
    cuzarr.zeros((3,), store={}, chunk=2)  # type: ignore[call-arg]
    cuzarr.full((3,), 1, dimension_separator="-")  # type: ignore[arg-type]
    cuzarr.open_array({}, shape=(3,), overwrite=True)  # type: ignore[call-arg]
    cuzarr.save_array({}, np.ones(3), dtypes="int8")  # type: ignore[call-arg]


def members(group: cuzarr.Group) -> None:
    group.create_group("a", overwite=True)  # type: ignore[call-arg]
    group.zeros(name="a", shape=(3,), chunks="big")  # type: ignore[arg-type]
    group.require_array("a", shape=(3,), exact="yes")  # type: ignore[arg-type]


def selections(array: cuzarr.Array) -> None:
    array.read(device=3)  # type: ignore[call-overload]
    array.resize("big")  # type: ignore[arg-type]
    array.getitem(..., progress="yes")  # type: ignore[arg-type]
    array[0].chunks  # type: ignore[attr-defined]


def results(array: cuzarr.Array, group: cuzarr.Group, folder: Path) -> None:
    cuzarr.copy(array, folder).to_dict()  # type: ignore[attr-defined]
    cuzarr.copy(array, folder, dry_run=True).shape  # type: ignore[attr-defined]
    cuzarr.copy(group, folder).shape  # type: ignore[attr-defined]
    cuzarr.copy(array, folder, device=0)  # type: ignore[call-overload]
    cuzarr.rechunk(array, folder)  # type: ignore[call-overload]
    cuzarr.pyramid(array, folder, method="median")  # type: ignore[call-overload]
    cuzarr.map_blocks(np.sin, array, chunks="big")  # type: ignore[arg-type]


def plans(array: cuzarr.Array, values: npt.NDArray[np.float64], plan: cuzarr.Expression) -> None:
    (array + 1).chunks  # type: ignore[attr-defined]
    (1 - array.lazy[2:]).shards  # type: ignore[attr-defined]
    (array > 0).to_dict()  # type: ignore[attr-defined]
    array.mean().nchunks  # type: ignore[attr-defined]
    array.mean(axis=1.5)  # type: ignore[arg-type]
    plan.compute().compute()  # type: ignore[attr-defined]
    plan.compute(device=0)  # type: ignore[arg-type]
    plan.store({}).compute()  # type: ignore[attr-defined]
    plan.store({}, chunks="big")  # type: ignore[arg-type]
    xp.sqrt(array).tolist()  # type: ignore[attr-defined]
    xp.sqrt(values).compute()  # type: ignore[attr-defined]
    xp.sum(values).compute()  # type: ignore[attr-defined]
    xp.sum(array, axes=0)  # type: ignore[call-overload]


def memory(array: cuzarr.DeviceArray) -> None:
    (array * 2).compute()  # type: ignore[attr-defined]
    array.astype("float32", order="D")  # type: ignore[arg-type]
    array.sum().chunks  # type: ignore[attr-defined]
