"""Data types and fill values: conversion between callers' arguments, NumPy's types and metadata."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cuzarr import _core, _numpy
from cuzarr._checks import element_type
from cuzarr._memory.foreign import refuse_masked
from cuzarr._metadata import small_numbers
from cuzarr._names import did_you_mean
from cuzarr.errors import (
    DataTypeValidationError,
    InvalidArgumentError,
    LibraryMissingError,
    MetadataValidationError,
    OutOfRangeError,
    UnknownDataTypeError,
)

ZarrFormat = Literal[2, 3]

_PLAIN_NAMES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
)
_STRING_NAMES = ("string", "str")
_BYTES_NAMES = ("variable_length_bytes", "bytes")
_STRING_CODECS = ("vlen-utf8",)
_BYTES_CODECS = ("vlen-bytes",)
OBJECT_CODECS = (*_STRING_CODECS, *_BYTES_CODECS, "vlen-array", "pickle", "json2", "msgpack2", "categorize")


def _string_dtype() -> np.dtype[Any]:
    # NumPy 1 has no type for strings of variable length.
    variable = getattr(np.dtypes, "StringDType", None)
    return np.dtype(object) if variable is None else variable()


def _bfloat16_dtype() -> np.dtype[Any]:
    try:
        return _numpy.of_ml_dtypes("bfloat16")
    except LibraryMissingError:
        return np.dtype("V2")  # raw bits, for programs that only pass them on


@dataclass(frozen=True)
class DataType:
    """A data type of Zarr: what the elements of an array are.

    ``name`` is ``"string"`` or ``"variable_length_bytes"`` for elements of variable length. For numbers that need ``ml_dtypes``, it is
    their name (``"bfloat16"``, ``"int4"``, ``"float8_e5m2"``, ``"complex_bfloat16"``). Otherwise it is ``"fixed"``, and the NumPy dtype
    is the full description. ``json_v3`` keeps the spelling of the type in the metadata.

    Parameters
    ----------
    native : numpy.dtype
        The type of the elements in memory.
    name : str
        ``"fixed"``, ``"string"``, ``"variable_length_bytes"``, or the name of a number of ``ml_dtypes``.
    json_v3
        The type in the spelling of the metadata.

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
        """Whether elements have variable length, such as strings of any length."""
        return self.name in ("string", "variable_length_bytes")

    @property
    def is_text(self) -> bool:
        """Whether elements are strings of variable length."""
        return self.name == "string"

    @property
    def item_bytes(self) -> int:
        """Size of one element in bytes. It is 1 for elements of variable length, so that chunk shapes are chosen by count."""
        return 1 if self.is_variable else self.native.itemsize

    @property
    def has_byte_order(self) -> bool:
        """Whether the ``bytes`` codec needs an endianness for this type."""
        return not self.is_variable and _has_byte_order(self.native)

    def _of_json(self, spec: Any) -> DataType:
        """Makes the data type that format 3 metadata describes."""
        return from_json_v3(spec)

    def _of_native(self, native: np.dtype[Any]) -> DataType:
        """Makes the data type for a NumPy dtype."""
        return DataType(native)

    @property
    def object_codec(self) -> str | None:
        """Name of the codec that encodes elements of variable length as bytes; ``None`` for other elements."""
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
            return "|O" if self.is_variable else self._described_in(2)
        return self.json_v3 if self.json_v3 is not None else _core.words_v3(self._described)

    def _described_in(self, zarr_format: ZarrFormat) -> Any:
        """Describes this type for the Rust side, by an argument of ``numpy.dtype`` or a Zarr name. Checks that the format can store the
        type.

        Raises
        ------
        DataTypeValidationError
            The type has no name in format 2.
        """
        if zarr_format == 2 and not self.is_variable:
            _check_v2(self.native, self.name)
        return self._described

    @functools.cached_property
    def _described(self) -> Any:
        """The argument by which ``numpy.dtype`` makes this type. Types that NumPy lacks have their Zarr names, and lists stand for
        tuples."""
        if self.is_variable:
            return "T" if self.name == "string" else "|O"
        return _described(self.native) if self.name == "fixed" else self.name

    def default_fill(self) -> Any:
        """The default fill value of arrays of this type: zero, an empty string, or not-a-time.

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
        """Converts a value to a scalar of this type, to be used as a fill value.

        Parameters
        ----------
        value : scalar
            A number, text, bytes or date that fits the type.

        Returns
        -------
        scalar
            The value as a scalar of this type.

        Raises
        ------
        OutOfRangeError
            The value is too large for the type.
        InvalidArgumentError
            The type cannot hold a value of this kind.

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
            return self._cast_small(value)
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
            # For NumPy, time differences are integers.
            if isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64):
                return np.array(int(value), "i8").view(native)[()]
            return np.array(value, native)[()]
        if isinstance(value, np.number) and value.dtype == native:
            return value  # not converted to a Python number, in which a NaN could lose bits
        if native.kind in "iubfc" and isinstance(value, np.number):
            value = value.item()  # NumPy's own numbers would wrap around, and complex ones lose a part
        if native.kind in "iub" and isinstance(value, float):
            if value != int(value):
                raise ValueError("not a whole number")
            value = int(value)
        if native.kind == "f" and isinstance(value, str):
            return self._of_element(_core.fill_to_element(value, self._described, 3))
        return np.array(value, native)[()]

    def _cast_small(self, value: Any) -> Any:
        if getattr(value, "dtype", None) == self.native and np.ndim(value) == 0:
            return np.asarray(value)[()]
        if isinstance(value, np.generic | np.ndarray):
            value = value.item()
        if isinstance(value, complex):
            value = [value.real, value.imag]
        try:
            return self._of_element(_core.fill_to_element(value, self._described, 3))
        except MetadataValidationError as error:
            is_number = isinstance(value, int | float) and not ("int" in self.name and value % 1)
            raise (OverflowError if is_number else ValueError)(error.message) from error

    def _element(self, value: Any) -> bytes:
        """Converts a value to the bytes of one element of this type."""
        if self.is_variable:
            return value.encode() if isinstance(value, str) else bytes(value)
        return np.asarray(value, self._in_memory).tobytes()

    def _of_element(self, element: bytes) -> Any:
        """Converts the bytes of one element to a scalar of this type."""
        if self.is_variable:
            return element.decode() if self.name == "string" else element
        return np.frombuffer(element, self._in_memory).copy()[0]

    @property
    def _in_memory(self) -> np.dtype[Any]:
        return self.native if self._is_small else self.native.newbyteorder("=")

    def fill_to_json(self, value: Any, zarr_format: ZarrFormat) -> Any:
        """Converts a scalar of this type to the form that metadata use for fill values.

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
        # The fill values of structures under their former name are stored as bytes, as in format 2.
        form = 2 if self._structure_is_bytes else zarr_format
        return _core.fill_to_json(self._element(value), self._described, form)

    def fill_from_json(self, value: Any, zarr_format: ZarrFormat) -> Any:
        """Converts a fill value in metadata to a scalar of this type.

        Parameters
        ----------
        value : str, number, list or None
            The fill value in the form of the metadata.
        zarr_format : {2, 3}
            The format of the metadata.

        Returns
        -------
        scalar or None
            The fill value. ``None`` stays ``None``.

        Raises
        ------
        DataTypeValidationError
            The metadata do not contain a value of this type.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.dtype.Float32().fill_from_json("Infinity", 3).item()
        inf
        """
        if value is None:
            return None
        try:
            return self._of_element(_core.fill_to_element(value, self._described, zarr_format))
        except (InvalidArgumentError, MetadataValidationError) as error:
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
    """Refuses, for Zarr format 2, types that have no type code of their own in NumPy (such as bfloat16), whose code would mean raw
    bytes."""
    if name == "bfloat16" or name in small_numbers.NAMES:
        raise DataTypeValidationError(f"{name} has no name in Zarr format 2", hint="create the array with zarr_format=3")
    for field in native.names or ():
        _check_v2(native[field], _own_name(native[field]))


def _described(native: np.dtype[Any]) -> Any:
    if native.names is not None:
        return [[name, _described(native[name])] for name in native.names]
    name = _own_name(native)
    return native.str if name == "fixed" else name


def _own_name(native: np.dtype[Any]) -> str:
    """The attribute ``name`` of the ``DataType`` for a dtype: Zarr's name for a type of ``ml_dtypes``, such as ``"bfloat16"``, else
    ``"fixed"``."""
    if native.name == "bfloat16":
        return "bfloat16"
    return _numpy.SMALL_NUMBERS[native.name] if _numpy.is_small(native) else "fixed"


def parse_dtype(spec: Any, zarr_format: ZarrFormat) -> DataType:
    """Converts a caller's argument to a data type: NumPy's dtypes and names, Zarr's names and JSON, or zarr-python's objects.

    Raises
    ------
    DataTypeValidationError
        Zarr cannot store the type, or its name is not known.
    """
    if isinstance(spec, DataType):
        return spec
    if isinstance(spec, str):
        return _named(spec)
    if isinstance(spec, np.dtype) and spec.isbuiltin == _OF_NUMPY:
        return _of_native(spec)
    spec = _numpy.of_library(spec)
    if hasattr(spec, "to_native_dtype") and hasattr(spec, "to_json"):  # zarr-python's ZDType
        return _from_zarr_object(spec, zarr_format)
    if isinstance(spec, Mapping):
        return from_json_v3(spec)
    if spec is str:
        return DataType(_string_dtype(), "string")
    if isinstance(spec, list):
        spec = [tuple(field) if isinstance(field, Iterable) else field for field in spec]
    return _from_native(spec if isinstance(spec, np.dtype) else _native_of(spec))


@functools.lru_cache(maxsize=256)
def _named(name: str) -> DataType:
    if name in _PLAIN_NAMES:
        return DataType(np.dtype(name))
    if _is_v3_name(name):
        return from_json_v3(name)
    return DataType(_string_dtype(), "string") if name in _STRING_NAMES else _from_native(_native_of(name))


def _native_of(spec: Any) -> np.dtype[Any]:
    """Converts a caller's argument to a NumPy dtype. The error for an unknown name suggests a similar one."""
    try:
        return _numpy.parse_type(spec)
    except (TypeError, ValueError, AttributeError):
        return element_type(spec, _hint(spec))


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
        native = np.dtype([(name, native[name]) for name in native.names])  # without padding between fields
    return DataType(native)


