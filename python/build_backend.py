"""Builds the package by maturin on Linux, and says plainly elsewhere that there is nothing to build."""

import pathlib
import sys
import zipfile

if sys.platform != "linux":
    raise SystemExit(
        f"cuzarr runs on Linux only, and this is {sys.platform}: it reads files and GPU memory by interfaces that only Linux has. "
        "On Windows, install it inside the Windows Subsystem for Linux (WSL 2)."
    )

import maturin
from maturin import (  # noqa: F401
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """An editable wheel. With the setting ``built``, it is for the extension module that lies in the package, and compiles nothing."""
    if not (config_settings or {}).get("built"):
        return maturin.build_editable(wheel_directory, config_settings, metadata_directory)
    metadata = pathlib.Path(metadata_directory)
    name, version = metadata.name.removesuffix(".dist-info").split("-")
    path_file, record = f"{name}.pth", f"{metadata.name}/RECORD"
    wheel = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, wheel), "w") as archive:
        archive.writestr(path_file, f"{pathlib.Path(__file__).parent}\n")
        for file in filter(pathlib.Path.is_file, metadata.rglob("*")):
            archive.write(file, file.relative_to(metadata.parent))
        archive.writestr(record, "".join(f"{member},,\n" for member in [*archive.namelist(), record]))
    return wheel
