"""Codecs that a program registered with zarr-python, in arrays that cuzarr reads and writes."""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import numpy as np
import pytest

zarr = pytest.importorskip("zarr")
from zarr.abc.codec import BytesBytesCodec  # noqa: E402

import cuzarr  # noqa: E402


class Complement(BytesBytesCodec):
    """Every bit inverted."""

    is_fixed_size = True

    @classmethod
    def from_dict(cls, data: Any) -> Complement:
        return cls()

    def to_dict(self) -> Any:
        return {"name": "tests.complement"}

    def compute_encoded_size(self, input_byte_length: int, _spec: Any) -> int:
        return input_byte_length

    async def _decode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
        return chunk_spec.prototype.buffer.from_array_like(~chunk_data.as_numpy_array())

    _encode_single = _decode_single


def test_codecs_of_zarr_pythons_registry_are_called(tmp_path: Any) -> None:
    zarr.registry.register_codec("tests.complement", Complement)
    with zarr.config.set({"codecs.tests.complement": f"{Complement.__module__}.{Complement.__qualname__}"}):
        truth = np.arange(20, dtype="i4")
        theirs = zarr.create_array(tmp_path, shape=(20,), chunks=(7,), dtype="i4", compressors=Complement())
        theirs[:] = truth
        ours = cuzarr.open_array(tmp_path, mode="r+")
        np.testing.assert_array_equal(ours[:], truth)
        ours[3:9] = -truth[3:9]
        np.testing.assert_array_equal(theirs[3:9], -truth[3:9])


def stored_with(codec: str, zarr_format: int) -> dict[str, bytes]:
    """An array whose compressor has this name."""
    store: dict[str, Any] = {}
    cuzarr.create_array(store, data=np.arange(4, dtype="u1"), compressors=None, zarr_format=zarr_format)
    name = "zarr.json" if zarr_format == 3 else ".zarray"
    document = json.loads(store[name])
    document |= {"codecs": [{"name": "bytes"}, {"name": codec}]} if zarr_format == 3 else {"compressor": {"id": codec}}
    store[name] = json.dumps(document).encode()
    return store


@pytest.mark.parametrize(
    ("codec", "zarr_format", "package"),
    [
        ("imagecodecs_of_nobody", 3, "imagecodecs-zarr"),
        ("imagecodecs_of_nobody", 2, "imagecodecs"),
        ("gribberish", 3, "gribberish"),
        ("numcodecs.gribberish", 3, "gribberish"),
        ("gribberish", 2, "gribberish"),
        ("FITSAscii", 2, "kerchunk"),
    ],
)
def test_an_unknown_codec_names_the_package_that_has_it(codec: str, zarr_format: int, package: str) -> None:
    with pytest.raises(cuzarr.errors.UnknownCodecError, match=f"(?s)'{codec}' is not known.*pip install {package}$"):
        cuzarr.open_array(stored_with(codec, zarr_format), mode="r")
    with pytest.raises(cuzarr.errors.UnknownCodecError) as raised:
        cuzarr.open_array(stored_with("of_nobody", zarr_format), mode="r")
    assert "pip install" not in str(raised.value)


def test_codecs_of_imagecodecs_are_registered_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    numcodecs = pytest.importorskip("numcodecs")
    from cuzarr.codecs import hosts

    class Inverted(numcodecs.abc.Codec):  # type: ignore[misc,name-defined]
        codec_id = "imagecodecs_inverted"

        def encode(self, buf: Any) -> Any:
            return bytes(255 - byte for byte in bytes(buf))

        def decode(self, buf: Any, out: Any = None) -> Any:
            return self.encode(buf)

    library, module = types.ModuleType("imagecodecs"), types.ModuleType("imagecodecs.numcodecs")
    module.register_codecs = lambda verbose: numcodecs.register_codec(Inverted)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "imagecodecs", library)
    monkeypatch.setitem(sys.modules, "imagecodecs.numcodecs", module)
    hosts._register_imagecodecs.cache_clear()
    try:
        store = stored_with("imagecodecs_inverted", 2)
        store["0"] = bytes([255, 254, 253, 252])
        assert cuzarr.open_array(store, mode="r")[:].tolist() == [0, 1, 2, 3]
    finally:
        hosts._register_imagecodecs.cache_clear()
        numcodecs.registry.codec_registry.pop("imagecodecs_inverted", None)
