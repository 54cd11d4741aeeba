"""Where the running Python keeps NVIDIA's libraries and this package its compiled kernels."""

from __future__ import annotations

import os
import sys

from cuzarr import _core


def announce() -> None:
    """Tells the Rust side the folders. Loads nothing: it looks into them when a GPU is first used."""
    # The wheels of NVIDIA put their libraries into site-packages/nvidia/<library>/lib.
    nvidia = [folder for entry in sys.path if entry and os.path.isdir(folder := os.path.join(entry, "nvidia"))]
    cubins = os.path.join(os.path.dirname(__file__), "cubins")
    _core.set_library_paths(nvidia, cubins if os.path.isdir(cubins) else None)
