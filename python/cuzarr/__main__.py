"""The ``cuzarr`` command: ``python -m cuzarr``."""

from __future__ import annotations

import sys

from cuzarr import _core


def main() -> int:
    """Runs the command with this process's arguments; returns its exit status."""
    return _core.cli(["cuzarr", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
