"""Builds the package by maturin on Linux, and says plainly elsewhere that there is nothing to build."""

import sys

if sys.platform != "linux":
    raise SystemExit(
        f"cuzarr runs on Linux only, and this is {sys.platform}: it reads files and GPU memory by interfaces that only Linux has. "
        "On Windows, install it inside the Windows Subsystem for Linux (WSL 2)."
    )

from maturin import (  # noqa: F401
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
