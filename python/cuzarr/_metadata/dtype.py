"""Data types: what a caller may write, what NumPy holds, and what metadata says; and fill values in all three."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cuzarr import _numpy
from cuzarr._checks import element_type
from cuzarr._memory.foreign import refuse_masked
from cuzarr._metadata import small_numbers
from cuzarr._names import did_you_mean
from cuzarr.errors import (
    DataTypeValidationError,
    InvalidArgumentError,
    LibraryMissingError,
    OutOfRangeError,
    UnknownDataTypeError,
)

ZarrFormat = Literal[2, 3]

_PLAIN_NAMES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
)
# Other registered names of the same types.
_ALIASES = {"complex_float32": "complex64", "complex_float64": "complex128"}
_STRING_NAMES = ("string", "str")
_BYTES_NAMES = ("variable_length_bytes", "bytes")
_STRING_CODECS = ("vlen-utf8",)
_BYTES_CODECS = ("vlen-bytes",)
OBJECT_CODECS = (*_STRING_CODECS, *_BYTES_CODECS, "vlen-array", "pickle", "json2", "msgpack2", "categorize")


def _string_dtype() -> np.dtype[Any]:
    # NumPy 1 has no type for strings of any length.
    variable = getattr(np.dtypes, "StringDType", None)
    return np.dtype(object) if variable is None else variable()


def _bfloat16_dtype() -> np.dtype[Any]:
    try:
        return _numpy.of_ml_dtypes("bfloat16")
    except LibraryMissingError:
        return np.dtype("V2")  # the bits, for those who only pass them on


@dataclass(frozen=True)
class DataType:
    """One data type of Zarr.

    ``name`` is ``"string"`` or ``"variable_length_bytes"`` for elements of variable length, the name of a number that NumPy has
    only with ``ml_dtypes`` (``"bfloat16"``, ``"int4"``, ``"float8_e5m2"``, ``"complex_bfloat16"``), or ``"fixed"`` for
    everything that a NumPy dtype says by itself. ``json_v3`` keeps the words the metadata used.

    Parameters
    ----------
    native : numpy.dtype
        The type of the elements in memory.
    name : str
        ``"fixed"``, ``"string"``, ``"variable_length_bytes"``, or the name of a number of ``ml_dtypes``.
    json_v3
        The words that the metadata used.

    Raises
    ------
    DataTypeValidationError
        A setting is not allowed.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.dtype.Int16().native
    dtype('<i2')
    """

    native: np.dtype[Any]
    name: str = "fixed"
    json_v3: Any = None

    @property
    def is_variable(self) -> bool:
        """Whether elements are of variable length."""
        return self.name in ("string", "variable_length_bytes")

    @property
    def is_text(self) -> bool:
        """Whether elements are strings of variable length."""
        return self.name == "string"

    @property
    def item_bytes(self) -> int:
        """Bytes of one element; 1 for elements of variable length, whose chunks are chosen by count."""
        return 1 if self.is_variable else self.native.itemsize

    @property
    def has_byte_order(self) -> bool:
        """Whether the bytes codec has to be told an endianness."""
        return not self.is_variable and _has_byte_order(self.native)

    def _of_json(self, spec: Any) -> DataType:
        """Another data type, from format 3 metadata."""
        return from_json_v3(spec)

    def _of_native(self, native: np.dtype[Any]) -> DataType:
        """Another data type, from NumPy's."""
        return DataType(native)

    @property
    def object_codec(self) -> str | None:
        """The codec that makes bytes of elements of variable length."""
        return {"string": "vlen-utf8", "variable_length_bytes": "vlen-bytes"}.get(self.name)

    def to_json(self, zarr_format: ZarrFormat) -> Any:
        """The name or description of this type in metadata.

        Parameters
        ----------
        zarr_format : {2, 3}
            The format of the metadata.

        Returns
        -------
        str, list or dict
            What JSON can hold.

        Raises
        ------
        DataTypeValidationError
            The type has no name in format 2.

        Examples
        --------
        >>> import cuzarr
        >>> dtype = cuzarr.dtype.Int16()
        >>> dtype.to_json(3), dtype.to_json(2)
        ('int16', '<i2')
        """
        if zarr_format == 2:
            if self.is_variable:
                return "|O"
            _check_v2(self.native, self.name)
            return _descr(self.native)
        return self.json_v3 if self.json_v3 is not None else _json_v3(self)

    def default_fill(self) -> Any:
        """The fill value of arrays for which none was chosen: zero, an empty string, or not-a-time.

        Returns
        -------
        scalar
            A scalar of this type.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.dtype.Int16().default_fill().item(), cuzarr.dtype.VariableLengthUTF8().default_fill()
        (0, '')
        """
        if self.is_variable:
            return "" if self.name == "string" else b""
        if self.native.kind in "mM":
            return self.native.type("NaT", *_unit_args(self.native))
        return np.zeros((), self.native.newbyteorder("="))[()]

    def cast_fill(self, value: Any) -> Any:
        """A value as a scalar of this type.

        Parameters
        ----------
        value : scalar
            A number, text, bytes or date, as the type wants it.

        Returns
        -------
        scalar
            The value as this type holds it.

        Raises
        ------
        OutOfRangeError
            The value is too large for the type.
        InvalidArgumentError
            The type cannot hold such a value.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.dtype.Int16().cast_fill(7.0).item()
        7
        """
        refuse_masked(value)
        try:
            cast = self._cast_fill(value)
            if np.ndim(cast):
                raise ValueError("more than one element")
            return cast
        except (TypeError, ValueError, OverflowError) as error:
            kind = OutOfRangeError if isinstance(error, OverflowError) else InvalidArgumentError
            raise kind(f"fill value {value!r} is not a valid {self}: {error}") from error

    def _cast_fill(self, value: Any) -> Any:
        if self.name == "string":
            return str(value)
        if self.name == "variable_length_bytes":
            return value.encode() if isinstance(value, str) else bytes(value)
        if self._is_small:
            return small_numbers.cast(value, self.native)
        native = self.native.newbyteorder("=")
        if native.names is not None or native.kind == "V":
            if isinstance(value, bytes):
                return np.frombuffer(value, native, count=1)[0]
            if native.names is None:
                return np.array(value).astype(native)[()]
            if np.isscalar(value) and not isinstance(value, np.void):
                filled = np.zeros((), native)
                filled[...] = value
                return filled[()]
            return np.array(tuple(value) if isinstance(value, list) else value, native)[()]
        if native.kind in "mM":
            # NumPy counts its time differences among its integers.
            if isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64):
                return np.array(int(value), "i8").view(native)[()]
            return np.array(value, native)[()]
        if isinstance(value, np.number) and value.dtype == native:
            return value  # by way of Python's number a NaN could lose bits
        if native.kind in "iubfc" and isinstance(value, np.number):
            value = value.item()  # NumPy's own numbers would wrap, and complex ones lose a part
        if native.kind in "iub" and isinstance(value, float):
            if value != int(value):
                raise ValueError("not a whole number")
            value = int(value)
        if native.kind == "f" and isinstance(value, str):
            value = _float_from_json(value, native)
        return np.array(value, native)[()]

    def fill_to_json(self, value: Any, zarr_format: ZarrFormat) -> Any:
        """A scalar of this type, as metadata writes a fill value.

        Parameters
        ----------
        value : scalar or None
            The fill value.
        zarr_format : {2, 3}
            The format of the metadata.

        Returns
        -------
        str, number, list or None
            What JSON can hold. ``None`` stays ``None``.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.dtype.Float32().fill_to_json(float("nan"), 3)
        'NaN'
        """
        if value is None:
            return None
        if self.name == "string":
            return value
        if self.name == "variable_length_bytes":
            return base64.b64encode(value).decode()
        if self._is_small:
            return small_numbers.to_json(np.asarray(value, self.native), zarr_format)
        return _scalar_to_json(np.asarray(value), self.native, zarr_format, self._structure_is_bytes)

    def fill_from_json(self, value: Any, zarr_format: ZarrFormat) -> Any:
        """A fill value from metadata, as a scalar of this type.

        Parameters
        ----------
        value : str, number, list or None
            What the metadata says.
        zarr_format : {2, 3}
            The format of the metadata.

        Returns
        -------
        scalar or None
            The fill value. ``None`` stays ``None``.

        Raises
        ------
        DataTypeValidationError
            The metadata does not say a value of this type.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.dtype.Float32().fill_from_json("Infinity", 3).item()
        inf
        """
        if value is None:
            return None
        try:
            if self.name == "string":
                return "" if value == 0 else str(value)
            if self.name == "variable_length_bytes":
                return base64.b64decode(value) if isinstance(value, str) else bytes(value or b"")
            if self._is_small:
                return small_numbers.from_json(value, self.native)
            return _scalar_from_json(value, self.native)
        except (TypeError, ValueError, OverflowError, KeyError) as error:
            raise DataTypeValidationError(f"fill value {value!r} is not a valid {self}") from error

    @property
    def _is_small(self) -> bool:
        return self.name in small_numbers.NAMES

    @property
    def _structure_is_bytes(self) -> bool:
        return isinstance(self.json_v3, Mapping) and self.json_v3.get("name") == "structured"

    def __str__(self) -> str:
        return self.name if self.name != "fixed" else str(self.native)


