"""Libraries around: both ways, and without a copy where the memory is already in the right place."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import cuzarr

TRUTH = np.arange(12 * 10, dtype="f4").reshape(12, 10)


def make(place: Any, **more: Any) -> cuzarr.Array:
    return cuzarr.create_array(place, data=TRUTH, chunks=(5, 4), **more)


def host(value: Any) -> np.ndarray[Any, Any]:
    return value.get() if hasattr(value, "get") else value.cpu() if hasattr(value, "cpu") else np.asarray(value)


def address(value: Any) -> int:
    """Where an array's elements are."""
    if isinstance(value, np.ndarray):
        return int(value.ctypes.data)
    return int(value.__cuda_array_interface__["data"][0])


@pytest.fixture
def cuda(gpu: str) -> str:
    """A real GPU: other libraries know no other."""
    if not gpu.startswith("cuda"):
        pytest.skip("skipped: there is no GPU")
    return gpu


# ------------------------------------------------------------------------------------------------ arrays of other libraries


def test_numpy_shares_the_memory_of_results() -> None:
    array = make({})
    result = array[2:4]
    assert type(result) is np.ndarray and result.flags.writeable and result.flags.owndata is False
    assert np.shares_memory(np.from_dlpack(result), result) and np.shares_memory(np.asarray(result), result)
    out = np.empty((2, 10), "f4")
    assert array.get_basic_selection(slice(2, 4), out=out) is out and (out == TRUTH[2:4]).all()


def test_torch_shares_the_memory_of_results_and_is_written_from_where_it_is(device: str) -> None:
    torch = pytest.importorskip("torch")
    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("skipped: PyTorch has no GPU")
    from cuzarr.torch import to_tensor

    array = make({})
    with cuzarr.config.set({"array_type": "device"}):
        result = array[:]
    tensor = to_tensor(result)
    assert tensor.data_ptr() == address(result) and tensor.device.type == ("cpu" if device == "cpu" else "cuda")
    array[3:5] = tensor[:2] * 2
    np.testing.assert_array_equal(host(array[3:5]), TRUTH[:2] * 2)


def test_cupy_shares_the_memory_of_results_and_is_written_from_where_it_is(cuda: str) -> None:
    cupy = pytest.importorskip("cupy")
    array = make({})
    with cuzarr.config.set({"array_type": "device"}):
        result = array[:]
    for taken in (cupy.asarray(result), cupy.from_dlpack(result)):
        assert taken.data.ptr == address(result)
    with cuzarr.config.set({"array_type": "cupy"}):
        assert type(array[:]) is cupy.ndarray
    array[3:5] = cupy.asarray(TRUTH[:2]) * 2
    np.testing.assert_array_equal(host(array[3:5]), TRUTH[:2] * 2)


