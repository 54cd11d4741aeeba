"""A bench runs, and its answers are right: on the host, with small arrays."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).parents[2] / "bench"
if not BENCH.exists():
    pytest.skip("skipped: the benches lie where the sources are", allow_module_level=True)
pytest.importorskip("zarr", minversion="3.4")


def test_the_bench_of_cliffs_checks_its_answers(tmp_path: pathlib.Path) -> None:
    options = ["--shape", "4,192,256", "--groups", "stores", "targets", "--repeat", "1", "--record", str(tmp_path)]
    done = subprocess.run([sys.executable, "cliffs.py", *options], cwd=BENCH, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = tmp_path.glob("*-cliffs-*.json")
    rows = json.loads(record.read_text())["rows"]
    assert len(rows) >= 10
    for row in rows:
        figures = [row[name] for name in ("cuzarr", "zarr", "fused") if name in row]
        assert figures and all(isinstance(figure, float) for figure in figures), row
