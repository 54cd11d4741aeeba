"""What users write, for type checkers: `make types` checks this file with mypy and pyright, both strict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import cuzarr
from cuzarr import codecs, dtype, storage, xp
from cuzarr.api import asynchronous
from cuzarr.buffer import cpu
from cuzarr.errors import ArrayNotFoundError, ChunkCorruptError, CuzarrError
from cuzarr.typing import AccessMode, ArrayLike, MemoryArray


def creates_and_opens(folder: Path) -> cuzarr.Array:
    store = storage.LocalStore(folder)
    array = cuzarr.create_array(
        store,
        name="temperature",
        shape=(365, 180, 360),
        chunks=(1, 90, 180),
        shards=(10, 180, 360),
        dtype="float32",
        compressors=codecs.BloscCodec(cname="lz4", shuffle="shuffle"),
        dimension_names=("time", "latitude", "longitude"),
        attributes={"units": "K"},
        overwrite=True,
    )
    array[0] = np.zeros((180, 360), "float32")
    array.attrs["long_name"] = "air temperature"
    array.resize((730, 180, 360))
    array.append(np.ones((1, 180, 360), "float32"), axis="time")
    shape: tuple[int, ...] = array.shape
    shards: tuple[int, ...] | None = array.shards
    dtype: np.dtype[Any] = array.dtype
    print(shape, shards, dtype, array.chunks, array.nchunks, array.metadata.zarr_format, array.compressors)
    return cuzarr.open_array(store, path="temperature", mode="r", device="cpu")


def reads(array: cuzarr.Array) -> float:
    row: MemoryArray = array[0, :, ::2]
    shifted: MemoryArray = 2 * (row - row.mean(axis=0)) / 3 + np.ones(3)
    on_the_host: np.ndarray[Any, np.dtype[Any]] = np.asarray(row)
    difference: cuzarr.Expression = row - array
    print(shifted[0] > 1, on_the_host, difference, float(row.sum()), np.sum(row), row.astype("float32", copy=False).tolist())
    parts: list[MemoryArray] = array.read(device=["cuda:0", "cuda:1"])
    print(parts)
    points = array.vindex[[0, 3], [1, 1], [2, 2]]
    rows = array.oindex[[0, 3], :, 1]
    box = array.read((slice(0, 2), 0), dtype="float64")
    crops = array.read_many([(slice(0, 2), 0), (slice(4, 6), 0)])
    on_host = array.getitem(..., prototype=cpu.buffer_prototype)
    whole: MemoryArray = (array * 2).compute()
    print(whole, points, rows, box, crops, on_host, array.blocks[0], array.explain(...).to_dict(), array.last_report())
    return float(array.mean().compute())


def walks(group: cuzarr.Group) -> dict[str, tuple[int, ...]]:
    nested = group.require_group("a").create_array("b", shape=4, dtype="int16")
    group["c"] = np.arange(3)
    for name, node in group.members(max_depth=None):
        if isinstance(node, cuzarr.Array):
            print(name, node.size, nested.path)
    print(group.tree(), group.info, "c" in group, len(group), list(group.keys()))
    return {name: array.shape for name, array in group.arrays()}


def double(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return block * 2


def computes(array: cuzarr.Array, out: cuzarr.Array) -> cuzarr.Expression:
    anomaly: cuzarr.Expression = array.astype("float64")
    scaled = (array - array.mean(axis="time")) / 2 + anomaly
    rounded = xp.round(cuzarr.xp.sqrt(scaled * scaled), 2)
    rounded.store(out, memory_limit="1 GiB", progress=True)
    blocks = cuzarr.map_blocks(double, array, out={}, dtype="float32")
    print(blocks, cuzarr.xp.median(array, axis=0), np.asarray(array))
    return anomaly


def functions(array: cuzarr.Array, values: np.ndarray[Any, Any]) -> cuzarr.Expression:
    speed: cuzarr.Expression = (
        cuzarr.xp.hypot(array, cuzarr.xp.sin(array)) + cuzarr.xp.abs(array) - cuzarr.xp.mean(array, axis="time")
    )
    chosen: cuzarr.Expression = cuzarr.xp.where(cuzarr.xp.isfinite(speed), speed, 0)
    print(cuzarr.xp.sqrt(values), cuzarr.xp.sum(values), cuzarr.xp.max(array), cuzarr.xp.tan(values), cuzarr.xp.std(values))
    counts, edges = cuzarr.xp.histogram(array, bins=10)
    print(counts, edges, cuzarr.xp.quantile(array, 0.5), cuzarr.xp.full(3, 1.0))
    limited: cuzarr.Expression = cuzarr.xp.clip(chosen, 0, 1)
    return limited


def neighbours(array: cuzarr.Array) -> None:
    print(cuzarr.xarray.GroupStore, cuzarr.zarr.enable, cuzarr.kvikio.open_cupy_array)
    print(cuzarr.dask.from_cuzarr(array), cuzarr.torch.Variable(array))


def samples(array: cuzarr.Array) -> int:
    rows = cuzarr.loader.BatchDataset({"x": array}, 4, shuffle=True, weights=[1.0, 2.0], samples=8)
    cells = cuzarr.loader.SparseRows("x.zarr/X", 4, obs="x.zarr/obs", columns=["kind"], dense=True, dtype="float32", shuffle=True)
    windows = cuzarr.loader.WindowDataset(cuzarr.loader.Variable(array, at={"time": 0}), {"time": (-3, 1)}, 4)
    stream = cuzarr.loader.SampleStream([{"x": (array, 0), "y": ("labels.zarr", slice(0, 4))}], 2, skip_bad=True)
    again = cuzarr.loader.SampleStream(lambda epoch: [{"x": (array, epoch)}], 2, rank=0, world_size=2)
    again.load_state_dict(stream.state_dict())
    return len(rows) + len(cells) + len(windows)


def data_types(array: cuzarr.Array) -> str:
    made: dtype.DataType = dtype.Float32(endianness="big")
    stored = dtype.parse_dtype("int16", zarr_format=3)
    if isinstance(stored, dtype.DateTime64):
        return "dates"
    record = dtype.Struct(fields=[("a", dtype.Int8()), ("b", "float64")])
    print(made.item_bytes, record.native, dtype.FixedLengthUTF32(length=4), dtype.VariableLengthUTF8().is_variable)
    return str(array.dtype)


def stores(folder: Path, url: str) -> list[storage.StoreLike]:
    place: storage.StoreLike = storage.make_store_path(folder / "a.zarr", path="b")
    split = storage.SplitStore(storage.MemoryStore(), storage.LocalStore(folder, read_only=True))
    with storage.ZipStore(folder / "a.zip", mode="w") as archive:
        cuzarr.save(archive, np.arange(3))
    return [place, split, url, {}, folder]


def writes_everywhere(array: cuzarr.Array, points: list[int]) -> None:
    array[...] = 1
    array.oindex[points, :, 0] = np.zeros((len(points), 180))
    array.vindex[points, points, points] = 2.0
    array.blocks[0, 0] = 3
    array.set_mask_selection(np.ones(array.shape, bool), 4)
    array.update_attributes({"history": ["filled"]})
    print(array.cdata_shape, array.nchunks_initialized, array.nbytes_stored(), array.info_complete())


def kernels(a: cuzarr.DeviceArray) -> None:
    scale = cuzarr.kernels.ElementwiseKernel("T x, T factor", "T y", "y = x * factor", "scale")
    module = cuzarr.kernels.Module('extern "C" __global__ void f(float* x) {}', device="cuda:0")
    function = module.get_function("f")
    print(scale(a, 2.0), function.registers, function.max_threads, module.device)


def copies(source: cuzarr.Array, folder: Path) -> cuzarr.Array:
    plan: cuzarr.CopyPlan = cuzarr.rechunk(source, folder / "a", chunks={"time": -1}, dry_run=True)
    print(plan.to_dict())
    cuzarr.from_array(folder / "b", data=source, chunks=(1, 180, 360), overwrite=True)
    return cuzarr.copy(source, folder / "c", compressors=codecs.ZstdCodec(level=3), resume=True)


def blocks(array: cuzarr.Array, values: np.ndarray[Any, Any], client: Any) -> tuple[float, float]:
    in_memory: MemoryArray = cuzarr.map_blocks(double, array, values)
    stored: cuzarr.Array = cuzarr.map_blocks(double, array, out="doubled.zarr", chunks=(1, 180, 360), client=client)
    levels: cuzarr.Group = cuzarr.pyramid(array, "levels.zarr", method="max")
    print(in_memory, stored, levels, cuzarr.pyramid(array, {}, dry_run=True)["levels"])

    def extent(block: np.ndarray[Any, Any]) -> tuple[float, float]:
        return float(block.min()), float(block.max())

    def joined(one: tuple[float, float], two: tuple[float, float]) -> tuple[float, float]:
        return min(one[0], two[0]), max(one[1], two[1])

    return cuzarr.reduce(extent, joined, array)


def configures() -> int:
    with cuzarr.config.set({"array.order": "F"}), cuzarr.memory.limit("512 MiB"):
        info = cuzarr.memory.info("cpu")
    return info.in_flight


def handles_errors(path: str) -> str | None:
    try:
        return str(cuzarr.open_array(path, mode="r")[...])
    except ArrayNotFoundError as error:
        return error.hint
    except ChunkCorruptError as error:
        return error.kind
    except CuzarrError as error:
        return error.message


def moves(array: cuzarr.DeviceArray) -> np.ndarray[Any, Any]:
    again = array.reshape(-1).astype("float32") + 1
    print(again, array.T.shape, array.device, xp.asarray(np.ones(3), device="cpu"))
    return array.cpu()


async def awaits(array: cuzarr.Array) -> Any:
    twin: cuzarr.AsyncArray = array.async_array
    await twin.setitem(0, 5)
    opened = await asynchronous.open_array({}, mode="r")
    print(opened, twin.shape, await twin.nchunks_initialized())
    length: tuple[int, ...] = await twin.append(np.zeros((1, 180, 360)))
    created: cuzarr.AsyncArray = await asynchronous.create_array({}, shape=length, dtype=dtype.Int16())
    group: cuzarr.AsyncGroup = await asynchronous.open_group({}, mode="a")
    names = [name async for name, _ in group.arrays()]
    print(names, created.shape, await group.nmembers())
    await asynchronous.save("a.zarr", np.arange(3))
    return await twin.getitem(...)


def decodes(frames: list[bytes]) -> np.ndarray[Any, Any]:
    out = np.empty((len(frames), 1000), "u1")
    codecs.Decoder(codecs.GzipCodec(level=1), device="cpu").decode(frames, out)
    return out


def opens(path: str, mode: AccessMode, data: ArrayLike) -> MemoryArray:
    """The types of arguments and results, in users' own signatures."""
    array = cuzarr.open_array(path, mode=mode, shape=(4,), chunks=2, dtype="float32", fill_value=1, device="cuda:1")
    array[...] = data
    return array[:2]