@pytest.mark.parametrize("dtype", ["i4,f4", "V4", "bfloat16"])
def test_cupy_gets_structures_and_bfloat16_where_it_has_them(cuda: str, dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    element = np.dtype(pytest.importorskip("ml_dtypes").bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    try:
        cupy.empty((0,), element)
    except (TypeError, ValueError) as error:
        pytest.skip(f"skipped: {error}")
    data = np.arange(5 * element.itemsize, dtype="u1").view(element)
    array = cuzarr.create_array({}, data=data, chunks=(2,))
    result = array[:]
    assert type(result) is cupy.ndarray and result.dtype == element and result.get().tobytes() == data.tobytes()
    array[1:3] = result[3:5]
    assert array.with_device("cpu")[:].tobytes() == (data[:1].tobytes() + data[3:5].tobytes() + data[3:].tobytes())


def test_jax_shares_the_memory_of_results_and_is_written_from_where_it_is(device: str) -> None:
    jax = pytest.importorskip("jax")
    if device != "cpu" and jax.default_backend() != "gpu":
        pytest.skip("skipped: JAX has no GPU")
    array = make({})
    with cuzarr.config.set({"array_type": "device"}):
        result = array[:]
    taken = jax.dlpack.from_dlpack(result)
    assert taken.unsafe_buffer_pointer() == address(result) or device == "cpu"  # JAX copies what is not aligned to 64 bytes
    array[3:5] = taken[:2] * 2
    np.testing.assert_array_equal(host(array[3:5]), TRUTH[:2] * 2)


def test_numba_kernels_run_on_results(cuda: str, numba_cuda: Any) -> None:
    @numba_cuda.jit  # type: ignore[untyped-decorator]
    def double(elements: Any) -> None:
        place = numba_cuda.grid(1)
        if place < elements.shape[0]:
            for column in range(elements.shape[1]):
                elements[place, column] *= 2

    array = make({})
    with cuzarr.config.set({"array_type": "device"}):
        result = array[:]
        double[1, 32](result)
        numba_cuda.synchronize()
        array[:] = numba_cuda.as_cuda_array(result)
    np.testing.assert_array_equal(host(array[:]), TRUTH * 2)


NUMBAS_OWN = """
import sys
# NVIDIA's package numba-cuda puts itself in the place of Numba's own by a finder of modules.
sys.meta_path[:] = [finder for finder in sys.meta_path if "numba" not in getattr(finder, "__module__", type(finder).__module__)]
import numpy as np, numba.cuda, cuzarr
truth = np.arange(120, dtype="f4").reshape(12, 10)
array = cuzarr.create_array({}, data=truth, chunks=(5, 4), device="cuda")

@numba.cuda.jit
def double(elements):
    place = numba.cuda.grid(1)
    if place < elements.shape[0]:
        for column in range(elements.shape[1]):
            elements[place, column] *= 2

with cuzarr.config.set({"array_type": "device"}):
    result = array[:]
double[1, 32](result)
numba.cuda.synchronize()
array[:] = numba.cuda.as_cuda_array(result)
assert (array.with_device("cpu")[:] == truth * 2).all()
print("doubled by", numba.cuda.__file__)
"""


def test_kernels_of_numbas_own_target_run_on_results(cuda: str) -> None:
    pytest.importorskip("numba", minversion="0.68")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", NUMBAS_OWN], capture_output=True, text=True, check=False)
    if "CudaSupportError" in done.stderr:
        pytest.skip(f"skipped: Numba does not run here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    assert "numba_cuda" not in done.stdout, done.stdout


def test_pycuda_takes_results_where_they_are_and_is_written_from(cuda: str) -> None:
    driver = pytest.importorskip("pycuda.driver")
    gpuarray = pytest.importorskip("pycuda.gpuarray")
    driver.init()
    context = driver.Device(0).retain_primary_context()
    context.push()
    try:
        array = make({})
        with cuzarr.config.set({"array_type": "device"}):
            result = array[:]
        taken = gpuarray.GPUArray(result.shape, result.dtype, gpudata=address(result))
        np.testing.assert_array_equal(taken.get(), TRUTH)
        array[3:5] = gpuarray.to_gpu(TRUTH[:2] * 2)
        np.testing.assert_array_equal(host(array[3:5]), TRUTH[:2] * 2)
    finally:
        context.pop()


def test_pointers_are_enough_for_the_driver(cuda: str) -> None:
    """What PyCUDA and others do with ``__cuda_array_interface__``, without them: the driver copies from and to the address."""
    import ctypes

    driver = ctypes.CDLL("libcuda.so.1")
    array = make({})
    with cuzarr.config.set({"array_type": "device"}):
        result = array[:]
    interface = result.__cuda_array_interface__
    assert interface["shape"] == TRUTH.shape and interface["typestr"] == "<f4"
    assert interface.get("strides") in (None, TRUTH.strides)
    # Calls of the driver need a context on their thread; libraries share the device's primary one.
    context = ctypes.c_void_p()
    assert driver.cuInit(0) == driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == driver.cuCtxSetCurrent(context) == 0
    found = np.empty_like(TRUTH)
    copied = driver.cuMemcpyDtoH_v2(found.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(address(result)), found.nbytes)
    assert copied == driver.cuDevicePrimaryCtxRelease_v2(0) == 0
    np.testing.assert_array_equal(found, TRUTH)


def test_tensorflow_shares_the_memory_of_results_and_is_written_from_where_it_is(device: str) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    if device != "cpu" and not tensorflow.config.list_physical_devices("GPU"):
        pytest.skip("skipped: TensorFlow has no GPU")
    array = make({})
    with cuzarr.config.set({"array_type": "device"}):
        result = array[:]
    dlpack = tensorflow.experimental.dlpack
    tensor = dlpack.from_dlpack(result.__dlpack__())
    np.testing.assert_array_equal(tensor.numpy(), TRUTH)
    if device != "cpu":
        assert tensor.__dlpack_device__()[0] != 1
    array[3:5] = tensor[:2] * 2
    np.testing.assert_array_equal(host(array[3:5]), TRUTH[:2] * 2)


# ----------------------------------------------------------------------------------------------------------------- dask


def test_dask_names_equal_arrays_alike_and_other_arrays_otherwise(tmp_path: pathlib.Path) -> None:
    base = pytest.importorskip("dask.base")
    array = make(tmp_path / "a")
    token = base.tokenize(array)
    assert token == base.tokenize(cuzarr.open_array(tmp_path / "a", mode="a")) == base.tokenize(pickle.loads(pickle.dumps(array)))
    others = [make(tmp_path / "b"), array.with_config({"order": "F"}), array.with_device("cuda:3")]
    array.update_attributes({"changed": True})
    assert token not in {base.tokenize(other) for other in (*others, array)}


def test_dask_reads_each_stored_object_by_one_task(tmp_path: pathlib.Path, device: str) -> None:
    dask_module = pytest.importorskip("cuzarr.dask")
    if device != "cpu":
        pytest.importorskip("cupy")
    array = make(tmp_path / "a")
    lazy = dask_module.from_cuzarr(array)
    assert lazy.chunks == ((5, 5, 2), (4, 4, 2)) and lazy.dtype == TRUTH.dtype
    assert type(lazy._meta) is type(array[:0])
    assert dask_module.from_cuzarr(cuzarr.open_array(tmp_path / "a", mode="r")).name == lazy.name
    np.testing.assert_array_equal(host(lazy[3:9, ::2].compute(scheduler="threads")), TRUTH[3:9, ::2])
    assert float((lazy * 2).sum().compute(scheduler="threads")) == float(TRUTH.sum() * 2)


@pytest.mark.parametrize("blocks", [(5, 4), (3, 3), (12, 10), (1, 10), ((2, 2, 8), (9, 1))])
@pytest.mark.parametrize("shards", [None, (10, 8)])
def test_dask_writes_no_stored_object_twice(blocks: Any, shards: Any) -> None:
    dask_module = pytest.importorskip("cuzarr.dask")
    import dask.array as da

    class Counting(dict[str, Any]):
        writes: list[str] = []  # noqa: RUF012, each test has a class of its own

        def __setitem__(self, key: str, value: Any) -> None:
            self.writes.append(key)
            super().__setitem__(key, value)

    store = Counting()
    array = cuzarr.create_array(store, shape=TRUTH.shape, chunks=(5, 4), shards=shards, dtype="f4", fill_value=-1)
    Counting.writes.clear()
    dask_module.to_cuzarr(da.from_array(TRUTH, chunks=blocks), array, scheduler="threads")
    np.testing.assert_array_equal(array[:], TRUTH)
    assert len(Counting.writes) == len(set(Counting.writes)) == (9 if shards is None else 4)


def test_dask_refuses_other_shapes() -> None:
    dask_module = pytest.importorskip("cuzarr.dask")
    import dask.array as da

    with pytest.raises(cuzarr.errors.ShapeMismatchError):
        dask_module.to_cuzarr(da.zeros((3, 10)), make({}))


def test_a_cluster_of_processes_reads_and_writes_one_store(tmp_path: pathlib.Path) -> None:
    distributed = pytest.importorskip("distributed")
    dask_module = pytest.importorskip("cuzarr.dask")
    source = make(tmp_path / "source", shards=(10, 8))
    target = cuzarr.create_array(tmp_path / "target", shape=TRUTH.shape, chunks=(3, 5), dtype="f4")
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        dask_module.to_cuzarr(dask_module.from_cuzarr(source) + 1, target)
        processes = client.run(os.getpid)
    assert len(set(processes.values())) == 2 and os.getpid() not in processes.values()
    np.testing.assert_array_equal(target[:], TRUTH + 1)


def test_workers_see_their_own_gpu_as_the_first(tmp_path: pathlib.Path, device: str) -> None:
    """dask-cuda's convention: a worker's GPU stands first in its ``CUDA_VISIBLE_DEVICES``. All read and write one store."""
    distributed = pytest.importorskip("distributed")
    dask_module = pytest.importorskip("cuzarr.dask")
    if device not in ("cpu", "cuda"):
        pytest.skip("skipped: CuPy computes with blocks, and knows no such device")
    if device != "cpu":
        pytest.importorskip("cupy")
    count = 1
    if device != "cpu":
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    source = make(tmp_path / "source").with_device(device)
    target = cuzarr.create_array(tmp_path / "target", shape=TRUTH.shape, chunks=(3, 5), dtype="f4", device=device)

    def options(worker: int) -> dict[str, Any]:
        visible = ",".join(str((worker + at) % count) for at in range(count))
        return {"nthreads": 1, "env": {"CUDA_VISIBLE_DEVICES": visible}}

    workers = {worker: {"cls": distributed.Nanny, "options": options(worker)} for worker in range(2)}
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, "port": 0}}
    with distributed.SpecCluster(workers, scheduler) as cluster, distributed.Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        dask_module.to_cuzarr(dask_module.from_cuzarr(source) + 1, target)
        seen = client.run(_what_a_worker_sees, str(tmp_path / "target"), device)
    assert sorted(found["visible"] for found in seen.values()) == sorted(
        options(at)["env"]["CUDA_VISIBLE_DEVICES"] for at in range(2)
    )
    assert {found["device"] for found in seen.values()} == {"cpu" if device == "cpu" else "cuda:0"}
    assert all(found["sum"] == float((TRUTH + 1).sum()) for found in seen.values())
    np.testing.assert_array_equal(host(target[:]), TRUTH + 1)


def _what_a_worker_sees(path: str, device: str) -> dict[str, Any]:
    with cuzarr.config.local({"array_type": "device"}):
        elements = cuzarr.open_array(path, mode="r", device=device)[:]
    where = "cpu" if isinstance(elements, np.ndarray) else elements.device
    return {"visible": os.environ["CUDA_VISIBLE_DEVICES"], "device": where, "sum": float(host(elements).sum())}


# --------------------------------------------------------------------------------------------------------------- xarray


@pytest.fixture
def dataset() -> Any:
    """A dataset with dates, strings, packed values with gaps, and a coordinate that is no dimension."""
    xarray = pytest.importorskip("xarray")
    hours = np.array(["2020-01-01T00", "2020-01-01T06", "2020-01-01T12", "2020-01-02T00"], "M8[ns]")
    return xarray.Dataset(
        {
            "t": (("time", "x"), np.arange(12.0).reshape(4, 3), {"units": "K"}),
            "name": (("x",), np.array(["a", "bb", "c"])),
            "packed": (("x",), np.array([1.0, np.nan, 3.0])),
            "alone": ((), np.int32(5)),
        },
        {"time": hours, "x": [10, 20, 30], "lat": (("x",), [1.0, 2.0, 3.0])},
        {"title": "a test"},
    )


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore")
def test_xarray_reads_what_its_own_engine_reads(tmp_path: pathlib.Path, dataset: Any, zarr_format: Any) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("dask")
    packing = {"packed": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}}
    dataset.to_zarr(tmp_path / "d", zarr_format=zarr_format, encoding=packing, group="sub", consolidated=False)
    place: dict[str, Any] = {"filename_or_obj": tmp_path / "d", "group": "sub"}
    ours = xarray.open_dataset(**place, engine="cuzarr")
    theirs = xarray.open_dataset(**place, engine="zarr", consolidated=False)
    xarray.testing.assert_identical(ours.load(), theirs.load())
    xarray.testing.assert_identical(ours, dataset)
    again = xarray.open_dataset(**place, engine="cuzarr", chunks={})
    for lazy in (again, xarray.open_dataset(**place, engine="cuzarr")):
        chosen = lazy.isel(time=slice(None, None, -1), x=[2, 0])
        xarray.testing.assert_identical(chosen.load(), theirs.isel(time=slice(None, None, -1), x=[2, 0]))
    raw = xarray.open_dataset(**place, engine="cuzarr", decode_cf=False, drop_variables="t")
    assert raw.packed.dtype == "i2" and raw.packed.values.tolist() == [2, -1, 6] and "t" not in raw
    tree = xarray.open_datatree(tmp_path / "d", engine="cuzarr")
    xarray.testing.assert_identical(tree["sub"].to_dataset().load(), dataset)


