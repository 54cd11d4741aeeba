"""A process that may open few files reads and writes as others do."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

resource = pytest.importorskip("resource")

PROGRAM = """
import resource, sys
import numpy as np, cuzarr

path, kind, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
cuzarr.config.set({"threading.max_workers": threads})
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
values = np.arange(200 * 32, dtype="i4").reshape(200, 32)
shards = (1, 32) if kind == "shards" else None
array = cuzarr.create_array(path, shape=values.shape, chunks=(1, 8), shards=shards, dtype="i4")
array[:] = values
array[:, 4:12] = values[:, 4:12] + 1  # parts of shards
values[:, 4:12] += 1
read = cuzarr.open_array(path, mode="r")
for _ in range(2):
    assert (read[:] == values).all()
assert (read[:, ::9] == values[:, ::9]).all()
print("right")
"""


@pytest.mark.parametrize("threads", [4, 100])
@pytest.mark.parametrize("kind", ["shards", "chunks"])
def test_values_are_read_and_written_with_few_open_files(tmp_path: pathlib.Path, kind: str, threads: int) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "a"), kind, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


EXHAUSTED = """
import resource, sys
import cuzarr

cuzarr.create_array(sys.argv[1], shape=(4,), chunks=(2,), dtype="i4")
array = cuzarr.open_array(sys.argv[1], mode="r")
array[:]
resource.setrlimit(resource.RLIMIT_NOFILE, (32, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
try:
    while True:
        held.append(open(sys.argv[1] + "/zarr.json"))
except OSError:
    pass
try:
    cuzarr.open_array(sys.argv[1], mode="r")
except cuzarr.errors.StoreFailedError as error:
    print(error)
"""


def test_files_that_the_program_holds_are_named_as_the_cause(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-c", EXHAUSTED, str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "open files" in done.stdout and "hint: close files, or let the process open more of them: ulimit -n" in done.stdout, (
        done
    )