def reads_cells(group: cuzarr.Group, path: Path) -> int:
    """Rows of a sparse matrix, and columns of a data frame."""
    dataset: cuzarr.sparse.CSRDataset | cuzarr.sparse.CSCDataset = cuzarr.sparse.sparse_dataset(group, device="cpu")
    rows = [dataset.nnz, 0, 1]
    matrix: cuzarr.sparse.Matrix = cuzarr.sparse.read(path, rows, slice(0, 3), dtype="float32")
    kind: cuzarr.sparse.Column = cuzarr.sparse.read_column(group, "cell_type", rows)
    frame = cuzarr.sparse.read_frame(group, names=["cell_type"], rows=np.array([True, False]))
    is_missing: MemoryArray = kind.values == -1
    print(matrix.data[:2], matrix.has_sorted_indices, frame["cell_type"].categories, is_missing, dataset.explain(columns=rows))
    return matrix.shape[0] + len(frame.index)


def results_of_functions(
    array: cuzarr.Array, values: np.ndarray[Any, np.dtype[Any]], held: cuzarr.DeviceArray, view: cuzarr.LazyArray
) -> None:
    """Plans of arrays in a store; arrays of the same library for NumPy's and for DeviceArray."""
    planned: cuzarr.Expression = xp.sqrt(array) + xp.sum(view, axis="time") - xp.clip(array, 0, 1)
    compared: cuzarr.Expression = (array >= held) & xp.isclose(values, array) | (view == 0)
    joined: cuzarr.Expression = xp.concatenate([array, view], axis=0)
    roots: np.ndarray[Any, np.dtype[Any]] = xp.sqrt(values)
    on_the_device: cuzarr.DeviceArray = xp.sqrt(held) + 2 * held[0] - values
    mixed: cuzarr.Expression = held + array
    total: MemoryArray = xp.sum(values)
    stored: cuzarr.Array = planned.store("planned.zarr", chunks=(1, 90, 180), overwrite=True)
    same: cuzarr.LazyArray = planned.store(view)
    print(
        compared,
        joined,
        roots,
        on_the_device.T,
        mixed,
        float(total),
        stored.chunks,
        same.shape,
        abs(array),
        -view,
        divmod(array, 2),
    )
