"""Makes the metadata of new arrays, from the arguments of the functions that create them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from cuzarr import _core
from cuzarr._checks import items, parse_shape, refusing
from cuzarr._config import config
from cuzarr._metadata.array import AnyArrayMetadata, as_attributes, of_core
from cuzarr._metadata.chunk_grid import parse_shards
from cuzarr._metadata.dtype import OBJECT_CODECS, DataType, ZarrFormat, parse_dtype
from cuzarr.codecs.chain import ExtensionCodec, chain_for_dtype, parse_codec
from cuzarr.codecs.numcodecs import NumcodecsCodec
from cuzarr.codecs.values import Codec
from cuzarr.errors import CuzarrRuntimeWarning, InvalidArgumentError

# Stands for a fill value that the caller did not choose. `None` is a choice in format 2.
DEFAULT_FILL_VALUE: Any = type("DefaultFillValue", (), {"__repr__": lambda _: "DEFAULT_FILL_VALUE"})()


def is_auto(value: Any) -> bool:
    """Whether an argument is ``"auto"``: the caller leaves the choice to cuzarr."""
    return isinstance(value, str) and value == "auto"


def fill_element(value: Any, data_type: DataType) -> bytes | None:
    """Converts a caller's fill value to the bytes of one element; ``None`` for the default fill value and, in format 2, for no fill
    value."""
    # zarr-python has its own sentinel, whose type differs between versions.
    if value is None or value is DEFAULT_FILL_VALUE or type(value).__name__ in ("DefaultFillValue", "sentinel"):
        return None
    with refusing("fill_value", f"pass one element of {data_type}"):
        return data_type._element(data_type.cast_fill(value))


def warn_order() -> None:
    """Warns that the argument ``order`` has no effect on what is stored in format 3."""
    message = "order has no effect in format 3; config={'order': 'F'} is the memory order of results"
    warnings.warn(message, CuzarrRuntimeWarning, stacklevel=4)


def as_codecs(codecs: Any) -> tuple[Codec, ...]:
    """Converts one or several codec objects, names or JSON objects to a tuple of codecs."""
    if codecs is None:
        return ()
    if isinstance(codecs, Codec | Mapping | str) or not isinstance(codecs, Iterable):
        codecs = (codecs,)
    return tuple(parse_codec(one) for codec in codecs for one in _spelt_out(codec))


def _spelt_out(codec: Any) -> list[Any]:
    """Replaces a short name such as ``zstd:5``, ``blosc:lz4``, ``lz4`` or ``none`` by its codecs. Other codecs are not changed."""
    is_short = isinstance(codec, str) and (":" in codec or codec in ("none", "lz4"))
    return json.loads(_core.compressors_named(codec, 3)) if is_short else [codec]


def _require_role(codecs: tuple[Codec, ...], role: str, argument: str) -> tuple[Codec, ...]:
    for codec in codecs:
        if isinstance(codec, ExtensionCodec):
            object.__setattr__(codec, "role", role)  # only the argument shows the role of an unknown codec
        elif codec.role != role:
            kinds = role.replace("_", "-to-")
            raise InvalidArgumentError(f"{argument}: got codec '{codec.name}', expected {kinds} codecs")
    return codecs


def _documents(codecs: Iterable[Codec]) -> list[dict[str, Any]]:
    return [codec.to_dict() for codec in codecs]


def chain_v3(data_type: DataType, filters: Any, serializer: Any, compressors: Any) -> list[dict[str, Any]]:
    """Makes the codec chain of format 3 from the caller's arguments. ``"auto"`` gives the default codecs."""
    own_serializer, *own_compressors = map(parse_codec, _core.default_codecs(3, data_type._described)[0])
    array_array = () if is_auto(filters) else _require_role(as_codecs(filters), "array_array", "filters")
    array_bytes = own_serializer if is_auto(serializer) else parse_codec(serializer)
    bytes_bytes = own_compressors if is_auto(compressors) else _require_role(as_codecs(compressors), "bytes_bytes", "compressors")
    _require_role((array_bytes,), "array_bytes", "serializers")
    return _documents(chain_for_dtype((*array_array, array_bytes, *bytes_bytes), data_type))


def parse_chunk_key_encoding(encoding: Any, zarr_format: ZarrFormat) -> tuple[str, str]:
    """Parses the argument ``chunk_key_encoding``: returns the encoding's name and separator."""
    if hasattr(encoding, "to_dict"):
        encoding = encoding.to_dict()
    if isinstance(encoding, tuple):
        encoding = {"name": encoding[0], "separator": encoding[1]}
    if not isinstance(encoding, Mapping) or encoding.get("name") not in ("default", "v2"):
        raise InvalidArgumentError(f"chunk key encoding is {encoding!r}, expected 'default' or 'v2' with a separator")
    name = encoding["name"]
    settings = encoding.get("configuration") or encoding
    separator = settings.get("separator", "/" if name == "default" else ".")
    if separator not in ("/", "."):
        raise InvalidArgumentError(f"separator is {separator!r}, expected '/' or '.'")
    if zarr_format == 2 and name != "v2":
        raise InvalidArgumentError(f"format 2 only has the chunk key encoding 'v2', got {name!r}")
    return name, separator


def _dimension_names(names: Any) -> tuple[str | None, ...]:
    given = tuple(names) if isinstance(names, str) else items(names, "dimension_names", "a name or None for each dimension")
    if any(not isinstance(name, str | None) for name in given):
        raise InvalidArgumentError(f"dimension_names are {given!r}, expected text or None for each dimension")
    return given


