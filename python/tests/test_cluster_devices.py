"""Workers of a dask cluster that have a GPU: they make the files that one machine makes without one. Workers that lack it are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import to_host

import cuzarr
from cuzarr.errors import DeviceUnavailableError, LibraryMissingError

distributed = pytest.importorskip("distributed")
from test_clusters import VALUES, calls, refused, tree  # noqa: E402, which needs it too

OPTIONS: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}


@pytest.fixture
def source(gpu: str, tmp_path: Path) -> cuzarr.Array:
    return cuzarr.create_array(tmp_path / "source", data=VALUES, chunks=(3, 10, 4), dimension_names=("t", "y", "x"))


def highest(block: Any) -> float:
    return float(block.max())


def doubled(block: Any) -> Any:
    return block * np.float32(2)


def test_workers_with_a_gpu_have_the_bits_of_one_machine_without(gpu: str, source: cuzarr.Array, tmp_path: Path) -> None:
    folders = {"cpu": tmp_path / "here", gpu: tmp_path / "there"}
    with distributed.LocalCluster(**OPTIONS) as cluster, distributed.Client(cluster) as client:
        for device, folder in folders.items():
            array = source.with_device(device)
            options: dict[str, Any] = {"memory_limit": "64 KiB"} | ({} if device == "cpu" else {"client": client})
            cuzarr.rechunk(array, folder / "rechunked", chunks=(-1, 5, 2), compressors=None, **options)
            cuzarr.pyramid(array, folder / "image", levels=2, method="gaussian", compressors=None, **options)
            cuzarr.map_blocks(doubled, array, out=folder / "doubled", compressors=None, **options)
            target = cuzarr.create_array(
                folder / "stored", shape=VALUES.shape, dtype="float32", chunks=(6, 10, 8), compressors=None
            )
            (array * 3 - 1).store(target, **options)
            (folder / "sums").write_bytes(to_host(cuzarr.xp.max(array + 1, axis=0).compute(**options)).tobytes())
            assert cuzarr.reduce(highest, max, array, **options) == VALUES.max()
    assert tree(folders[gpu]) == tree(folders["cpu"])
    np.testing.assert_array_equal(to_host(cuzarr.open_array(folders[gpu] / "doubled")[...]), VALUES * 2)


def test_a_worker_without_the_device_is_refused_before_the_target_is_touched(
    gpu: str, source: cuzarr.Array, tmp_path: Path
) -> None:
    hidden = {"CUZARR_SIMT_LIBRARY": "/nowhere", "CUDA_VISIBLE_DEVICES": ""}
    with distributed.LocalCluster(**OPTIONS, env=hidden) as cluster, distributed.Client(cluster) as client:
        for what, call in calls(source, tmp_path / "out", client, device=gpu).items():
            refused(what, call, (LibraryMissingError, DeviceUnavailableError), "worker tcp", tmp_path / "out")
        cuzarr.copy(source, tmp_path / "copied", device="cpu", client=client)
    np.testing.assert_array_equal(to_host(cuzarr.open_array(tmp_path / "copied")[...]), VALUES)