def _has_byte_order(native: np.dtype[Any]) -> bool:
    if native.names is not None:
        return any(_has_byte_order(native[name]) for name in native.names)
    if _numpy.is_small(native):
        return native.itemsize > 1
    return native.kind == "U" or native.name == "bfloat16" or (native.kind not in "SVb" and native.itemsize > 1)


def _unit_args(native: np.dtype[Any]) -> tuple[Any, ...]:
    unit, count = np.datetime_data(native)
    return () if unit == "generic" else (f"{count}{unit}" if count != 1 else unit,)


def _check_v2(native: np.dtype[Any], name: str) -> None:
    """Refuses numbers that NumPy has no code for: their code means raw bytes."""
    if name == "bfloat16" or name in small_numbers.NAMES:
        raise DataTypeValidationError(f"{name} has no name in Zarr format 2", hint="create the array with zarr_format=3")
    for field in native.names or ():
        _check_v2(native[field], _own_name(native[field]))


def _descr(native: np.dtype[Any]) -> Any:
    if native.names is None:
        return native.str
    return [[name, _descr(native[name])] for name in native.names]


def _json_v3(data_type: DataType) -> Any:
    if data_type.name != "fixed":
        return data_type.name
    native = data_type.native
    if native.names is not None:
        fields = [{"name": name, "data_type": _json_v3(DataType(native[name], _own_name(native[name])))} for name in native.names]
        return {"name": "struct", "configuration": {"fields": fields}}
    if native.kind in "SUV":
        name = {"S": "null_terminated_bytes", "U": "fixed_length_utf32", "V": "raw_bytes"}[native.kind]
        return {"name": name, "configuration": {"length_bytes": native.itemsize}}
    if native.kind in "mM":
        unit, count = np.datetime_data(native)
        name = "numpy.datetime64" if native.kind == "M" else "numpy.timedelta64"
        return {"name": name, "configuration": {"unit": unit, "scale_factor": count}}
    return native.name