_OF_NUMPY = 1
"""Value of ``numpy.dtype.isbuiltin`` for NumPy's own types in the machine's byte order."""
_of_native = functools.lru_cache(maxsize=64)(_from_native)

# Largest element in bytes. NumPy allows 2 GiB, but a line of metadata must not make a reader allocate so much memory for a fill value.
MAX_ITEM_BYTES = 1 << 24

# Sizes of the largest floats and complex numbers in bytes. NumPy's long double is larger on most machines.
_LARGEST = {"f": 8, "c": 16}


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
    elif (
        native.kind not in "biufcSUVmM"
        or native.subdtype is not None
        or native.itemsize > _LARGEST.get(native.kind, MAX_ITEM_BYTES)
    ):
        raise DataTypeValidationError(f"Zarr has no data type for {native!r}")
    elif native.itemsize == 0:
        raise DataTypeValidationError(f"elements of {native!r} have no bytes, expected at least 1")


def from_json_v3(spec: Any) -> DataType:
    """Converts a data type, a name or a JSON object in format 3 metadata, to a ``DataType``.

    Raises
    ------
    UnknownDataTypeError, DataTypeValidationError
        There is no such type, or its configuration is not allowed.
    """
    return _named_v3(spec) if isinstance(spec, str) else _from_words(spec)


