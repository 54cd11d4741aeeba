"""Programs that end while other threads of theirs read: they end without an abort."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading, time, numpy as np, cuzarr

class Slow(dict):
    def get(self, key, default=None):
        if key.startswith("c/"):
            time.sleep(0.002)
        return super().get(key, default)

store = Slow()
array = cuzarr.create_array(store, shape=(400,), chunks=(4,), dtype="i4")
array[:] = np.arange(400)
begun = threading.Event()

def read():
    try:
        while True:
            array[:]
            begun.set()
    except cuzarr.errors.CancelledError:
        pass  # Python is shutting down

def read_awaited():
    import asyncio
    async def forever():
        awaited = await cuzarr.api.asynchronous.open_array(store=store)
        while True:
            await awaited.getitem(...)
            begun.set()
    try:
        asyncio.run(forever())
    except (RuntimeError, cuzarr.errors.CancelledError):
        pass  # the pool of threads has ended

for _ in range(4):
    threading.Thread(target=read if sys.argv[1] == "plain" else read_awaited, daemon=True).start()
assert begun.wait(30)
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("kind", ["plain", "awaited"])
@pytest.mark.parametrize("seconds", [0.0, 0.013, 0.04])
def test_a_program_ends_while_its_threads_read(kind: str, seconds: float) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, kind, str(seconds)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "FATAL" not in done.stderr and "PyGILState" not in done.stderr
