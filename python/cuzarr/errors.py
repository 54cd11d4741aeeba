"""All exceptions and warnings of cuzarr.

Each class stands for one *kind* of failure, and has zarr-python's name if zarr-python has such an error. It derives from
:class:`CuzarrError` and from the built-in exception that a caller would expect:

>>> import cuzarr
>>> issubclass(cuzarr.errors.ArrayNotFoundError, FileNotFoundError)
True
>>> try:
...     cuzarr.open_array({}, mode="r")
... except cuzarr.errors.CuzarrError as error:
...     print(error.kind)
ArrayNotFound
"""

from __future__ import annotations

from typing import ClassVar

from cuzarr._text import printable, printable_lines

__all__ = [
    "ArgumentTypeError",
    "ArrayIndexError",
    "ArrayNotFoundError",
    "BaseZarrError",
    "BoundsCheckError",
    "BudgetExceededError",
    "CancelledError",
    "ChecksumMismatchError",
    "ChunkCorruptError",
    "ChunkNotFoundError",
    "ConfigInvalidError",
    "ContainsArrayAndGroupError",
    "ContainsArrayError",
    "ContainsGroupError",
    "CuzarrDeprecationWarning",
    "CuzarrError",
    "CuzarrFutureWarning",
    "CuzarrRuntimeWarning",
    "CuzarrUserWarning",
    "DTypeMismatchError",
    "ConversionError",
    "DataTypeValidationError",
    "DeviceFailedError",
    "DeviceUnavailableError",
    "EncodeFailedError",
    "EncodingValidationError",
    "ExportError",
    "FallbackRefusedError",
    "GroupNotFoundError",
    "ImplicitHostCopyError",
    "InvalidArgumentError",
    "KernelCompileFailedError",
    "KeyInvalidError",
    "LibraryMissingError",
    "MemorySpaceError",
    "MetadataValidationError",
    "NegativeStepError",
    "NodeNotFoundError",
    "NoChunkShapeError",
    "NodeTypeValidationError",
    "OutOfMemoryError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "PickleCodecDisabledError",
    "ReadOnlyError",
    "SelectionInvalidError",
    "ShapeMismatchError",
    "StoreFailedError",
    "UnknownCodecError",
    "UnknownDataTypeError",
    "UnsupportedError",
    "UnsupportedFeatureError",
    "VindexInvalidSelectionError",
]


_LONGEST_MESSAGE = 2000


class CuzarrError(Exception):
    """The base class of all errors of cuzarr.

    ``str(error)`` is ``place: place: message`` and, on a second line, the hint.

    Attributes
    ----------
    kind : str
        Kind of failure, with the name that Rust and the command line also use.
    message : str
        Description of what happened.
    trail : tuple of str
        Places where it happened, outermost first: array, chunk, codec, device.
    hint : str or None
        What the user can do about it.
    others : tuple of CuzarrError
        Other errors of the same call.
    """

    _kind: ClassVar[str] = "InvalidArgument"

    kind: str
    message: str
    trail: tuple[str, ...]
    hint: str | None
    others: tuple[CuzarrError, ...]

    def __init__(
        self,
        message: str = "",
        *,
        trail: tuple[str, ...] = (),
        hint: str | None = None,
        others: tuple[CuzarrError, ...] = (),
    ) -> None:
        # Names, shapes and keys in messages come from stored bytes, and may have megabytes. So messages are shortened.
        if len(message) > _LONGEST_MESSAGE:
            message = message[:_LONGEST_MESSAGE] + "…"
        super().__init__(message)
        self.kind = self._kind
        self.message = message
        self.trail = tuple(trail)
        self.hint = hint
        self.others = tuple(others)

    def __str__(self) -> str:
        shown = printable_lines if self.kind == "KernelCompileFailed" else printable  # a compiler's messages have several lines
        text = ": ".join((*map(printable, self.trail), shown(self.message)))
        if self.others:
            text += f" (and {len(self.others)} more failure{'s' if len(self.others) > 1 else ''})"
        return f"{text}\nhint: {printable(self.hint)}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.trail, self.hint, self.others)


def _rebuild(
    cls: type[CuzarrError], message: str, trail: tuple[str, ...], hint: str | None, others: tuple[CuzarrError, ...]
) -> CuzarrError:
    return cls(message, trail=trail, hint=hint, others=others)


class InvalidArgumentError(CuzarrError, ValueError):
    """A function was called with an argument that has a value it cannot use, such as a negative size."""

    _kind = "InvalidArgument"


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """A function was called with an argument of a type that it does not accept."""


class ConfigInvalidError(CuzarrError, ValueError):
    """A key of the configuration is unknown, or the value of a key is not valid."""

    _kind = "ConfigInvalid"


class BaseZarrError(CuzarrError, ValueError):
    """The base class of the errors that have zarr-python's names."""


