"""What is left of arrays and stores when they are gone: no open files, threads, processes, or files of cuzarr's own."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="skipped: what a process holds is read from /proc")


def held() -> dict[str, int]:
    gc.collect()
    children = Path("/proc/self/task").glob("*/children")
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "processes": sum(len(path.read_text().split()) for path in children),
    }


def use(store: Any) -> None:
    """Writes, reads and forgets a sharded array, and one whose read fails."""
    array = cuzarr.create_array(store, name="x", shape=(8, 8), chunks=(2, 2), shards=(4, 4), dtype="int32", overwrite=True)
    array[...] = 7
    assert cuzarr.open_array(store, path="x")[3:5].sum() == 112
    with pytest.raises(cuzarr.errors.CuzarrError):
        cuzarr.open_array(store, path="y", mode="r")


def directory(root: Path, number: int) -> None:
    use(root / f"{number % 7}.zarr")


def memory(root: Path, number: int) -> None:
    use(cuzarr.storage.MemoryStore())


def zip_file(root: Path, number: int) -> None:
    place = root / f"{number}.zip"
    with cuzarr.storage.ZipStore(place, mode="w") as store:
        cuzarr.create_array(store, data=np.arange(4))
    # Without being closed.
    assert cuzarr.open_array(cuzarr.storage.ZipStore(place, mode="r"))[1] == 1
    place.unlink()


def awaited(root: Path, number: int) -> None:
    async def cancelled() -> None:
        array = cuzarr.open_array(root / "awaited", mode="r").async_array
        task = asyncio.ensure_future(array.getitem(...))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    if number == 0:
        use(root / "awaited")
        cuzarr.create_array(root / "awaited", data=np.zeros((50, 50)), chunks=(5, 5), overwrite=True)
    asyncio.run(cancelled())


@pytest.mark.parametrize("way", [directory, memory, zip_file, awaited])
def test_arrays_and_stores_leave_nothing_open(way: Callable[[Path, int], None], tmp_path: Path) -> None:
    for number in range(10):
        way(tmp_path, number)
    before = held()
    for number in range(10, 100):
        way(tmp_path, number)
    after = held()
    # Threads are pooled: there are as many as work needed at once, which differs from time to time, the more the more cores there
    # are. Lost would be one a use, which makes 90.
    assert after["files"] <= before["files"] + 2 and after["threads"] <= before["threads"] + 30, (before, after)
    assert after["processes"] == before["processes"]


def test_a_program_leaves_no_files_behind(tmp_path: Path) -> None:
    program = (
        "import cuzarr, numpy as np\n"
        "z = cuzarr.create_array('x.zarr', data=np.arange(1000), chunks=(10,), shards=(100,))\n"
        "cuzarr.rechunk(z, 'y.zarr', chunks=(1000,), shards=None); (z + 1).mean(); z.resize(500); z[...]"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=os.environ | {"TMPDIR": str(temporary)}, check=True)
    assert list(temporary.iterdir()) == []
    names = {path.name for root in ("x.zarr", "y.zarr") for path in (tmp_path / root).rglob("*") if path.is_file()}
    assert names <= {"zarr.json", *map(str, range(10))}