def _own_name(native: np.dtype[Any]) -> str:
    """The ``name`` of the data type of these elements, which have a fixed size."""
    if native.name == "bfloat16":
        return "bfloat16"
    return _numpy.SMALL_NUMBERS[native.name] if _numpy.is_small(native) else "fixed"


def parse_dtype(spec: Any, zarr_format: ZarrFormat) -> DataType:
    """A data type from whatever a caller may write: NumPy's dtypes and names, Zarr's names and JSON, zarr-python's objects.

    Raises
    ------
    DataTypeValidationError
        Zarr cannot store it, or the name is not known.
    """
    if isinstance(spec, DataType):
        return spec
    spec = _numpy.of_library(spec)
    if hasattr(spec, "to_native_dtype") and hasattr(spec, "to_json"):  # zarr-python's ZDType
        return _from_zarr_object(spec, zarr_format)
    if isinstance(spec, Mapping) or (isinstance(spec, str) and _is_v3_name(spec)):
        if isinstance(spec, str) and spec in _PLAIN_NAMES:
            return DataType(np.dtype(spec))
        return from_json_v3(spec)
    if isinstance(spec, str) and spec in _STRING_NAMES or spec is str:
        return DataType(_string_dtype(), "string")
    if isinstance(spec, list):
        spec = [tuple(field) if isinstance(field, Iterable) else field for field in spec]
    return _from_native(element_type(spec, _hint(spec)))


