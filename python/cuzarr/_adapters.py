"""The name by which the Rust side finds codecs written in Python."""

from cuzarr.codecs.hosts import open_codec

__all__ = ["open_codec"]