@pytest.mark.filterwarnings("ignore")
def test_xarrays_own_engine_goes_through_the_codec_pipeline(tmp_path: pathlib.Path, dataset: Any) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("dask")
    plugin = pytest.importorskip("cuzarr.zarr")
    plugin.fallbacks(reset=True)
    with plugin.enable():
        dataset.to_zarr(tmp_path / "d", consolidated=False)
        opened = xarray.open_dataset(tmp_path / "d", engine="zarr", consolidated=False)
        xarray.testing.assert_identical(opened.load(), dataset)
        chunked = xarray.open_dataset(tmp_path / "d", engine="zarr", consolidated=False, chunks={})
        xarray.testing.assert_identical((chunked.t * 2).compute(), dataset.t * 2)
    assert all(count > 0 for count in (plugin.calls()["read"], plugin.calls()["write"]))
    xarray.testing.assert_identical(xarray.open_dataset(tmp_path / "d", engine="cuzarr").load(), dataset)


@pytest.mark.filterwarnings("ignore")
def test_xarray_keeps_coordinates_on_the_host_and_reads_variables_to_a_gpu(
    tmp_path: pathlib.Path, dataset: Any, gpu: str
) -> None:
    xarray = pytest.importorskip("xarray")
    from cuzarr.xarray import GroupStore

    dataset.to_zarr(tmp_path / "d", consolidated=False)
    variables, _ = GroupStore(cuzarr.open_group(tmp_path / "d", mode="r")).load()
    places = {name: variable._data.array._array.device for name, variable in variables.items()}
    assert {name for name, place in places.items() if place == "cpu"} == {"time", "x", "lat", "name"}
    assert {place for name, place in places.items() if name in dataset.data_vars and name != "name"} == {gpu}
    cupy = pytest.importorskip("cupy")
    opened = xarray.open_dataset(tmp_path / "d", engine="cuzarr")
    assert type(opened.t.sel(x=20).data) is cupy.ndarray and type(opened.lat.data) is np.ndarray
    np.testing.assert_array_equal(opened.t.mean("time").data.get(), dataset.t.mean("time").values)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_xarray_masks_and_scales_where_elements_are(tmp_path: pathlib.Path, device: str, zarr_format: Any) -> None:
    xarray = pytest.importorskip("xarray")
    from cuzarr.xarray import GroupStore, MaskedArray

    if device != "cpu" and device.partition(":")[0] != "cuda":
        pytest.skip("skipped: xarray computes with CuPy's arrays, which knows no such device")
    values = np.array([1.5, np.nan, 3.0, np.nan])
    encoding = {
        "scaled": {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -1},
        "masked": {"dtype": "f4", "_FillValue": -9.0},
        "twice": {"dtype": "i4", "_FillValue": -1, "missing_value": -1},
        "whole": {"dtype": "i8", "_FillValue": 0},
    }
    names = {name: ("x", values) for name in encoding}
    dataset = xarray.Dataset({**names, "plain": ("x", np.arange(4.0)), "hours": ("x", values, {"units": "hours"})})
    dataset.to_zarr(tmp_path / "d", zarr_format=zarr_format, encoding=encoding, consolidated=False)
    group = cuzarr.open_group(tmp_path / "d", mode="r+")
    group["scaled"].attrs["missing_value"] = [-1, -2]
    opened = xarray.open_dataset(tmp_path / "d", engine="cuzarr", device=device, decode_timedelta=False)
    theirs = xarray.open_dataset(tmp_path / "d", engine="zarr", consolidated=False, decode_timedelta=False)
    variables, _ = GroupStore(group, device).load()
    assert {name for name in variables if isinstance(variables[name]._data.array, MaskedArray)} >= {"masked", "twice", "whole"}
    for name in theirs.variables:
        ours = opened[name].load()
        assert ours.encoding["dtype"] == theirs[name].encoding["dtype"] and ours.attrs == theirs[name].attrs
        np.testing.assert_equal(ours.encoding.get("_FillValue"), theirs[name].encoding.get("_FillValue"))
        np.testing.assert_array_equal(host(ours.data), theirs[name].values)
        assert device == "cpu" or isinstance(ours.data, np.ndarray) == (name in ("scaled", "hours"))