def _hint(spec: Any) -> str | None:
    name = spec.get("name") if isinstance(spec, Mapping) else spec
    return did_you_mean(name, (*sorted(_PLAIN_NAMES), "string", "bfloat16", "datetime64", "timedelta64", *_BYTES_NAMES))


def _is_v3_name(text: str) -> bool:
    return text in _PLAIN_NAMES or text in small_numbers.NAMES or text in ("string", "bfloat16", *_BYTES_NAMES[:1])


def _from_zarr_object(spec: Any, zarr_format: ZarrFormat) -> DataType:
    native = spec.to_native_dtype()
    if native.kind == "O" or native.kind == "T":
        codec = getattr(spec, "object_codec_id", None)
        if codec in _STRING_CODECS:
            return DataType(_string_dtype(), "string")
        if codec in _BYTES_CODECS:
            return DataType(np.dtype(object), "variable_length_bytes")
    return _from_native(native)


def _from_native(native: np.dtype[Any]) -> DataType:
    _numpy.check_type(native)
    if native.kind == "T":
        return DataType(_string_dtype(), "string")
    if native.kind == "O":
        raise DataTypeValidationError(
            "an object array can hold anything, so its element type is unknown",
            hint="name the elements: dtype='string' or dtype='variable_length_bytes'",
        )
    if (name := _own_name(native)) != "fixed":
        return DataType(native, name)
    _check_native(native)
    if native.names is not None:
        native = np.dtype([(name, native[name]) for name in native.names])  # without padding
    return DataType(native)


# Bytes of the largest element. NumPy allows 2 GiB, but a line of metadata must not make a reader take that much for a fill value.
MAX_ITEM_BYTES = 1 << 24


def _check_size(native: np.dtype[Any]) -> np.dtype[Any]:
    if native.itemsize > MAX_ITEM_BYTES:
        raise DataTypeValidationError(f"elements have {native.itemsize} bytes, expected at most {MAX_ITEM_BYTES}")
    return native


def _check_native(native: np.dtype[Any]) -> None:
    _check_size(native)
    if native.names is not None:
        for name in native.names:
            if native[name].subdtype is not None:
                raise DataTypeValidationError(f"field '{name}' of {native} is an array, and Zarr has only scalar fields")
            _check_native(native[name])
    elif _own_name(native) != "fixed":
        return
    elif native.kind not in "biufcSUVmM" or native.subdtype is not None or native.itemsize > 16 and native.kind in "fc":
        raise DataTypeValidationError(f"Zarr has no data type for {native!r}")
    elif native.itemsize == 0:
        raise DataTypeValidationError(f"elements of {native!r} have no bytes, expected at least 1")


