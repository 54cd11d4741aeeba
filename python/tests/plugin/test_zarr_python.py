"""A part of zarr-python's own tests, through cuzarr's pipeline; `scripts/zarr-python-tests` runs all of them, with both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(sys.prefix) / "zarr-python"
TESTS = ("test_codec_pipeline_suite.py", "test_codec_pipeline.py", "test_codecs", "test_v2.py", "test_buffer.py")
SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
markers =
    gpu: needs CuPy and a GPU
    s3: needs S3
    slow_hypothesis: slow
"""


@pytest.mark.skipif(not SOURCES.exists(), reason="skipped: no source archive of zarr-python; `make test-python` fetches it")
def test_zarr_pythons_own_tests_pass(tmp_path: Path) -> None:
    settings = tmp_path / "pytest.ini"
    settings.write_text(SETTINGS)
    present = [f"tests/{name}" for name in TESTS if (SOURCES / "tests" / name).exists()]
    command = [sys.executable, "-m", "pytest", "-c", str(settings), "--rootdir", str(SOURCES), "-q", "-p", "no:cacheprovider"]
    scripts = Path(__file__).parents[3] / "scripts"
    environment = os.environ | {
        "ZARR_CODEC_PIPELINE__PATH": "cuzarr.zarr.CodecPipeline",
        "PYTHONPATH": str(scripts),
    }
    done = subprocess.run(
        [*command, "-p", "zarr_python_counts", "--tb=short", *present],
        cwd=SOURCES, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    share = re.search(r"share ([0-9.]+)", done.stdout)
    assert share is not None and float(share[1]) >= 0.95, done.stdout[-2000:]
