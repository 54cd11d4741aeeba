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
    """The value of an argument is not valid."""

    _kind = "InvalidArgument"


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """The type of an argument is not valid."""


class ConfigInvalidError(CuzarrError, ValueError):
    """A configuration key or value is not valid."""

    _kind = "ConfigInvalid"


class BaseZarrError(CuzarrError, ValueError):
    """The base class of the errors that have zarr-python's names."""


class NodeNotFoundError(BaseZarrError, FileNotFoundError):
    """There is no array or group at this path."""

    _kind = "NodeNotFound"


class ArrayNotFoundError(NodeNotFoundError):
    """There is no array at this path."""

    _kind = "ArrayNotFound"


class GroupNotFoundError(NodeNotFoundError):
    """There is no group at this path."""

    _kind = "GroupNotFound"


class ContainsArrayError(BaseZarrError):
    """An array is already at this path."""

    _kind = "ContainsArray"


class ContainsGroupError(BaseZarrError):
    """A group is already at this path."""

    _kind = "ContainsGroup"


class ContainsArrayAndGroupError(BaseZarrError):
    """Both ``.zarray`` and ``.zgroup`` are at this path, so it may be an array or a group."""

    _kind = "MetadataInvalid"


class MetadataValidationError(BaseZarrError):
    """Metadata are not JSON, or break their specification."""

    _kind = "MetadataInvalid"


class NodeTypeValidationError(MetadataValidationError):
    """Metadata describe another type of node than the requested type."""


class EncodingValidationError(MetadataValidationError):
    """A stored sparse matrix or column breaks the encoding that its attributes name: its arrays contradict each other."""


class UnknownCodecError(BaseZarrError):
    """The codec's name is not known."""

    _kind = "UnknownCodec"


class PickleCodecDisabledError(UnknownCodecError):
    """Data is pickled, and unpickling, which can run any code, was not allowed by ``config.set({"allow_pickle": True})``."""


class DataTypeValidationError(CuzarrError, ValueError):
    """The data type's name or configuration is not known."""

    _kind = "UnknownDataType"


class UnknownDataTypeError(DataTypeValidationError):
    """The data type's name is not known."""


class UnsupportedFeatureError(BaseZarrError):
    """Metadata need an extension or feature that is not supported."""

    _kind = "UnsupportedFeature"


class SelectionInvalidError(CuzarrError, IndexError):
    """The selection does not fit the array."""

    _kind = "SelectionInvalid"


class BoundsCheckError(SelectionInvalidError):
    """An index is outside the array."""


class NegativeStepError(SelectionInvalidError):
    """A slice has a step below 1."""


class VindexInvalidSelectionError(SelectionInvalidError):
    """``vindex`` was given something other than coordinates or a mask."""


class ArrayIndexError(SelectionInvalidError):
    """An index array is not valid in this selection."""


class ShapeMismatchError(CuzarrError, ValueError):
    """Shapes differ, but must agree."""

    _kind = "ShapeMismatch"


class DTypeMismatchError(CuzarrError, TypeError):
    """Data types differ, but must agree."""

    _kind = "DTypeMismatch"


class ConversionError(DTypeMismatchError, ValueError, OverflowError):
    """A value cannot be converted to the array's element type. Its base classes are the three errors that NumPy raises for this."""


class OutOfRangeError(ConversionError, InvalidArgumentError):
    """A number does not fit the element type, or is larger than an argument may be."""

    _kind = "OutOfRange"


class ChunkCorruptError(BaseZarrError):
    """Encoded bytes cannot be decoded."""

    _kind = "ChunkCorrupt"


class ChecksumMismatchError(BaseZarrError):
    """A stored checksum differs from the computed one."""

    _kind = "ChecksumMismatch"


class ChunkNotFoundError(BaseZarrError):
    """A chunk is missing, and missing chunks were not allowed (``array.read_missing_chunks``)."""

    _kind = "ChunkNotFound"


class EncodeFailedError(CuzarrError, ValueError):
    """A value cannot be encoded by the codec, or represented in the data type."""

    _kind = "EncodeFailed"


class KeyInvalidError(CuzarrError, ValueError):
    """A key would leave the store, or is not valid in it."""

    _kind = "KeyInvalid"


class StoreFailedError(CuzarrError, OSError):
    """The store failed."""

    _kind = "StoreFailed"


class PermissionDeniedError(CuzarrError, PermissionError):
    """The store does not allow this user to do the operation."""

    _kind = "PermissionDenied"


class ReadOnlyError(CuzarrError, ValueError):
    """The store or array was opened for reading only."""

    _kind = "ReadOnly"


class MemorySpaceError(CuzarrError, TypeError):
    """Memory is on another device than the operation needs."""

    _kind = "MemorySpace"


class ImplicitHostCopyError(MemorySpaceError):
    """An array on a GPU was used where only host memory works, and is not copied to the host implicitly. A copy to the host must be
    requested."""


class UnsupportedError(CuzarrError, NotImplementedError):
    """The operation has no implementation for this data type or device."""

    _kind = "Unsupported"


class NoChunkShapeError(UnsupportedError, AttributeError):
    """An array with a rectilinear chunk grid has no single shape of chunks or shards: use ``read_chunk_sizes`` or ``write_chunk_sizes``."""


class ExportError(UnsupportedError, BufferError):
    """Memory cannot be handed to another library without a copy: DLPack or the buffer protocol cannot describe it."""


class DeviceUnavailableError(CuzarrError, RuntimeError):
    """There is no such device, or its driver cannot be used."""

    _kind = "DeviceUnavailable"


class LibraryMissingError(CuzarrError, ImportError):
    """A library that this operation needs was not found or is too old."""

    _kind = "LibraryMissing"


class BudgetExceededError(CuzarrError, MemoryError):
    """The memory budget refused the request."""

    _kind = "BudgetExceeded"


class OutOfMemoryError(CuzarrError, MemoryError):
    """The device or the host had no memory left."""

    _kind = "OutOfMemory"


class KernelCompileFailedError(CuzarrError, RuntimeError):
    """A kernel did not compile."""

    _kind = "KernelCompileFailed"


class DeviceFailedError(CuzarrError, RuntimeError):
    """The device's driver reported a failure."""

    _kind = "DeviceFailed"


class FallbackRefusedError(CuzarrError, RuntimeError):
    """The operation needs a fall-back, such as decoding on the host, but the setting ``strict`` forbids it."""

    _kind = "FallbackRefused"


class CancelledError(CuzarrError, RuntimeError):
    """The operation was cancelled before it ended."""

    _kind = "Cancelled"


class CuzarrUserWarning(UserWarning):
    """A call probably does not do what was intended."""


class CuzarrFutureWarning(FutureWarning):
    """A behaviour will change in a later version."""


class UnstableSpecificationWarning(CuzarrFutureWarning):
    """The format of the written data has no final specification yet, and other readers may not know it."""


class CuzarrDeprecationWarning(DeprecationWarning):
    """A name or argument will be removed in a later version."""


class CuzarrRuntimeWarning(RuntimeWarning):
    """An argument has no effect here, or an operation takes a slow path."""


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