@pytest.mark.filterwarnings("ignore")
def test_xarray_names_an_array_without_dimension_names(tmp_path: pathlib.Path) -> None:
    xarray = pytest.importorskip("xarray")
    make(cuzarr.open_group(tmp_path / "d", mode="w").store_path / "plain")
    with pytest.raises(cuzarr.errors.MetadataValidationError, match="'plain' does not name its 2 dimensions"):
        xarray.open_dataset(tmp_path / "d", engine="cuzarr")
    assert not xarray.open_dataset(tmp_path / "d", engine="cuzarr", drop_variables="plain").data_vars


def test_options_of_xarrays_groups_are_those_of_data_sets() -> None:
    pytest.importorskip("xarray")
    engine, typing = cuzarr.xarray.CuzarrBackendEntrypoint, cuzarr.typing
    parameters = [
        {name for name, one in inspect.signature(call).parameters.items() if one.kind is one.KEYWORD_ONLY}
        for call in (engine.open_dataset, engine.open_groups_as_dict)
    ]
    ours = {"store"}  # one that is open already
    assert parameters[0] - parameters[1] - ours == typing.DatasetOptions.__optional_keys__
    assert parameters[0] - ours == typing.DataTreeOptions.__optional_keys__


def test_xarrays_engine_takes_every_argument_of_the_zarr_engine() -> None:
    pytest.importorskip("xarray")
    pytest.importorskip("zarr", minversion="3.4")
    from xarray.backends.zarr import ZarrBackendEntrypoint

    from cuzarr.xarray import CuzarrBackendEntrypoint

    theirs, ours = (
        inspect.signature(engine.open_dataset).parameters for engine in (ZarrBackendEntrypoint, CuzarrBackendEntrypoint)
    )
    assert set(theirs) <= set(ours)
    assert {name: ours[name].default for name in theirs} == {name: parameter.default for name, parameter in theirs.items()}