class NodeNotFoundError(BaseZarrError, FileNotFoundError):
    """There is no array or group at the path of the store that a call names."""

    _kind = "NodeNotFound"


class ArrayNotFoundError(NodeNotFoundError):
    """There is no array at the path of the store that a call names."""

    _kind = "ArrayNotFound"


class GroupNotFoundError(NodeNotFoundError):
    """There is no group at the path of the store that a call names."""

    _kind = "GroupNotFound"


class ContainsArrayError(BaseZarrError):
    """An array is at a path of a store where a call would create an array or group, or expects a group."""

    _kind = "ContainsArray"


class ContainsGroupError(BaseZarrError):
    """A group is at a path of a store where a call would create an array or group, or expects an array."""

    _kind = "ContainsGroup"


class ContainsArrayAndGroupError(BaseZarrError):
    """Both ``.zarray`` and ``.zgroup`` are at one path of a store, so that it may be an array or a group."""

    _kind = "MetadataInvalid"


class MetadataValidationError(BaseZarrError):
    """A metadata document of an array or group is not JSON, or breaks the Zarr specification."""

    _kind = "MetadataInvalid"


class NodeTypeValidationError(MetadataValidationError):
    """A metadata document describes an array where a group was expected, or a group where an array was expected."""


class EncodingValidationError(MetadataValidationError):
    """A stored sparse matrix or column breaks the encoding that its attributes name: its arrays contradict each other."""


class UnknownCodecError(BaseZarrError):
    """Metadata or an argument names a codec that cuzarr does not know."""

    _kind = "UnknownCodec"


class PickleCodecDisabledError(UnknownCodecError):
    """Data is pickled, and unpickling, which can run any code, was not allowed by ``config.set({"allow_pickle": True})``."""


class DataTypeValidationError(CuzarrError, ValueError):
    """Metadata or an argument has a data type whose name or configuration cuzarr does not know."""

    _kind = "UnknownDataType"


class UnknownDataTypeError(DataTypeValidationError):
    """Metadata or an argument has a data type whose name cuzarr does not know."""


class UnsupportedFeatureError(BaseZarrError):
    """Metadata of an array or group need a Zarr extension or feature that cuzarr does not support."""

    _kind = "UnsupportedFeature"


class SelectionInvalidError(CuzarrError, IndexError):
    """A selection, such as the index in ``array[index]``, does not fit the array."""

    _kind = "SelectionInvalid"


class BoundsCheckError(SelectionInvalidError):
    """A selection has an index that is outside the array."""


class NegativeStepError(SelectionInvalidError):
    """A selection has a slice with a step below 1, which only some selections support."""


class VindexInvalidSelectionError(SelectionInvalidError):
    """``vindex`` was given something other than coordinates or a mask."""


class ArrayIndexError(SelectionInvalidError):
    """A selection has an index array that is not valid, such as several index arrays whose shapes do not broadcast together."""


class ShapeMismatchError(CuzarrError, ValueError):
    """Two shapes differ, such as those of an array and of the value written to it, but must be equal or broadcast together."""

    _kind = "ShapeMismatch"


class DTypeMismatchError(CuzarrError, TypeError):
    """Two element types differ, such as those of an array and of the memory to read into, but must be equal or convertible."""

    _kind = "DTypeMismatch"


class ConversionError(DTypeMismatchError, ValueError, OverflowError):
    """A value cannot be converted to the array's element type. Its base classes are the three errors that NumPy raises for this."""


class OutOfRangeError(ConversionError, InvalidArgumentError):
    """A number does not fit the element type, or is larger than an argument may be."""

    _kind = "OutOfRange"


class ChunkCorruptError(BaseZarrError):
    """Stored bytes, such as those of a chunk, cannot be decoded: they are damaged, or the array's codecs did not write them."""

    _kind = "ChunkCorrupt"


class ChecksumMismatchError(BaseZarrError):
    """The checksum stored with data differs from the checksum computed from the data, so the data are damaged."""

    _kind = "ChecksumMismatch"


class ChunkNotFoundError(BaseZarrError):
    """A chunk is not stored, and the setting ``array.read_missing_chunks`` does not allow to read it as fill values."""

    _kind = "ChunkNotFound"


class EncodeFailedError(CuzarrError, ValueError):
    """Elements to be written cannot be encoded by the array's codecs, or represented in the array's data type."""

    _kind = "EncodeFailed"


class KeyInvalidError(CuzarrError, ValueError):
    """The key of a value in a store is not valid, or would lie outside the store, such as one with ``..``."""

    _kind = "KeyInvalid"


class StoreFailedError(CuzarrError, OSError):
    """A store failed to read, write, list or delete values, for example because of a disk or network error."""

    _kind = "StoreFailed"


class PermissionDeniedError(CuzarrError, PermissionError):
    """A store denied an operation, because the user lacks the permission or credentials for it."""

    _kind = "PermissionDenied"


