"""Devices for tests: ``device`` is the CPU, and a GPU where there is one. Without a GPU the kernels built for the CPU stand in
for it (``scripts/with-simt`` provides them); without those the test says why it is skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

import pytest

import cuzarr


@cache
def gpu_device() -> tuple[str | None, str]:
    """A device other than the CPU, or why there is none."""
    problem = ""
    for device in ["cuda"] + ["simt"] * ("CUZARR_SIMT_LIBRARY" in os.environ):
        try:
            cuzarr.DeviceArray.empty((1,), "u1", device).cpu()
        except cuzarr.CuzarrError as error:
            problem = problem or str(error)
            if os.environ.get("CUZARR_REQUIRE_GPU") == "1":
                raise RuntimeError(f"CUZARR_REQUIRE_GPU=1, but the GPU cannot be used: {error}") from error
        else:
            return device, ""
    return None, problem


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Iterator[str]:
    """A GPU, to which arrays are read while the test runs."""
    device, problem = gpu_device()
    if device is None:
        pytest.skip(f"skipped: {problem}")
    with cuzarr.config.set({"device": device}):
        yield device


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> str:
    """Each kind of device in turn, to which arrays are read while the test runs."""
    return str(request.getfixturevalue("gpu")) if request.param == "gpu" else "cpu"