@pytest.mark.parametrize("consolidated", [None, True, False])
@pytest.mark.filterwarnings("ignore")
def test_xarray_opens_groups_and_stores_as_they_are(tmp_path: pathlib.Path, dataset: Any, consolidated: bool | None) -> None:
    xarray = pytest.importorskip("xarray")
    import zarr

    dataset.to_zarr(tmp_path / "d", group="sub", consolidated=False)
    zarr.consolidate_metadata(tmp_path / "d")
    options: dict[str, Any] = {"engine": "cuzarr", "consolidated": consolidated}
    for root in (cuzarr.open_group(tmp_path / "d", mode="r"), zarr.open_group(tmp_path / "d", mode="r")):
        xarray.testing.assert_identical(xarray.open_dataset(root, group="sub", **options), dataset)
        xarray.testing.assert_identical(xarray.open_datatree(root, **options)["sub"].to_dataset(), dataset)
    sub = cuzarr.open_group(tmp_path / "d/sub", mode="r")
    if consolidated is not True:  # metadata is consolidated at the root alone
        xarray.testing.assert_identical(xarray.open_dataset(sub, **options), dataset)
        xarray.testing.assert_identical(xarray.open_datatree(tmp_path / "d", group="/sub", **options).to_dataset(), dataset)
    store = xarray.backends.ZarrStore.open_group(tmp_path / "d", group="sub", consolidated=False)
    xarray.testing.assert_identical(xarray.open_dataset("elsewhere", store=store, **options), dataset)


