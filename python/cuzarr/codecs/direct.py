"""Functions that ``Decoder`` and ``Encoder`` share."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from cuzarr.codecs.chain import parse_codec
from cuzarr.codecs.values import Codec


def as_json(codecs: Any) -> str:
    """Converts one codec, or a list in the order of encoding, to Zarr format 3 metadata in JSON."""
    if isinstance(codecs, Codec | Mapping | str) or not isinstance(codecs, Sequence):
        codecs = [codecs]

    # Metadata may lack settings that follow from the chunks: a type size, a byte order.
    def as_dict(codec: Any) -> dict[str, Any]:
        is_metadata = isinstance(codec, Mapping) and "name" in codec
        return dict(codec) if is_metadata else parse_codec(codec).to_dict()

    return json.dumps([as_dict(codec) for codec in codecs])


def current_stream(array: Any) -> Any:
    """The current CUDA stream of the library that an array is from; 0 for libraries without streams."""
    library = type(array).__module__.partition(".")[0]
    if library == "cupy":
        return sys.modules["cupy"].cuda.get_current_stream()
    if library == "torch":
        return sys.modules["torch"].cuda.current_stream(array.device)
    return 0