def _config_v2(codec: Any, argument: str) -> dict[str, Any]:
    parsed = parse_codec(codec)
    if not isinstance(parsed, NumcodecsCodec):
        hint = "use one of cuzarr.codecs.numcodecs, or of numcodecs"
        raise InvalidArgumentError(f"{argument} of format 2: got codec '{parsed.name}', expected codecs of numcodecs", hint=hint)
    config = parsed.get_config()
    # The default is not written, because tensorstore does not know this member.
    if config["id"] == "zstd" and config.get("checksum") is False:
        del config["checksum"]
    return config


def codecs_v2(data_type: DataType, filters: Any, compressors: Any) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Makes the filters and the compressor of format 2 from the caller's arguments. ``"auto"`` gives the default ones."""
    chosen, compressor = _core.default_codecs(2, data_type._described)
    if is_auto(compressors):
        pass
    elif compressors is None or (isinstance(compressors, tuple | list) and not compressors):
        compressor = None
    else:
        if isinstance(compressors, tuple | list):
            if len(compressors) > 1:
                raise TypeError(f"format 2 has one compressor, got {len(compressors)}")
            compressors = compressors[0]
        named = json.loads(_core.compressors_named(compressors, 2)) if isinstance(compressors, str) else [compressors]
        compressor = _config_v2(named[0], "compressors") if named else None
    if not is_auto(filters):
        single = isinstance(filters, Mapping | Codec) or hasattr(filters, "get_config")
        given = [filters] if single else () if filters is None else items(filters, "filters", "codecs")
        chosen = [
            parse_codec(codec).for_dtype(data_type).get_config()  # type: ignore[attr-defined]
            for codec in given
            if _config_v2(codec, "filters")
        ]
    ids = [codec["id"] for codec in (*chosen, *([compressor] if compressor else ()))]
    if data_type.object_codec is not None and not any(name in OBJECT_CODECS for name in ids):
        raise InvalidArgumentError(f"{data_type} needs the codec '{data_type.object_codec}' among its filters")
    return chosen, compressor


def _new(
    data_type: DataType,
    shape: tuple[int, ...],
    codecs: Any,
    order: str | None,
    zarr_format: ZarrFormat,
    *,
    chunks: Any,
    fill_value: Any,
    attributes: Any,
    chunk_key_encoding: Any,
    dimension_names: Any,
    shards: Any = None,
) -> AnyArrayMetadata:
    if order not in ("C", "F", None):
        raise InvalidArgumentError(f"order is {order!r}, expected 'C' or 'F'")
    index_location, target_bytes = "end", None
    if shards is not None:
        shards, index_location, target_bytes = parse_shards(shards, 4)
    return of_core(
        _core.new_array(
            zarr_format,
            shape,
            data_type._described_in(zarr_format),
            data_type_words=data_type.json_v3,
            chunks=chunks,
            shards=shards,
            target_bytes=target_bytes,
            index_location=index_location,
            codecs=codecs,
            fill_value=fill_element(fill_value, data_type),
            is_undefined=fill_value is None and zarr_format == 2,
            order=order or "C",
            chunk_key_encoding=None if chunk_key_encoding is None else parse_chunk_key_encoding(chunk_key_encoding, zarr_format),
            dimension_names=None if dimension_names is None else _dimension_names(dimension_names) or None,
            attributes={} if attributes is None else as_attributes(attributes),
        )
    )


def new_metadata(
    *,
    shape: Any,
    dtype: Any,
    filters: Any,
    compressors: Any,
    serializer: Any,
    order: str | None,
    zarr_format: ZarrFormat,
    **given: Any,
) -> AnyArrayMetadata:
    """Makes the metadata of a new array from the arguments of ``create_array``."""
    data_type, extents = parse_dtype(dtype, zarr_format), parse_shape(shape)
    codecs: Any = None
    chosen = [one for one in (filters, serializer, compressors) if not isinstance(one, str) or one != "auto"]
    if zarr_format == 2:
        _refuse(2, shards=given["shards"], dimension_names=given["dimension_names"])
        if not is_auto(serializer):
            raise InvalidArgumentError("format 2 has no serializer")
        codecs = codecs_v2(data_type, filters, compressors) if chosen else None
        order = order or config._values()["array.order"]
    else:
        codecs = chain_v3(data_type, filters, serializer, compressors) if chosen else None
        if order is not None:
            warn_order()
            order = None
    return _new(data_type, extents, codecs, order, zarr_format, **given)


def legacy_metadata(
    *,
    shape: Any,
    dtype: Any,
    chunks: Any,
    compressor: Any,
    filters: Any,
    order: str | None,
    default_order: str,
    dimension_separator: str | None,
    codecs: Any,
    zarr_format: ZarrFormat,
    **given: Any,
) -> AnyArrayMetadata:
    """Makes the metadata of a new array from the arguments of ``create``, which may belong to either format."""
    data_type, extents = parse_dtype(dtype, zarr_format), parse_shape(shape)
    chosen: Any = None
    if zarr_format == 3:
        _refuse(3, dimension_separator=dimension_separator, filters=filters)
        if not is_auto(compressor):
            raise InvalidArgumentError("format 3 has no compressor; add it to the codecs")
        if order is not None:
            warn_order()
            order = None
        if codecs is not None:
            chosen = _documents(chain_for_dtype(as_codecs(codecs), data_type))
    else:
        _refuse(2, codecs=codecs, **{name: given[name] for name in ("chunk_key_encoding", "dimension_names")})
        if filters is not None or not is_auto(compressor):
            chosen = codecs_v2(data_type, "auto" if filters is None else filters, compressor)
        order, given["chunk_key_encoding"] = order or default_order, ("v2", dimension_separator or ".")
    given["chunks"] = "auto" if chunks is None or (zarr_format == 2 and chunks is True) else chunks
    return _new(data_type, extents, chosen, order, zarr_format, **given)


def _refuse(zarr_format: int, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise InvalidArgumentError(f"format {zarr_format} has no {name}")
