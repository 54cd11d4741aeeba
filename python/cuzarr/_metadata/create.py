"""Metadata of new arrays, from the arguments of the functions that create them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from cuzarr import _core
from cuzarr._checks import items, parse_shape, refusing
from cuzarr._config import config
from cuzarr._metadata.array import AnyArrayMetadata, ArrayV2Metadata, ArrayV3Metadata
from cuzarr._metadata.chunk_grid import ChunkGrid, guess_chunks, parse_chunks, parse_edges, resolve_chunks
from cuzarr._metadata.dtype import OBJECT_CODECS, DataType, ZarrFormat, parse_dtype
from cuzarr.codecs.chain import ExtensionCodec, ShardingCodec, chain_for_dtype, parse_codec
from cuzarr.codecs.numcodecs import NumcodecsCodec
from cuzarr.codecs.values import BytesCodec, Codec, VLenBytesCodec, VLenUTF8Codec, ZstdCodec
from cuzarr.errors import CuzarrRuntimeWarning, InvalidArgumentError

# The fill value where the caller chose none; `None` is a choice in format 2.
DEFAULT_FILL_VALUE: Any = type("DefaultFillValue", (), {"__repr__": lambda _: "DEFAULT_FILL_VALUE"})()


def is_auto(value: Any) -> bool:
    """Whether the choice is left to us."""
    return isinstance(value, str) and value == "auto"


def parse_fill_value(value: Any, data_type: DataType, zarr_format: ZarrFormat) -> Any:
    """A fill value as metadata writes it."""
    # zarr-python has a sentinel of its own, whose type differs between its versions.
    if value is DEFAULT_FILL_VALUE or type(value).__name__ in ("DefaultFillValue", "sentinel"):
        value = data_type.default_fill()
    elif value is None:
        if zarr_format == 2:
            return None
        value = data_type.default_fill()
    with refusing("fill_value", f"pass one element of {data_type}"):
        return data_type.fill_to_json(data_type.cast_fill(value), zarr_format)


def warn_order() -> None:
    """Says that format 3 stores no order."""
    message = "order has no effect in format 3; config={'order': 'F'} is the memory order of results"
    warnings.warn(message, CuzarrRuntimeWarning, stacklevel=4)


def as_codecs(codecs: Any) -> tuple[Codec, ...]:
    """Codecs from one, several, or their names and documents."""
    if codecs is None:
        return ()
    if isinstance(codecs, Codec | Mapping | str) or not isinstance(codecs, Iterable):
        codecs = (codecs,)
    return tuple(parse_codec(one) for codec in codecs for one in _spelt_out(codec))


def _spelt_out(codec: Any) -> list[Any]:
    """What a short name of the command line means, such as ``zstd:5``, ``blosc:lz4``, ``lz4`` or ``none``; other codecs as they are."""
    is_short = isinstance(codec, str) and (":" in codec or codec in ("none", "lz4"))
    return json.loads(_core.compressors_named(codec, 3)) if is_short else [codec]


def _require_role(codecs: tuple[Codec, ...], role: str, argument: str) -> tuple[Codec, ...]:
    for codec in codecs:
        if isinstance(codec, ExtensionCodec):
            object.__setattr__(codec, "role", role)  # only its place says what it is
        elif codec.role != role:
            kinds = role.replace("_", "-to-")
            raise InvalidArgumentError(f"{argument}: got codec '{codec.name}', expected {kinds} codecs")
    return codecs


def default_serializer(data_type: DataType) -> Codec:
    """The codec from elements to bytes, where the caller chose none."""
    if data_type.name == "string":
        return VLenUTF8Codec()
    if data_type.name == "variable_length_bytes":
        return VLenBytesCodec()
    return BytesCodec(endian="little" if data_type.has_byte_order else None)


def chain_v3(data_type: DataType, filters: Any, serializer: Any, compressors: Any) -> tuple[Codec, ...]:
    """The codec chain of format 3."""
    array_array = () if is_auto(filters) else _require_role(as_codecs(filters), "array_array", "filters")
    array_bytes = default_serializer(data_type) if is_auto(serializer) else parse_codec(serializer)
    if is_auto(compressors):
        bytes_bytes: tuple[Codec, ...] = (ZstdCodec(level=0, checksum=False),)
    else:
        bytes_bytes = _require_role(as_codecs(compressors), "bytes_bytes", "compressors")
    _require_role((array_bytes,), "array_bytes", "serializers")
    return chain_for_dtype((*array_array, array_bytes, *bytes_bytes), data_type)


def parse_chunk_key_encoding(encoding: Any, zarr_format: ZarrFormat) -> dict[str, Any]:
    """A chunk key encoding as metadata writes it."""
    if encoding is None:
        encoding = ("v2", ".") if zarr_format == 2 else ("default", "/")
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
    return {"name": name, "configuration": {"separator": separator}}


def _dimension_names(names: Any) -> tuple[str | None, ...]:
    given = tuple(names) if isinstance(names, str) else items(names, "dimension_names", "a name or None for each dimension")
    if any(not isinstance(name, str | None) for name in given):
        raise InvalidArgumentError(f"dimension_names are {given!r}, expected text or None for each dimension")
    return given


def document_v3(
    *,
    shape: tuple[int, ...],
    data_type: DataType,
    grid: ChunkGrid,
    chunk_key_encoding: Any,
    fill_value: Any,
    codecs: Iterable[Codec],
    dimension_names: Any,
) -> dict[str, Any]:
    """A ``zarr.json`` without its attributes."""
    document: dict[str, Any] = {
        "shape": list(shape),
        "data_type": data_type.to_json(3),
        "chunk_grid": grid.to_json(),
        "chunk_key_encoding": parse_chunk_key_encoding(chunk_key_encoding, 3),
        "fill_value": parse_fill_value(fill_value, data_type, 3),
        "codecs": [codec.to_dict() for codec in codecs],
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    if dimension_names is not None and (names := _dimension_names(dimension_names)):
        document["dimension_names"] = list(names)
    return document


def _config_v2(codec: Any, argument: str) -> dict[str, Any]:
    parsed = parse_codec(codec)
    if not isinstance(parsed, NumcodecsCodec):
        hint = "use one of cuzarr.codecs.numcodecs, or of numcodecs"
        raise InvalidArgumentError(f"{argument} of format 2: got codec '{parsed.name}', expected codecs of numcodecs", hint=hint)
    config = parsed.get_config()
    # The default says nothing, and tensorstore knows no such member.
    if config["id"] == "zstd" and config.get("checksum") is False:
        del config["checksum"]
    return config


def default_filters_v2(data_type: DataType) -> list[dict[str, Any]] | None:
    """The filters of format 2, where the caller chose none."""
    return None if data_type.object_codec is None else [{"id": data_type.object_codec}]


def codecs_v2(data_type: DataType, filters: Any, compressors: Any) -> tuple[list[dict[str, Any]] | None, Any]:
    """Filters and compressor of format 2."""
    if is_auto(compressors):
        compressor: dict[str, Any] | None = {"id": "zstd", "level": 0}
    elif compressors is None or (isinstance(compressors, tuple | list) and not compressors):
        compressor = None
    else:
        if isinstance(compressors, tuple | list):
            if len(compressors) > 1:
                raise TypeError(f"format 2 has one compressor, got {len(compressors)}")
            compressors = compressors[0]
        named = json.loads(_core.compressors_named(compressors, 2)) if isinstance(compressors, str) else [compressors]
        compressor = _config_v2(named[0], "compressors") if named else None
    if is_auto(filters):
        chosen = default_filters_v2(data_type)
    else:
        single = isinstance(filters, Mapping | Codec) or hasattr(filters, "get_config")
        given = [filters] if single else () if filters is None else items(filters, "filters", "codecs")
        chosen = [
            parse_codec(codec).for_dtype(data_type).get_config()  # type: ignore[attr-defined]
            for codec in given
            if _config_v2(codec, "filters")
        ] or None
    ids = [codec["id"] for codec in (*(chosen or ()), *([compressor] if compressor else ()))]
    if data_type.object_codec is not None and not any(name in OBJECT_CODECS for name in ids):
        raise InvalidArgumentError(f"{data_type} needs the codec '{data_type.object_codec}' among its filters")
    return chosen, compressor


def document_v2(
    *,
    shape: tuple[int, ...],
    data_type: DataType,
    chunks: tuple[int, ...],
    separator: str,
    fill_value: Any,
    order: str,
    filters: Any,
    compressor: Any,
) -> dict[str, Any]:
    """A ``.zarray``."""
    if order not in ("C", "F"):
        raise InvalidArgumentError(f"order is {order!r}, expected 'C' or 'F'")
    return {
        "shape": list(shape),
        "chunks": list(chunks),
        "dtype": data_type.to_json(2),
        "fill_value": parse_fill_value(fill_value, data_type, 2),
        "order": order,
        "filters": filters,
        "dimension_separator": separator,
        "compressor": compressor,
        "zarr_format": 2,
    }


def new_metadata(
    *,
    shape: Any,
    dtype: Any,
    chunks: Any,
    shards: Any,
    filters: Any,
    compressors: Any,
    serializer: Any,
    fill_value: Any,
    order: str | None,
    zarr_format: ZarrFormat,
    attributes: Any,
    chunk_key_encoding: Any,
    dimension_names: Any,
) -> AnyArrayMetadata:
    """Metadata for ``create_array``."""
    data_type = parse_dtype(dtype, zarr_format)
    extents = parse_shape(shape)
    inner, outer, index_location = resolve_chunks(extents, chunks, shards, data_type.item_bytes)
    listed = chunks if shards is None else shards["shape"] if isinstance(shards, Mapping) else shards
    edges = parse_edges(listed, extents, None if outer is None else inner)
    if zarr_format == 2:
        if edges is not None and not edges.is_regular:
            raise InvalidArgumentError("format 2 has no rectilinear chunk grid")
        for argument, given in (("shards", outer), ("dimension_names", dimension_names)):
            if given is not None:
                raise InvalidArgumentError(f"format 2 has no {argument}")
        if not is_auto(serializer):
            raise InvalidArgumentError("format 2 has no serializer")
        chosen, compressor = codecs_v2(data_type, filters, compressors)
        separator = parse_chunk_key_encoding(chunk_key_encoding, 2)["configuration"]["separator"]
        document = document_v2(
            shape=extents,
            data_type=data_type,
            chunks=inner,
            separator=separator,
            fill_value=fill_value,
            order=order or config.get("array.order"),
            filters=chosen,
            compressor=compressor,
        )
        return ArrayV2Metadata(document, attributes)
    if order is not None:
        warn_order()
    codecs = chain_v3(data_type, filters, serializer, compressors)
    if outer is not None:
        codecs = (ShardingCodec(chunk_shape=inner, codecs=codecs, index_location=index_location),)  # type: ignore[arg-type]
    document = document_v3(
        shape=extents,
        data_type=data_type,
        grid=edges or ChunkGrid.regular(outer or inner),
        chunk_key_encoding=chunk_key_encoding,
        fill_value=fill_value,
        codecs=codecs,
        dimension_names=dimension_names,
    )
    return ArrayV3Metadata(document, attributes)


def legacy_metadata(
    *,
    shape: Any,
    dtype: Any,
    chunks: Any,
    compressor: Any,
    filters: Any,
    fill_value: Any,
    order: str | None,
    default_order: str,
    dimension_separator: str | None,
    chunk_key_encoding: Any,
    codecs: Any,
    dimension_names: Any,
    attributes: Any,
    zarr_format: ZarrFormat,
) -> AnyArrayMetadata:
    """Metadata for ``create``, whose arguments are those of both formats."""
    data_type = parse_dtype(dtype, zarr_format)
    extents = parse_shape(shape)
    if (edges := parse_edges(chunks, extents)) is not None:
        if zarr_format == 2 and not edges.is_regular:
            raise InvalidArgumentError("format 2 has no rectilinear chunk grid")
        chosen_chunks = edges.largest
    elif chunks is None or (zarr_format == 2 and chunks is True):
        chosen_chunks = guess_chunks(extents, data_type.item_bytes)
    else:
        chosen_chunks = parse_chunks(chunks, extents)
    if zarr_format == 3:
        _refuse(3, dimension_separator=dimension_separator, filters=filters)
        if not is_auto(compressor):
            raise InvalidArgumentError("format 3 has no compressor; add it to the codecs")
        if order is not None:
            warn_order()
        chain = chain_v3(data_type, "auto", "auto", "auto") if codecs is None else as_codecs(codecs)
        document = document_v3(
            shape=extents,
            data_type=data_type,
            grid=edges or ChunkGrid.regular(chosen_chunks),
            chunk_key_encoding=chunk_key_encoding,
            fill_value=fill_value,
            codecs=chain_for_dtype(chain, data_type),
            dimension_names=dimension_names,
        )
        return ArrayV3Metadata(document, attributes)
    _refuse(2, codecs=codecs, chunk_key_encoding=chunk_key_encoding, dimension_names=dimension_names)
    chosen, parsed = codecs_v2(data_type, "auto" if filters is None else filters, compressor)
    document = document_v2(
        shape=extents,
        data_type=data_type,
        chunks=chosen_chunks,
        separator=dimension_separator or ".",
        fill_value=fill_value,
        order=order or default_order,
        filters=chosen,
        compressor=parsed,
    )
    return ArrayV2Metadata(document, attributes)


def _refuse(zarr_format: int, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise InvalidArgumentError(f"format {zarr_format} has no {name}")
