"""The programs in examples/ run, and compare their answers themselves; on a GPU where there is one."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
from conftest import gpu_device

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("device", ["cpu", *(name for name in [gpu_device()[0]] if name and name.startswith("cuda"))])
def test_a_sine_is_numpys_by_every_way(device: str) -> None:
    program = EXAMPLES / "sine.py"
    if not program.exists():
        pytest.skip("the examples are not at hand")
    done = subprocess.run([sys.executable, str(program), "--device", device], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == (2 if device == "cpu" else 7)
    assert sum(line.endswith("as NumPy's") for line in lines) >= (2 if device == "cpu" else 4)