@pytest.mark.filterwarnings("ignore")
def test_xarray_reads_consolidated_metadata_when_it_should(tmp_path: pathlib.Path, dataset: Any) -> None:
    xarray = pytest.importorskip("xarray")
    dataset.to_zarr(tmp_path / "d", consolidated=True)
    cuzarr.open_group(tmp_path / "d", use_consolidated=False).create_array("late", data=[1], dimension_names=("l",))

    def names(**options: Any) -> set[str]:
        return set(xarray.open_dataset(tmp_path / "d", engine="cuzarr", **options).data_vars)

    assert names(consolidated=False) == names() | {"late"}
    assert names(consolidated=True) == names()
    dataset.to_zarr(tmp_path / "plain", consolidated=False)
    with pytest.raises(cuzarr.errors.InvalidArgumentError, match="no consolidated metadata"):
        xarray.open_dataset(tmp_path / "plain", engine="cuzarr", consolidated=True)


def test_xarray_finds_the_home_directory_and_says_which_group_is_missing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, dataset: Any
) -> None:
    xarray = pytest.importorskip("xarray")
    monkeypatch.setenv("HOME", str(tmp_path))
    cuzarr.create_group(tmp_path / "d").create_group("ocean").create_array("t", data=[1.0], dimension_names=("x",))
    assert xarray.open_dataset("~/d", engine="cuzarr", group="ocean").sizes == {"x": 1}
    with pytest.raises(cuzarr.errors.GroupNotFoundError, match=r"(?s)no group at 'ocaen'.*did you mean 'ocean'"):
        xarray.open_dataset("~/d", engine="cuzarr", group="ocaen")