def _from_words(words: Any) -> DataType:
    try:
        return from_description(_core.describe_v3(words), words)
    except DataTypeValidationError as error:
        raise UnknownDataTypeError(f"unknown data type {words!r}", hint=_hint(words)) from error
    except (InvalidArgumentError, MetadataValidationError) as error:
        raise DataTypeValidationError(f"data type {words!r} breaks its specification: {error.message}") from error


_named_v3 = functools.lru_cache(maxsize=256)(_from_words)


def from_description(described: Any, words: Any = None) -> DataType:
    """Makes a data type from a JSON form of an argument of ``numpy.dtype``, in which lists stand for tuples. ``words`` is the type as
    format 3 spells it."""
    if described == "T":
        return DataType(_string_dtype(), "string", words)
    if described == "|O":
        return DataType(np.dtype(object), "variable_length_bytes", words)
    is_name = isinstance(described, str) and (described == "bfloat16" or described in small_numbers.NAMES)
    return DataType(_native(described), described if is_name else "fixed", words)


def _native(described: Any) -> np.dtype[Any]:
    if not isinstance(described, str):
        return np.dtype([(name, _native(one), *map(tuple, shape)) for name, one, *shape in described])
    if described == "bfloat16":
        return _bfloat16_dtype()
    return small_numbers.native(described) if described in small_numbers.NAMES else np.dtype(described)
