"""Data types with zarr-python's names, for programs that import them. ``dtype=`` also takes NumPy's types and Zarr's names.

>>> import cuzarr
>>> cuzarr.dtype.DateTime64(unit="ms").to_json(3)
{'name': 'numpy.datetime64', 'configuration': {'unit': 'ms', 'scale_factor': 1}}
>>> array = cuzarr.create_array({}, shape=(2,), dtype=cuzarr.dtype.VariableLengthUTF8())
>>> array[:].tolist()
['', '']
>>> isinstance(array.metadata.data_type, cuzarr.dtype.VariableLengthUTF8)
True
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from cuzarr import _names
from cuzarr._checks import element_type, refusing, whole
from cuzarr._docstrings import clean, complete_class
from cuzarr._metadata import dtype as _dtypes
from cuzarr._metadata.dtype import DataType, ZarrFormat
from cuzarr.errors import InvalidArgumentError

if TYPE_CHECKING:
    from cuzarr.typing import DTypeLike


__all__ = [
    "Bool",
    "Complex64",
    "Complex128",
    "DataType",
    "DateTime64",
    "FixedLengthUTF32",
    "Float16",
    "Float32",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "NullTerminatedBytes",
    "RawBytes",
    "Struct",
    "Structured",
    "TimeDelta64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "VariableLengthBytes",
    "VariableLengthUTF8",
    "parse_dtype",
]

Endianness = Literal["little", "big"]


def _native(spec: str, endianness: Endianness = "little") -> DataType:
    if endianness not in ("little", "big"):
        raise InvalidArgumentError(f"endianness is {endianness!r}, expected little or big")
    return DataType(element_type(spec).newbyteorder("<" if endianness == "little" else ">"))


# The classes below are called to make data types, and used in `isinstance` tests of any data type. A call returns a plain
# `DataType`, so that equal data types are equal. Type checkers see the parameters in `__init__`; at run time, `__new__` is called.
class _Kind(type):
    def __instancecheck__(cls: type[_Elements], instance: object) -> bool:  # type: ignore[misc]
        return type(instance) is DataType and cls._holds(instance)


class _Elements(DataType, metaclass=_Kind):
    """Base class of this module's data types. ``_code`` is a type such as ``"f4"``, or a kind (``"M"``) for all its sizes and units."""

    _code: ClassVar[str]
    # common text of the docstrings of a family of classes
    _shared: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.__doc__ and cls._shared:
            cls.__doc__ = clean(cls.__doc__) + cls._shared.format(cls.__name__, cls.__name__.lower())
        complete_class(cls, "DataTypeValidationError\n    A setting is not allowed.", ">>> import cuzarr")

    @classmethod
    def _holds(cls, dtype: DataType) -> bool:
        native = dtype.native
        codes = (native.kind, f"{native.kind}{native.itemsize}")
        return dtype.name == "fixed" and native.fields is None and cls._code in codes


_EXAMPLE = """

Examples
--------
>>> import cuzarr
>>> cuzarr.zeros((2,), dtype=cuzarr.dtype.{}(), store={{}}).dtype
dtype('{}')
"""


class _OneByte(_Elements):
    _shared = f"""

Raises
------
None
    There are no settings.{_EXAMPLE}"""

    if TYPE_CHECKING:

        def __init__(self) -> None: ...
    else:

        def __new__(cls) -> DataType:
            return _native(cls._code)


class _Number(_Elements):
    _shared = f"""

Parameters
----------
endianness : {{{{"little", "big"}}}}
    Byte order of the stored elements.

Raises
------
DataTypeValidationError
    A setting is not allowed.{_EXAMPLE}"""

    if TYPE_CHECKING:

        def __init__(self, *, endianness: Endianness = "little") -> None: ...
    else:

        def __new__(cls, *, endianness: Endianness = "little") -> DataType:
            return _native(cls._code, endianness)


class _Time(_Elements):
    if TYPE_CHECKING:

        def __init__(self, *, endianness: Endianness = "little", scale_factor: int = 1, unit: str = "generic") -> None: ...
    else:

        def __new__(cls, *, endianness: Endianness = "little", scale_factor: int = 1, unit: str = "generic") -> DataType:
            return _native(f"{cls._code}8" if unit == "generic" else f"{cls._code}8[{scale_factor}{unit}]", endianness)


class _Bytes(_Elements):
    if TYPE_CHECKING:

        def __init__(self, *, length: int) -> None: ...
    else:

        def __new__(cls, *, length: int) -> DataType:
            return _native(f"{cls._code}{whole(length, 'length', 1)}")


class _Variable(_Elements):
    """Base class of data types whose elements have no fixed size. ``_code`` is Zarr's name."""

    if TYPE_CHECKING:

        def __init__(self) -> None: ...
    else:

        def __new__(cls) -> DataType:
            return _dtypes.parse_dtype(cls._code, 3)

    @classmethod
    def _holds(cls, dtype: DataType) -> bool:
        return dtype.name == cls._code


class Bool(_OneByte):
    """The type ``bool``."""

    _code = "b1"


class Int8(_OneByte):
    """The type ``int8``."""

    _code = "i1"


class UInt8(_OneByte):
    """The type ``uint8``."""

    _code = "u1"


class Int16(_Number):
    """The type ``int16``, stored in the given byte order."""

    _code = "i2"


class Int32(_Number):
    """The type ``int32``, stored in the given byte order."""

    _code = "i4"


class Int64(_Number):
    """The type ``int64``, stored in the given byte order."""

    _code = "i8"


