"""Processes that are forked: CUDA does not survive it, and cuzarr says so instead of waiting for ever."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import gpu_device

import cuzarr

PROGRAM = """
import os, sys
import numpy as np, cuzarr

path, device, used, through = sys.argv[1:]
truth = np.arange(64, dtype="i4")
cuzarr.create_array(path, data=truth, chunks=(16,))

def by_cuzarr(device):
    return cuzarr.open_array(path, mode="r", device=device)[:]

def by_zarr(device):
    import cuzarr.zarr, zarr
    buffers = {"buffer": "cuzarr.zarr.Buffer", "ndbuffer": "cuzarr.zarr.NDBuffer"} if device != "cpu" else {}
    with zarr.config.set(buffers | {"codec_pipeline.path": "cuzarr.zarr.CodecPipeline"}), cuzarr.config.set({"device": device}):
        return zarr.open_array(path, mode="r")[:]

if through == "asynchronous":
    from zarr.storage import LocalStore, WrapperStore
    far = WrapperStore(LocalStore(path))

def by_asynchronous(device):
    return cuzarr.open_array(far, mode="r", device=device)[:]

read = {"cuzarr": by_cuzarr, "zarr": by_zarr, "asynchronous": by_asynchronous}[through]
cuzarr.config.set({"array_type": "device"})

def tell(who, device):
    try:
        found = read(device)
        print(who, device, bool((np.asarray(found.cpu() if hasattr(found, "cpu") else found) == truth).all()), flush=True)
    except cuzarr.errors.CuzarrError as error:
        print(who, device, type(error).__name__, str(error).splitlines()[0], flush=True)

if used == "used":
    tell("parent", device)
child = os.fork()
if child == 0:
    tell("child", device)
    tell("child", "cpu")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
tell("parent", device)
"""


def run(path: pathlib.Path, device: str, used: str, through: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(path / "a"), device, used, through]
    # An accelerator would begin to use CUDA before the fork.
    environ = {name: value for name, value in os.environ.items() if name != "CUZARR_ACCELERATOR"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def cuda() -> str:
    device, problem = gpu_device()
    if device is None or not device.startswith("cuda"):
        pytest.skip(f"skipped: {problem or 'there is no GPU'}")
    return device


@pytest.mark.parametrize("through", ["cuzarr", "zarr", "asynchronous"])
def test_children_of_a_process_that_read_in_host_memory_read_there(tmp_path: pathlib.Path, through: str) -> None:
    if through != "cuzarr":
        pytest.importorskip("zarr")
    assert run(tmp_path, "cpu", "used", through) == ["parent cpu True", "child cpu True", "child cpu True", "parent cpu True"]


@pytest.mark.parametrize("through", ["cuzarr", "zarr"])
def test_children_of_a_process_that_used_the_gpu_are_told_and_read_in_host_memory(
    tmp_path: pathlib.Path, cuda: str, through: str
) -> None:
    first, refused, host, last = run(tmp_path, cuda, "used", through)
    assert (first, host, last) == (f"parent {cuda} True", "child cpu True", f"parent {cuda} True")
    assert refused.startswith(f"child {cuda} DeviceUnavailableError") and "forked after CUDA had been initialised" in refused


@pytest.mark.parametrize("through", ["cuzarr", "zarr"])
def test_children_of_a_process_that_did_not_use_the_gpu_may(tmp_path: pathlib.Path, cuda: str, through: str) -> None:
    assert run(tmp_path, cuda, "not used", through) == [f"child {cuda} True", "child cpu True", f"parent {cuda} True"]


BUSY = """
import os, signal, sys, threading
import numpy as np, cuzarr

through, path = sys.argv[1:]
truth, kept = np.arange(64, dtype="i4"), {}

if through == "wrapped":
    from zarr.storage import LocalStore, WrapperStore
if through == "zarr":
    import cuzarr.zarr, zarr
    zarr.config.set({"codec_pipeline.path": "cuzarr.zarr.CodecPipeline"})

def place():
    if through == "wrapped":
        return WrapperStore(LocalStore(path))
    return {"dict": kept, "named": "memory://kept"}.get(through, path)

def read():
    if through == "zarr":
        return zarr.open_array(path, mode="r")[:]
    out = np.zeros(64, "i4")
    cuzarr.open_array(place(), mode="r", device="cpu").read(out=out)
    return out

def keep_reading():
    while True:
        for _ in range(10):
            read()
        array = cuzarr.open_array(place(), mode="r", device="cpu")
        [array[:] for _ in range(100)]

cuzarr.create_array(place(), data=truth, chunks=(16,))
read()  # zarr-python's own lock is held while it starts its event loop
[threading.Thread(target=keep_reading, daemon=True).start() for _ in range(4)]
for number in range(100):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if (read() == truth).all() else 1)
    status = os.waitpid(child, 0)[1]
    if status:
        print(f"child {number} ended with {os.waitstatus_to_exitcode(status)}", flush=True)
        os._exit(1)
print("right", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("through", ["path", "named", "dict", "wrapped", "zarr"])
def test_children_of_a_process_whose_threads_read_are_not_blocked(tmp_path: pathlib.Path, through: str) -> None:
    if through in ("wrapped", "zarr"):
        pytest.importorskip("zarr")
    command = [sys.executable, "-W", "ignore", "-c", BUSY, through, str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stdout + done.stderr


def test_all_locks_are_free_in_a_forked_child() -> None:
    package = pathlib.Path(cuzarr.__file__).parent
    found = [
        f"{path.relative_to(package)}:{number}"
        for path in sorted(package.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"threading\.(Lock|RLock|Condition|Semaphore)\(", line) and path.name != "_locks.py"
    ]
    assert found == []
