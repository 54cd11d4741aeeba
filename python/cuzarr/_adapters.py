"""The name by which the Rust side finds codecs written in Python."""

from __future__ import annotations

import functools

from cuzarr._metadata.dtype import from_json_v3
from cuzarr.codecs import hosts

open_codec = functools.partial(hosts.open_codec, parse=from_json_v3)