def from_json_v3(spec: Any) -> DataType:
    """A data type from format 3 metadata."""
    name, configuration = _named(spec)
    if name in _PLAIN_NAMES:
        return DataType(np.dtype(name), json_v3=spec)
    if name in _ALIASES:
        return DataType(np.dtype(_ALIASES[name]), json_v3=spec)
    if name == "bfloat16":
        return DataType(_bfloat16_dtype(), "bfloat16", spec)
    if name in small_numbers.NAMES:
        return DataType(small_numbers.native(name), name, spec)
    if name == "string":
        return DataType(_string_dtype(), "string", spec)
    if name in _BYTES_NAMES:
        return DataType(np.dtype(object), "variable_length_bytes", spec)
    try:
        native = _configured_native(name, configuration)
    except (KeyError, TypeError, ValueError) as error:
        raise DataTypeValidationError(f"data type {spec!r} breaks its specification: {error}") from error
    if native is None:
        raise UnknownDataTypeError(f"unknown data type {spec!r}", hint=_hint(spec))
    return DataType(_check_size(native), json_v3=spec)


def _named(spec: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(spec, str):
        return spec, {}
    if isinstance(spec, Mapping) and isinstance(spec.get("name"), str):
        configuration = spec.get("configuration") or {}
        if isinstance(configuration, Mapping):
            return spec["name"], configuration
    raise DataTypeValidationError(f"data type is {spec!r}, expected a name, or a dictionary with one")


def _configured_native(name: str, configuration: Mapping[str, Any]) -> np.dtype[Any] | None:
    if name[:1] == "r" and name[1:].isdigit() and int(name[1:]) % 8 == 0 and int(name[1:]) > 0:
        return np.dtype(f"V{int(name[1:]) // 8}")
    if name in ("null_terminated_bytes", "raw_bytes", "fixed_length_utf32"):
        length_bytes = int(configuration["length_bytes"])
        if name == "fixed_length_utf32":
            if length_bytes % 4:
                raise ValueError(f"length_bytes is {length_bytes}, expected a multiple of 4")
            return np.dtype(f"<U{length_bytes // 4}")
        return np.dtype(f"{'S' if name == 'null_terminated_bytes' else 'V'}{length_bytes}")
    if name in ("numpy.datetime64", "numpy.timedelta64"):
        letter = "M" if name == "numpy.datetime64" else "m"
        unit, count = configuration["unit"], int(configuration.get("scale_factor", 1))
        return np.dtype(f"<{letter}8" if unit == "generic" else f"<{letter}8[{count}{unit}]")
    if name in ("struct", "structured"):
        fields = [
            (field["name"], field["data_type"]) if isinstance(field, Mapping) else tuple(field)
            for field in configuration["fields"]
        ]
        return np.dtype([(field, from_json_v3(data_type).native) for field, data_type in fields])
    return None


def from_json_v2(spec: Any, codec_ids: Sequence[str]) -> DataType:
    """A data type from format 2 metadata; ``codec_ids`` tell what object arrays hold."""
    if spec == "|O":
        if any(codec in _STRING_CODECS for codec in codec_ids):
            return DataType(_string_dtype(), "string")
        if any(codec in _BYTES_CODECS for codec in codec_ids):
            return DataType(np.dtype(object), "variable_length_bytes")
        named = next((codec for codec in codec_ids if codec in OBJECT_CODECS), None)
        raise UnknownDataTypeError(f"object arrays encoded by {named!r} are not supported, only vlen-utf8 and vlen-bytes")
    if isinstance(spec, str) and spec in small_numbers.NAMES:
        return DataType(small_numbers.native(spec), spec)  # as tensorstore writes them
    try:
        return _from_native(np.dtype(_fields_v2(spec)))
    except (TypeError, ValueError) as error:
        if isinstance(error, DataTypeValidationError):
            raise
        raise UnknownDataTypeError(f"unknown data type {spec!r}") from error


def _fields_v2(spec: Any) -> Any:
    if isinstance(spec, str):
        return spec
    return [(field[0], _fields_v2(field[1]), *map(tuple, field[2:])) for field in spec]


def _float_from_json(value: Any, native: np.dtype[Any]) -> Any:
    if isinstance(value, str):
        words = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
        if value in words:
            return np.array(words[value], native)[()]
        if value.startswith("0x"):
            return np.array(int(value, 16), f"u{native.itemsize}").view(native)[()]
        raise ValueError(f"not a number: {value!r}")
    return np.array(value, native)[()]


def _scalar_from_json(value: Any, stored: np.dtype[Any]) -> Any:
    if _numpy.is_small(stored):
        return small_numbers.from_json(value, stored)
    native = stored.newbyteorder("=")
    if native.names is not None:
        if isinstance(value, Mapping):
            return np.array(tuple(_scalar_from_json(value[name], native[name]) for name in native.names), native)[()]
        if isinstance(value, str):
            return np.frombuffer(base64.b64decode(value), stored, count=1).astype(native)[0]
        return np.zeros((), native)[()] if value == 0 else np.array(tuple(value), native)[()]
    if native.kind == "f" or native.name == "bfloat16":  # whose kind is that of bytes
        return _float_from_json(value, native)
    if native.kind in "SV":
        raw = base64.b64decode(value) if isinstance(value, str) else bytes(value or [])
        if native.kind == "S":
            return np.bytes_(raw)
        # The specification's list of bytes may be shorter: like the Rust side, the rest is zero.
        if isinstance(value, str) and value and len(raw) != native.itemsize or len(raw) > native.itemsize:
            raise ValueError(f"got {len(raw)} bytes, expected {native.itemsize}")
        return np.frombuffer(raw.ljust(native.itemsize, b"\0"), native)[0]
    if native.kind == "U":
        return np.str_("" if value == 0 else value)
    if native.kind in "mM":
        return np.array(value, "i8").view(native)[()] if value != "NaT" else native.type("NaT", *_unit_args(native))
    if native.kind == "c":
        half = np.dtype(f"f{native.itemsize // 2}")
        if isinstance(value, Sequence) and not isinstance(value, str):
            parts = [_float_from_json(part, half) for part in value]
            return np.array(parts, half).view(native)[0]
        return np.array(value, native)[()]
    if native.kind == "b":
        if value not in (0, 1):
            raise ValueError("neither true nor false")
        return np.bool_(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return native.type(value)


def _float_to_json(value: np.ndarray[Any, Any], zarr_format: ZarrFormat) -> Any:
    number = float(value)
    if math.isnan(number):
        bits = value.astype(value.dtype.newbyteorder(">")).tobytes()
        canonical = {2: b"\x7e\x00", 4: struct.pack(">f", math.nan), 8: struct.pack(">d", math.nan)}[len(bits)]
        return "NaN" if zarr_format == 2 or bits == canonical else "0x" + bits.hex()
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def _scalar_to_json(value: np.ndarray[Any, Any], stored: np.dtype[Any], zarr_format: ZarrFormat, as_bytes: bool = False) -> Any:
    kind = stored.kind
    if _numpy.is_small(stored):
        return small_numbers.to_json(value, zarr_format)
    if stored.names is not None:
        if zarr_format == 2 or as_bytes:
            return base64.b64encode(value.astype(stored).tobytes()).decode()
        return {name: _scalar_to_json(np.asarray(value[name]), stored[name], 3) for name in stored.names}
    if stored.name == "bfloat16":
        bits = int(value.view("u2"))
        has_payload = math.isnan(float(value)) and bits != 0x7FC0
        return f"0x{bits:04x}" if has_payload and zarr_format == 3 else _float_to_json(value.astype("f4"), zarr_format)
    if kind in "SV":
        raw = value.item() if kind == "S" else value.tobytes()
        return base64.b64encode(raw).decode()
    if kind == "U":
        return str(value)
    if kind in "mM":
        return int(value.astype("i8"))
    if kind == "c":
        return [_float_to_json(value.real, zarr_format), _float_to_json(value.imag, zarr_format)]
    if kind == "f":
        return _float_to_json(value, zarr_format)
    return bool(value) if kind == "b" else int(value)
