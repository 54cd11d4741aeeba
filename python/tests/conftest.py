"""Devices for tests: ``device`` is the CPU, and a GPU where there is one. Without a GPU the kernels built for the CPU stand in
for it (``scripts/with-simt`` provides them); without those the test says why it is skipped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import cuzarr

# Processes that share the tests share one GPU, of which JAX would take three quarters for each of them.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-cpu", action="store_true", help="leave out tests of the device cpu, which ran before")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--without-cpu"):
        return
    out = [item for item in items if isinstance(item, pytest.Function) and _device_of(item) == "cpu"]
    config.hook.pytest_deselected(items=out)
    left_out = set(out)
    items[:] = [item for item in items if item not in left_out]


def _device_of(item: pytest.Function) -> Any:
    return item.callspec.params.get("device") if hasattr(item, "callspec") else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says in a line for each file what was tested, and how long it took; then what was skipped, and why."""
    files: dict[str, dict[str, float]] = {}
    for outcome in ("passed", "failed", "error", "skipped", "xfailed"):
        for report in terminalreporter.stats.get(outcome, ()):
            if isinstance(report, pytest.TestReport):
                line = files.setdefault(report.nodeid.partition("::")[0], {})
                line[outcome] = line.get(outcome, 0) + 1
    for report in (one for reports in terminalreporter.stats.values() for one in reports if isinstance(one, pytest.TestReport)):
        line = files.setdefault(report.nodeid.partition("::")[0], {})
        line["seconds"] = line.get("seconds", 0) + report.duration
    terminalreporter.section("what was tested")
    for name, line in sorted(files.items()):
        said = ", ".join(
            f"{line[outcome]:.0f} {outcome}" for outcome in ("passed", "failed", "error", "skipped", "xfailed") if outcome in line
        )
        terminalreporter.write_line(f"{name:40} {line.get('seconds', 0):7.1f} s  {said}")
    reasons = skip_reasons(terminalreporter.stats.get("skipped", ()))
    if reasons:
        terminalreporter.section("what was skipped, and why")
    for (name, reason), count in sorted(reasons.items()):
        terminalreporter.write_line(f"{name:40} {'whole file' if count == 0 else f'{count} tests':>10}  {reason}")


def skip_reasons(reports: Iterable[Any]) -> dict[tuple[str, str], int]:
    """How many tests of each file were skipped for each reason. A file that was skipped as a whole counts 0."""
    reasons: dict[tuple[str, str], int] = {}
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = " ".join(reason.removeprefix("Skipped: ").removeprefix("skipped: ").partition("hint:")[0].split())
        line = report.nodeid.partition("::")[0], reason
        reasons[line] = reasons.get(line, 0) + isinstance(report, pytest.TestReport)
    return reasons


@cache
def gpu_device() -> tuple[str | None, str]:
    """A device other than the CPU, or why there is none."""
    problem = ""
    for device in ["cuda"] + ["simt"] * ("CUZARR_SIMT_LIBRARY" in os.environ):
        try:
            cuzarr.DeviceArray.empty((1,), "u1", device).cpu()
        except cuzarr.errors.CuzarrError as error:
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


@pytest.fixture
def numba_cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module ``numba.cuda``; skips the test where Numba cannot work."""
    # NVIDIA's package numba-cuda, which takes the place of Numba's own `numba.cuda` where it is installed, asks NumPy (to 0.30
    # at least) for a name that NumPy 2.5 no longer has. Numba's own, since 0.68, does not.
    monkeypatch.setattr(np, "row_stack", np.vstack, raising=False)
    module = pytest.importorskip("numba.cuda")
    try:
        import numba.cuda.np.arrayobj  # noqa: F401

        module.current_context()
    except Exception as error:  # noqa: BLE001, whatever keeps Numba from running here
        pytest.skip(f"skipped: Numba does not run here: {error}")
    return module