def test_xarray_takes_the_former_arguments_of_its_zarr_engine(tmp_path: pathlib.Path) -> None:
    xarray = pytest.importorskip("xarray")
    chunks, documents = cuzarr.storage.LocalStore(tmp_path / "chunks"), tmp_path / "documents"
    root = cuzarr.open_group(cuzarr.storage.SplitStore(chunks, cuzarr.storage.LocalStore(documents)), mode="w", zarr_format=2)
    root.create_array("sub/t", data=[1.0, 2.0], fill_value=None, attributes={"_ARRAY_DIMENSIONS": ["x"]})
    for place in (documents, cuzarr.storage.LocalStore(documents)):
        for given in ({"zarr_version": 2}, {"zarr_format": 2, "zarr_version": 2}, {"synchronizer": None}):
            options: dict[str, Any] = {"engine": "cuzarr", "chunk_store": tmp_path / "chunks", **given}
            assert xarray.open_dataset(place, group="sub", **options).t.values.tolist() == [1, 2]
            assert xarray.open_datatree(place, **options)["sub/t"].values.tolist() == [1, 2]
    group = cuzarr.open_group(documents, mode="r", path="sub")
    assert xarray.open_dataset(group, engine="cuzarr", chunk_store=str(chunks.root)).t.values.tolist() == [1, 2]
    for given, error, message in [
        ({"synchronizer": object()}, cuzarr.errors.UnsupportedError, "(?s)synchronizer is object.*leave it out"),
        ({"zarr_version": 2, "zarr_format": 3}, cuzarr.errors.InvalidArgumentError, "zarr_format is 3, and zarr_version"),
        ({"zarr_version": 3}, cuzarr.errors.GroupNotFoundError, "group"),
    ]:
        for call in (xarray.open_dataset, xarray.open_groups):
            with pytest.raises(error, match=message):
                call(documents, engine="cuzarr", **given)


# --------------------------------------------------------------------------------------------------------------- PyTorch


def _sum_in_a_process(array: cuzarr.Array) -> float:
    return float(sum(array[start : start + 5].sum() for start in range(0, 12, 5)))


def test_arrays_work_in_spawned_processes(tmp_path: pathlib.Path) -> None:
    array = make(tmp_path / "a")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_sum_in_a_process, (array,)) == float(TRUTH.sum())


def test_torch_datasets_give_rows_and_batches(tmp_path: pathlib.Path, device: str) -> None:
    torch = pytest.importorskip("torch")
    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("skipped: PyTorch has no GPU")
    from torch.utils.data import DataLoader

    from cuzarr.torch import BatchDataset, RowDataset

    array = make(tmp_path / "a")
    place = "cpu" if device == "cpu" else "cuda"
    rows = DataLoader(RowDataset(array), batch_size=5)
    got = list(rows)
    assert all(batch.device.type == place for batch in got)
    np.testing.assert_array_equal(torch.cat(got).cpu().numpy(), TRUTH)
    pairs = RowDataset((array, array.store_path))
    assert isinstance(pairs[3], tuple) and bool((pairs[3][0].cpu() == pairs[3][1].cpu()).all())
    assert [len(pair) for pair in DataLoader(pairs, batch_size=5)] == [2] * len(got)
    for wrong in ((array, array[:2]), (array, cuzarr.zeros((3,), store={})), (), tmp_path / "nowhere"):
        with pytest.raises(cuzarr.errors.CuzarrError):
            RowDataset(wrong)
    batches = BatchDataset((array, array), 5, shuffle=True)
    batches.set_epoch(1)
    seen = [(left, right) for left, right in DataLoader(batches, batch_size=None)]
    assert all(left.device.type == place and bool((left == right).all()) for left, right in seen)
    assert sorted(torch.cat([left for left, _ in seen])[:, 0].tolist()) == TRUTH[:, 0].tolist()
    workers = DataLoader(
        BatchDataset(array.with_device("cpu"), 5), batch_size=None, num_workers=2, multiprocessing_context="spawn"
    )
    assert sorted(torch.cat(list(workers))[:, 0].tolist()) == TRUTH[:, 0].tolist()