class ReadOnlyError(CuzarrError, ValueError):
    """A write was refused, because the store or array was opened for reading only."""

    _kind = "ReadOnly"


class MemorySpaceError(CuzarrError, TypeError):
    """An array or buffer is in the memory of another device than the operation needs."""

    _kind = "MemorySpace"


class ImplicitHostCopyError(MemorySpaceError):
    """An array on a GPU was used where only host memory works, and is not copied to the host implicitly. A copy to the host must be
    requested."""


class UnsupportedError(CuzarrError, NotImplementedError):
    """An operation has no implementation for the data type, the device or the arguments that were given."""

    _kind = "Unsupported"


class NoChunkShapeError(UnsupportedError, AttributeError):
    """An array with a rectilinear chunk grid has no single shape of chunks or shards: use ``read_chunk_sizes`` or ``write_chunk_sizes``."""


class ExportError(UnsupportedError, BufferError):
    """Memory cannot be handed to another library without a copy: DLPack or the buffer protocol cannot describe it."""


class DeviceUnavailableError(CuzarrError, RuntimeError):
    """A requested device, such as ``"cuda:1"``, does not exist, or its driver cannot be used."""

    _kind = "DeviceUnavailable"


class LibraryMissingError(CuzarrError, ImportError):
    """A library that this operation needs was not found or is too old."""

    _kind = "LibraryMissing"


class BudgetExceededError(CuzarrError, MemoryError):
    """A call was refused, because it needs more memory than a memory limit allows."""

    _kind = "BudgetExceeded"


class OutOfMemoryError(CuzarrError, MemoryError):
    """An allocation failed, because the GPU or the host had no memory left."""

    _kind = "OutOfMemory"


class KernelCompileFailedError(CuzarrError, RuntimeError):
    """CUDA C++ source of a kernel did not compile."""

    _kind = "KernelCompileFailed"


class DeviceFailedError(CuzarrError, RuntimeError):
    """The driver of a GPU reported a failure, for example of a kernel launch or a copy."""

    _kind = "DeviceFailed"


class FallbackRefusedError(CuzarrError, RuntimeError):
    """The operation needs a fall-back, such as decoding on the host, but the setting ``strict`` forbids it."""

    _kind = "FallbackRefused"


class CancelledError(CuzarrError, RuntimeError):
    """A read, write or computation was cancelled before it ended."""

    _kind = "Cancelled"


class CuzarrUserWarning(UserWarning):
    """A call probably does not do what was intended."""


class CuzarrFutureWarning(FutureWarning):
    """A behaviour of cuzarr that a program relies on will change in a later version."""


class UnstableSpecificationWarning(CuzarrFutureWarning):
    """The format of the written data has no final specification yet, and other readers may not know it."""


class CuzarrDeprecationWarning(DeprecationWarning):
    """A function, class or argument of cuzarr that a program uses will be removed in a later version."""


class CuzarrRuntimeWarning(RuntimeWarning):
    """An argument of a call has no effect, or an operation is slow, for example because data pass through host memory."""


# zarr-python's names for the warnings.
ZarrUserWarning = CuzarrUserWarning
ZarrFutureWarning = CuzarrFutureWarning
ZarrDeprecationWarning = CuzarrDeprecationWarning
ZarrRuntimeWarning = CuzarrRuntimeWarning

KINDS: dict[str, type[CuzarrError]] = {
    cls._kind: cls
    for cls in (
        InvalidArgumentError,
        OutOfRangeError,
        ConfigInvalidError,
        NodeNotFoundError,
        ArrayNotFoundError,
        GroupNotFoundError,
        ContainsArrayError,
        ContainsGroupError,
        MetadataValidationError,
        UnknownCodecError,
        UnknownDataTypeError,
        UnsupportedFeatureError,
        SelectionInvalidError,
        ShapeMismatchError,
        DTypeMismatchError,
        ChunkCorruptError,
        ChecksumMismatchError,
        ChunkNotFoundError,
        EncodeFailedError,
        KeyInvalidError,
        StoreFailedError,
        PermissionDeniedError,
        ReadOnlyError,
        MemorySpaceError,
        UnsupportedError,
        DeviceUnavailableError,
        LibraryMissingError,
        BudgetExceededError,
        OutOfMemoryError,
        KernelCompileFailedError,
        DeviceFailedError,
        FallbackRefusedError,
        CancelledError,
    )
}
"""The exception class for each kind of error that Rust can raise."""


def from_core(kind: str, message: str, trail: tuple[str, ...], hint: str | None, others: tuple[CuzarrError, ...]) -> CuzarrError:
    """Makes the exception for an error that the Rust engine reported. An unknown kind keeps its name."""
    error = KINDS.get(kind, CuzarrError)(message, trail=trail, hint=hint, others=others)
    error.kind = kind
    return error


def __dir__() -> list[str]:
    return sorted(__all__)
