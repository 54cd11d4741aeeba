"""The ``cuzarr`` command: ``python -m cuzarr``."""

from __future__ import annotations

import signal
import sys

from cuzarr import _core
from cuzarr.storage.references import references_for_command


def main() -> int:
    """Runs the command with this process's arguments; returns its exit status."""
    # Python's own handler would wait until the command has ended. Every object is written whole, and copies can be resumed.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.cli(["cuzarr", *sys.argv[1:]], references_for_command)


if __name__ == "__main__":
    sys.exit(main())