def test_torch_datasets_take_several_arrays_places_and_names(tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    from cuzarr.torch import BatchDataset, RowDataset

    array = make(tmp_path / "a")
    pair = RowDataset((array, tmp_path / "a"))
    left, right = pair[3]
    assert torch.equal(left, right) and left.tolist() == TRUTH[3].tolist() and len(pair) == 12
    for first, second in DataLoader(pair, batch_size=5, shuffle=True):
        assert torch.equal(first, second)
    named = RowDataset({"x": array, "y": str(tmp_path / "a")})
    assert named[1]["y"].tolist() == TRUTH[1].tolist()
    for loader in (
        DataLoader(named, batch_size=5),
        DataLoader(BatchDataset({"x": array, "y": tmp_path / "a"}, 5), batch_size=None),
    ):
        got = list(loader)
        assert all(torch.equal(batch["x"], batch["y"]) for batch in got)
        np.testing.assert_array_equal(torch.cat([batch["x"] for batch in got]).numpy(), TRUTH)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_epochs_reach_workers_that_live_on(tmp_path: pathlib.Path, start: str) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    from cuzarr.torch import BatchDataset

    make(tmp_path / "a")
    batches = pickle.loads(pickle.dumps(BatchDataset(tmp_path / "a", 3, shuffle=True)))
    loader = DataLoader(batches, batch_size=None, num_workers=2, persistent_workers=True, multiprocessing_context=start)
    orders = []
    for epoch in (0, 1, 0):
        batches.set_epoch(epoch)
        orders.append(torch.cat(list(loader))[:, 0].tolist())
        assert sorted(orders[-1]) == TRUTH[:, 0].tolist()
    assert orders[0] == orders[2] != orders[1]


RANK = """
import sys, torch, torch.distributed as distributed
from torch.utils.data import DataLoader
from cuzarr.torch import BatchDataset
if __name__ == "__main__":
    path, place, rank, start = sys.argv[1:]
    batches = BatchDataset(path, 2, shuffle=True)
    distributed.init_process_group("gloo", init_method="file://" + place, rank=int(rank), world_size=2)
    workers = {} if start == "none" else {"num_workers": 2, "multiprocessing_context": start}
    loader = DataLoader(batches, batch_size=None, **workers)
    rows = [float(row) for batch in loader for row in batch[:, 0]]
    assert len(batches) == 3, len(batches)
    print(rows)
    distributed.barrier()
"""


@pytest.mark.parametrize("start", ["none", "spawn"])
def test_ranks_of_torch_share_the_batches(tmp_path: pathlib.Path, start: str) -> None:
    pytest.importorskip("torch")
    make(tmp_path / "a")
    (tmp_path / "rank.py").write_text(RANK)
    command = [sys.executable, "-W", "ignore", str(tmp_path / "rank.py"), str(tmp_path / "a"), str(tmp_path / "meeting")]
    ranks = [subprocess.Popen([*command, str(rank), start], stdout=subprocess.PIPE, text=True) for rank in range(2)]
    seen = [json.loads(rank.communicate()[0].splitlines()[-1]) for rank in ranks]
    assert [len(rows) for rows in seen] == [6, 6]
    assert sorted(seen[0] + seen[1]) == TRUTH[:, 0].tolist()


def test_ranks_that_torch_does_not_know_are_given_or_warned_of(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from cuzarr.torch import BatchDataset

    array = make({})
    shares = [BatchDataset(array, 2, rank=rank, world_size=2) for rank in range(2)]
    assert [len(share) for share in shares] == [3, 3]
    assert sorted(torch.cat([batch for share in shares for batch in share])[:, 0].tolist()) == TRUTH[:, 0].tolist()
    for wrong in ({"rank": 1}, {"world_size": 2}, {"rank": 2, "world_size": 2}):
        with pytest.raises(cuzarr.errors.InvalidArgumentError, match="rank"):
            BatchDataset(array, 2, **wrong)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(cuzarr.errors.CuzarrRuntimeWarning, match="every process reads all batches"):
        assert len(BatchDataset(array, 2)) == 6


# ---------------------------------------------------------------------------------------------------------- zarr-python


def test_codecs_that_are_registered_with_zarr_python_serve_here(tmp_path: pathlib.Path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3.4")
    from dataclasses import dataclass

    from zarr.abc.codec import BytesBytesCodec
    from zarr.registry import register_codec

    @dataclass(frozen=True)
    class Inverted(BytesBytesCodec):
        is_fixed_size = True

        @classmethod
        def from_dict(cls, data: Any) -> Inverted:
            return cls()

        def to_dict(self) -> dict[str, Any]:
            return {"name": "test.inverted"}

        def compute_encoded_size(self, input_byte_length: int, _spec: Any) -> int:
            return input_byte_length

        async def _turn(self, chunk: Any, spec: Any) -> Any:
            return spec.prototype.buffer.from_array_like(~chunk.as_numpy_array())

        _decode_single = _encode_single = _turn

    register_codec("test.inverted", Inverted)
    array = cuzarr.create_array(tmp_path / "a", data=TRUTH, chunks=(5, 4), compressors={"name": "test.inverted"})
    np.testing.assert_array_equal(array[:], TRUTH)
    stored = (tmp_path / "a" / "c" / "0" / "0").read_bytes()
    assert bytes(255 - byte for byte in stored) == TRUTH[:5, :4].tobytes()
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a", mode="r")[:], TRUTH)