class UInt16(_Number):
    """The type ``uint16``, stored in the given byte order."""

    _code = "u2"


class UInt32(_Number):
    """The type ``uint32``, stored in the given byte order."""

    _code = "u4"


class UInt64(_Number):
    """The type ``uint64``, stored in the given byte order."""

    _code = "u8"


class Float16(_Number):
    """The type ``float16``, stored in the given byte order."""

    _code = "f2"


class Float32(_Number):
    """The type ``float32``, stored in the given byte order."""

    _code = "f4"


class Float64(_Number):
    """The type ``float64``, stored in the given byte order."""

    _code = "f8"


class Complex64(_Number):
    """The type ``complex64``, stored in the given byte order."""

    _code = "c8"


class Complex128(_Number):
    """The type ``complex128``, stored in the given byte order."""

    _code = "c16"


class DateTime64(_Time):
    """The type of dates, counted in multiples (``scale_factor``) of a unit (``"ns"``, ``"D"``, …).

    Parameters
    ----------
    endianness : {"little", "big"}
        Byte order of the stored elements.
    scale_factor : int
        Number of units in one step.
    unit : str
        A unit of NumPy's: ``"ns"``, ``"s"``, ``"D"``, ….

    >>> cuzarr.zeros((2,), dtype=cuzarr.dtype.DateTime64(unit="D"), store={}, fill_value=0).dtype
    dtype('<M8[D]')
    """

    _code = "M"


class TimeDelta64(_Time):
    """The type of durations, counted in multiples (``scale_factor``) of a unit (``"ns"``, ``"D"``, …).

    Parameters
    ----------
    endianness : {"little", "big"}
        Byte order of the stored elements.
    scale_factor : int
        Number of units in one step.
    unit : str
        A unit of NumPy's: ``"ns"``, ``"s"``, ``"D"``, ….

    >>> cuzarr.zeros((2,), dtype=cuzarr.dtype.TimeDelta64(unit="s"), store={}, fill_value=0).dtype
    dtype('<m8[s]')
    """

    _code = "m"


class FixedLengthUTF32(_Elements):
    """The type of strings of at most ``length`` characters, stored in four bytes for each character.

    Parameters
    ----------
    length : int
        Largest number of characters.
    endianness : {"little", "big"}
        Byte order of the stored elements.

    >>> cuzarr.dtype.FixedLengthUTF32(length=5).native
    dtype('<U5')
    """

    _code = "U"

    if TYPE_CHECKING:

        def __init__(self, *, length: int, endianness: Endianness = "little") -> None: ...
    else:

        def __new__(cls, *, length: int, endianness: Endianness = "little") -> DataType:
            return _native(f"{cls._code}{whole(length, 'length', 1)}", endianness)


class NullTerminatedBytes(_Bytes):
    """The type of byte strings of at most ``length`` bytes. Zeros at the end are dropped.

    Parameters
    ----------
    length : int
        Largest number of bytes.

    >>> cuzarr.dtype.NullTerminatedBytes(length=5).native
    dtype('S5')
    """

    _code = "S"


class RawBytes(_Bytes):
    """The type of uninterpreted elements of exactly ``length`` bytes.

    Parameters
    ----------
    length : int
        Size of an element in bytes.

    >>> cuzarr.dtype.RawBytes(length=5).native
    dtype('V5')
    """

    _code = "V"


class VariableLengthUTF8(_Variable):
    """The type of strings of any length.

    Raises
    ------
    None
        There are no settings.

    >>> cuzarr.dtype.VariableLengthUTF8().name
    'string'
    """

    _code = "string"


class VariableLengthBytes(_Variable):
    """The type of byte strings of any length.

    Raises
    ------
    None
        There are no settings.

    >>> cuzarr.dtype.VariableLengthBytes().name
    'variable_length_bytes'
    """

    _code = "variable_length_bytes"


class Struct(_Elements):
    """The type of elements with several named fields, each with its own type.

    Parameters
    ----------
    fields : iterable of (str, dtype-like)
        Names and types of the fields.

    >>> cuzarr.dtype.Struct(fields=[("a", "int32"), ("b", "float32")]).native.names
    ('a', 'b')
    """

    if TYPE_CHECKING:

        def __init__(self, *, fields: Iterable[tuple[str, Any]]) -> None: ...
    else:

        def __new__(cls, *, fields: Iterable[tuple[str, Any]]) -> DataType:
            with refusing("fields", "pass pairs of a name and a type"):
                return DataType(np.dtype([(name, _dtypes.parse_dtype(field, 3).native) for name, field in fields]))

    @classmethod
    def _holds(cls, dtype: DataType) -> bool:
        return dtype.native.fields is not None


Structured = Struct


def parse_dtype(dtype_spec: DTypeLike, *, zarr_format: ZarrFormat) -> DataType:
    """The data type that an argument ``dtype=`` stands for: NumPy's type or its name, Zarr's name or document, or zarr-python's object.

    Parameters
    ----------
    dtype_spec : dtype-like
        A NumPy type or its name, a name or document of Zarr's, an object of zarr-python, or a Python type.
    zarr_format : {2, 3}
        The format whose names are used.

    Returns
    -------
    DataType
        The type.

    Raises
    ------
    DataTypeValidationError
        Zarr cannot store the type, or its name is not known.

    Examples
    --------
    >>> import cuzarr
    >>> cuzarr.dtype.parse_dtype("float32", zarr_format=3) == cuzarr.dtype.Float32()
    True
    """
    return _dtypes.parse_dtype(dtype_spec, zarr_format)


_names.publish(globals())
