"""Types of arguments and results, for annotations in programs that use cuzarr.

>>> import cuzarr, numpy as np
>>> from cuzarr.typing import AccessMode, MemoryArray
>>> def first_row(path: str, mode: AccessMode = "r") -> MemoryArray:
...     return cuzarr.open_array(path, mode=mode)[0]

**Results.** The library of a result depends on the device: NumPy's arrays on the host, CuPy's or :class:`cuzarr.DeviceArray` on a GPU.
Their type is :class:`MemoryArray`, a protocol with the members that all three share. With a union of the three types, a type checker
would refuse each method that one of them lacks. Without CuPy, everything in a union would be ``Any``, and a scalar such as ``z[0, 0]``
would need its own members. With the protocol, ``z[...] + 1``, ``np.asarray(z[...])`` and ``float(z.mean().compute())`` need no cast. Pass
``np.asarray(z[...])`` to a function that takes a ``numpy.ndarray``. On the host this copies nothing. On a GPU it raises an error, because
copies to the host must be requested.

**Plans.** Operators and reductions of stored arrays return a :class:`cuzarr.Expression`. For a ``DeviceArray``, they return a
``DeviceArray``.

**Arguments.** Choices are literals, so an editor shows ``mode="rw"`` as an error. Devices and compressors accept other text,
such as ``"cuda:1"`` and ``"zstd:5"``; editors still offer the common values.

Modules of this package import these types only for type checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Required, SupportsIndex, TypeAlias, TypedDict, TypeVar, Union

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    # The signatures below name classes of modules that import this one. At run time nothing is imported, so there are no cycles.
    from xarray.coders import CFDatetimeCoder, CFTimedeltaCoder

    from cuzarr._compute.blocks import BlockInfo as BlockInfo
    from cuzarr._compute.copy import CopyPlan as CopyPlan
    from cuzarr._compute.expression import Expression as Expression
    from cuzarr._memory.device_array import DeviceArray as DeviceArray
    from cuzarr._node.array import Array as Array
    from cuzarr._node.array_config import ArrayConfigLike as ArrayConfigLike
    from cuzarr._node.group import Group as Group
    from cuzarr._node.lazy import LazyArray as LazyArray
    from cuzarr.storage import StoreLike as StoreLike

__all__ = [
    "AccessMode",
    "AnyBuffer",
    "ArrayEncoding",
    "ArrayLike",
    "Axis",
    "BatchOptions",
    "BlockOptions",
    "ByteRequest",
    "BytesValue",
    "ChunkKeyEncoding",
    "Chunks",
    "Client",
    "CodecLike",
    "Codecs",
    "CompressorName",
    "CopyOptions",
    "CreateLikeOptions",
    "CreateOptions",
    "CropOptions",
    "DTypeLike",
    "DataTreeOptions",
    "DatasetOptions",
    "Device",
    "Fields",
    "FillValue",
    "FilledMemberOptions",
    "ForeignStoreLike",
    "Frame",
    "Frames",
    "FullOptions",
    "GroupOptions",
    "KernelArgument",
    "MemberOptions",
    "MemoryArray",
    "MemoryLimit",
    "MemoryOperand",
    "Node",
    "OpenGroupOptions",
    "OpenLikeOptions",
    "OpenOptions",
    "Order",
    "Progress",
    "Prototype",
    "PyramidOptions",
    "RechunkOptions",
    "RequireArrayOptions",
    "RequireOptions",
    "Rows",
    "RunOptions",
    "SaveOptions",
    "Scalar",
    "Selection",
    "ShapeLike",
    "Shards",
    "Stream",
    "SparseRowOptions",
    "StreamOptions",
    "SupportsArray",
    "SupportsCudaArray",
    "SupportsDLPack",
    "SupportsStorePath",
    "WindowOptions",
    "ZarrFormat",
]

# ------------------------------------------------------------------------------------------------------------- choices

AccessMode: TypeAlias = Literal["r", "r+", "a", "w", "w-"]
"""How an array or group is opened: read only (``"r"``), read and write, create if missing, replace, or create only."""

Device: TypeAlias = Literal["cpu", "cuda"] | str
"""A device: ``"cpu"``, ``"cuda"``, or a certain GPU such as ``"cuda:1"``."""

Order: TypeAlias = Literal["C", "F"]
"""Order of an array's elements in memory: the last (``"C"``) or the first index (``"F"``) changes fastest."""

ZarrFormat: TypeAlias = Literal[2, 3]
"""The version of the Zarr specification that an array or a group follows."""

# --------------------------------------------------------------------------------------------------- values of arguments

Scalar: TypeAlias = complex | str | bytes | np.generic | date | timedelta
"""One element: a number, text, bytes or a date. ``complex`` includes ``bool``, ``int`` and ``float``."""

ShapeLike: TypeAlias = SupportsIndex | Iterable[SupportsIndex]
"""Shape of an array: one number of elements for each dimension, or a single number for an array of one dimension."""

Axis: TypeAlias = int | str | tuple[int | str, ...] | None
"""Dimensions by number or name; ``None`` stands for all dimensions."""

Fields: TypeAlias = str | list[str] | tuple[str, ...]
"""Names of fields of structured elements."""

MemoryLimit: TypeAlias = int | str
"""A limit of memory: a number of bytes, or text such as ``"8 GiB"``."""


class SupportsCudaArray(Protocol):
    """An array whose GPU memory is accessible by the CUDA array interface: CuPy's, PyTorch's, Numba's, ``DeviceArray``."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


class SupportsDLPack(Protocol):
    """An array whose memory is accessible by DLPack: PyTorch's, JAX's, NumPy's, CuPy's, ``DeviceArray``."""

    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class _SupportsToDict(Protocol):
    def to_dict(self) -> Mapping[str, Any]: ...


class _SupportsGetConfig(Protocol):
    def get_config(self) -> Mapping[str, Any]: ...


class _NativeType(Protocol):
    """An element type, given by an object of ``cuzarr.dtype``."""

    @property
    def native(self) -> np.dtype[Any]: ...


class _ZarrType(Protocol):
    """An element type, given by an object of zarr-python."""

    def to_native_dtype(self) -> np.dtype[Any]: ...


class _TorchType(Protocol):
    """An element type of PyTorch."""

    @property
    def is_floating_point(self) -> bool: ...
    @property
    def itemsize(self) -> int: ...


class SupportsArray(Protocol):
    """An array that NumPy can convert to its own: NumPy's arrays, stored arrays, plans, xarray's and dask's arrays."""

    def __array__(self) -> np.ndarray[Any, np.dtype[Any]]: ...


# Without typing_extensions, pyright knows NumPy's `ArrayLike` only from Python 3.12 on. It also does not include GPU memory.
ArrayLike: TypeAlias = Scalar | SupportsArray | SupportsCudaArray | SupportsDLPack | Sequence[Any]
"""Elements from any source: arrays of any library and device, stored arrays, plans, numbers, nested lists."""

DTypeLike: TypeAlias = npt.DTypeLike | _NativeType | _ZarrType | _TorchType | Mapping[str, Any]
"""An element type: NumPy's types and names, ``cuzarr.dtype``, types of PyTorch and zarr-python, or documents of Zarr."""

Selection: TypeAlias = (
    SupportsIndex | slice | EllipsisType | str | SupportsArray | SupportsCudaArray | tuple[Any, ...] | list[Any] | None
)
"""A selection between brackets: integers, slices, index arrays and masks, names of fields, and a tuple of these."""

Chunks: TypeAlias = SupportsIndex | Iterable[SupportsIndex | Sequence[SupportsIndex] | None] | Literal["auto"]
"""Shape of the chunks of a new array: a number for each dimension, or one number for all. ``-1`` means a whole dimension, and ``False`` the
whole array. With ``"auto"``, cuzarr chooses. Lists for dimensions give chunks of different lengths.
"""


Shards: TypeAlias = Chunks | Mapping[str, Any] | None
"""Shape of the shards of a new array, or ``{"shape": …, "index_location": "start"}``. ``None`` stores every chunk as a separate object."""

CompressorName: TypeAlias = Literal["none", "zstd", "gzip", "lz4", "blosc:lz4", "blosc:zstd", "blosc:lz4hc", "blosc:zlib"] | str
"""A compressor by its short name, with a level if it has levels: ``"zstd:5"``."""

CodecLike: TypeAlias = CompressorName | Mapping[str, Any] | _SupportsToDict | _SupportsGetConfig
"""A codec: an object of ``cuzarr.codecs``, zarr-python or numcodecs, its document, or its name."""

Codecs: TypeAlias = CodecLike | Iterable[CodecLike] | None
"""One codec, or several in the order of encoding; ``None`` for no codec."""

ChunkKeyEncoding: TypeAlias = Mapping[str, Any] | tuple[Literal["default", "v2"], Literal[".", "/"]] | _SupportsToDict
"""The rule that makes the keys of chunks in a store: ``{"name": "v2", "separator": "."}``."""

FillValue: TypeAlias = Scalar | Sequence[Any] | Mapping[str, Any] | None
"""The value of elements that were never written: one element. For structured elements, also a tuple of their fields."""

# ---------------------------------------------------------------------------------------------------------- other objects


class ForeignStoreLike(Protocol):
    """A store of another library (zarr-python, obstore, Icechunk), or an object with ``get``, ``set``, ``delete`` and ``list``."""

    @property
    def get(self) -> Callable[..., Any]: ...
    @property
    def delete(self) -> Callable[..., Any]: ...
    @property
    def list(self) -> Callable[..., Any]: ...


class AnyBuffer(Protocol):
    """Flat bytes on any device: a buffer of ``cuzarr.buffer`` or of ``zarr.buffer``."""

    def as_array_like(self) -> Any: ...
    def as_numpy_array(self) -> np.ndarray[Any, Any]: ...


BytesValue: TypeAlias = bytes | bytearray | memoryview | SupportsCudaArray | SupportsDLPack | AnyBuffer
"""Bytes to store, or an array or a buffer on any device, whose elements are stored in C order."""

Frame: TypeAlias = bytes | bytearray | memoryview | SupportsCudaArray | SupportsDLPack
"""The bytes of one encoded chunk (a frame): on the host, or in an array on any device."""


class Rows(Protocol):
    """An array on any device, each of whose rows is one chunk to encode, or one encoded chunk (frame) to decode."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, key: int, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


Frames: TypeAlias = Sequence[Frame] | Rows | tuple[Frame, Sequence[int] | ArrayLike, Sequence[int] | ArrayLike]
"""Encoded chunks (frames) to decode: a sequence of frames, the rows of an array, or ranges of one array as (bytes, offsets, sizes)."""


KernelArgument: TypeAlias = complex | np.generic | SupportsCudaArray | SupportsDLPack
"""An argument for a launch of the user's kernel: a number, or an array in the memory of a GPU."""


class _RangeRequest(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class _OffsetRequest(Protocol):
    @property
    def offset(self) -> int: ...


class _SuffixRequest(Protocol):
    @property
    def suffix(self) -> int: ...


ByteRequest: TypeAlias = _RangeRequest | _OffsetRequest | _SuffixRequest | None
"""A request of zarr-python for part of a stored value's bytes: a range, all bytes from an offset on, or the last bytes. ``None`` is the
whole value."""


class Prototype(Protocol):
    """The buffer classes that a call uses: a prototype of ``cuzarr.buffer`` or of ``zarr.buffer``."""

    @property
    def buffer(self) -> type[Any]: ...
    @property
    def nd_buffer(self) -> type[Any]: ...


class SupportsStorePath(Protocol):
    """An array or a group of zarr-python."""

    @property
    def store_path(self) -> Any: ...
    @property
    def metadata(self) -> Any: ...


Node: TypeAlias = Union["Array", "Group", "StoreLike", SupportsStorePath]
"""An array or group of cuzarr or zarr-python, or the path, URL or store of one."""

TargetT = TypeVar("TargetT", bound="Array | LazyArray")
"""Type variable for the stored array, or the lazy view of one, to which a function writes its results and which it returns."""

NodeT = TypeVar("NodeT", bound="Array | Group")
"""Type variable of the functions that copy an array or a group. A copy has the type of its source."""


class Client(Protocol):
    """A client of a dask cluster, from ``distributed``."""

    @property
    def submit(self) -> Callable[..., Any]: ...
    @property
    def run(self) -> Callable[..., Any]: ...
    @property
    def cancel(self) -> Callable[..., Any]: ...
    @property
    def scheduler_info(self) -> Callable[..., Any]: ...


class _SupportsUpdate(Protocol):
    @property
    def update(self) -> Callable[..., Any]: ...


Progress: TypeAlias = bool | Callable[[int, int | None], object] | _SupportsUpdate | None
"""How a call reports progress: ``True`` shows a line; or a function of the number done and the total; or an object like tqdm's."""


class _SupportsCudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...


class _CupyStream(Protocol):
    @property
    def ptr(self) -> int: ...


class _TorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...


Stream: TypeAlias = int | _SupportsCudaStream | _CupyStream | _TorchStream | None
"""A CUDA stream: its ``cudaStream_t``, or an object of CuPy, PyTorch or any library with ``__cuda_stream__``."""

# ----------------------------------------------------------------------------------- keyword arguments that are passed on


class ArrayEncoding(TypedDict, total=False):
    """Arguments of :func:`cuzarr.create` that decide how a new array is stored."""

    chunks: Chunks | None
    chunk_shape: Chunks | None
    dtype: DTypeLike
    compressor: CodecLike | None
    filters: Codecs
    codecs: Codecs
    order: Order | None
    dimension_separator: Literal[".", "/"] | None
    chunk_key_encoding: ChunkKeyEncoding | None
    dimension_names: Iterable[str | None] | None
    attributes: dict[str, Any] | None
    write_empty_chunks: bool | None
    meta_array: ArrayLike | None
    synchronizer: object
    chunk_store: StoreLike | None
    cache_metadata: bool | None
    cache_attrs: bool | None
    object_codec: object


class _Place(ArrayEncoding, total=False):
    store: StoreLike
    overwrite: bool
    read_only: bool | None
    mode: AccessMode | None
    storage_options: dict[str, Any] | None
    config: ArrayConfigLike | None
    device: Device | None
    metadata_store: StoreLike


class SaveOptions(ArrayEncoding, total=False):
    """Types of the further keyword arguments of :func:`cuzarr.save_array`."""

    overwrite: bool
    mode: AccessMode | None
    fill_value: FillValue
    config: ArrayConfigLike | None
    device: Device | None


class OpenLikeOptions(_Place, total=False):
    """Types of the further keyword arguments of :func:`cuzarr.open_like`."""

    fill_value: FillValue


class CreateLikeOptions(OpenLikeOptions, total=False):
    """Types of the further keyword arguments of :func:`cuzarr.zeros_like` and similar functions, which create an array like another one."""

    shape: ShapeLike
    path: str | None


class CreateOptions(OpenLikeOptions, total=False):
    """Types of further keyword arguments of :func:`cuzarr.zeros`, :func:`cuzarr.ones`, :func:`cuzarr.empty` and :func:`cuzarr.array`."""

    path: str | None
    zarr_format: ZarrFormat | None


class FullOptions(_Place, total=False):
    """Types of the further keyword arguments of :func:`cuzarr.full`."""

    path: str | None
    zarr_format: ZarrFormat | None


class OpenOptions(ArrayEncoding, total=False):
    """Types of the further keyword arguments of :func:`cuzarr.open` and :func:`cuzarr.open_array`, for an array that is created."""

    shape: ShapeLike
    fill_value: FillValue
    zarr_version: ZarrFormat | None
    partial_decompress: object
    use_consolidated: bool | str | None


class RunOptions(TypedDict, total=False):
    """Arguments of all functions that compute block by block: device, memory limit, progress, and cluster."""

    device: Device | None
    memory_limit: MemoryLimit | None
    progress: Progress
    client: Client | None


class _CopyOptions(RunOptions, total=False):
    path: str | None
    compressors: Codecs
    codecs: Codecs
    overwrite: bool
    resume: bool
    storage_options: dict[str, Any] | None


class CopyOptions(_CopyOptions, total=False):
    """Types of the further keyword arguments of :func:`cuzarr.copy`."""

    zarr_format: ZarrFormat | None
    skip_unreadable: bool
    only: Sequence[str] | None
    select: Mapping[str | int, slice] | None


class RechunkOptions(_CopyOptions, total=False):
    """Types of the further keyword arguments of :func:`cuzarr.rechunk`."""

    chunks: Required[Chunks | Mapping[str, int] | Mapping[int, int]]
    shards: Shards | Literal["keep"]
    zarr_format: ZarrFormat | None
    skip_unreadable: bool


class PyramidOptions(_CopyOptions, total=False):
    """Types of the further keyword arguments of :func:`cuzarr.pyramid`."""

    method: Literal["mean", "gaussian", "max", "nearest", "mode"] | None
    levels: int | None
    axes: Sequence[str] | str | None
    scale: Sequence[float] | Mapping[str, float] | None
    units: Sequence[str | None] | Mapping[str, str | None] | None
    factors: Sequence[int] | Mapping[str, int] | None
    channels: Sequence[str | Mapping[str, Any]] | None
    labels: str | None
    label_metadata: Mapping[str, Any] | None
    name: str | None
    version: Literal["0.4", "0.5", "0.6"] | None
    chunks: Chunks | Mapping[str, int] | None
    shards: Shards | Literal["keep"]


class _EpochOptions(TypedDict, total=False):
    seed: int
    memory_limit: MemoryLimit | None
    drop_last: bool
    transform: Callable[[Any], Any] | None
    positions: bool
    prefetch: int
    rank: int | None
    world_size: int | None


class BatchOptions(_EpochOptions, total=False):
    """Types of the further keyword arguments of :class:`cuzarr.loader.BatchDataset`."""

    weights: ArrayLike | None
    samples: int | None
    shuffle: bool


class WindowOptions(_EpochOptions, total=False):
    """Types of the further keyword arguments of :class:`cuzarr.loader.WindowDataset`."""

    weights: ArrayLike | None
    samples: int | None
    stride: int | Mapping[int | str, int]
    within: Mapping[int | str, tuple[int, int]] | None
    shuffle: bool


class CropOptions(_EpochOptions, total=False):
    """Types of the further keyword arguments of :class:`cuzarr.loader.CropDataset`."""

    weights: ArrayLike | None
    samples: int | None
    block: Mapping[int | str, int] | None


class SparseRowOptions(_EpochOptions, total=False):
    """Types of the further keyword arguments of :class:`cuzarr.loader.SparseRows`."""

    obs: Group | SupportsStorePath | StoreLike | None
    columns: Iterable[str] | None
    dense: bool
    dtype: DTypeLike | None
    weights: ArrayLike | None
    samples: int | None
    shuffle: bool


class StreamOptions(TypedDict, total=False):
    """Types of the further keyword arguments of :class:`cuzarr.loader.SampleStream`."""

    skip_bad: bool
    drop_last: bool
    rank: int | None
    world_size: int | None


class DatasetOptions(TypedDict, total=False):
    """Types of the further keyword arguments of ``xarray.open_groups(…, engine="cuzarr")``, used for every group."""

    mask_and_scale: bool | Mapping[str, bool]
    decode_times: bool | CFDatetimeCoder | Mapping[str, bool | CFDatetimeCoder] | None
    concat_characters: bool | Mapping[str, bool]
    decode_coords: bool | Literal["coordinates", "all"] | None
    drop_variables: str | Iterable[str] | None
    use_cftime: bool | None
    decode_timedelta: bool | CFTimedeltaCoder | Mapping[str, bool | CFTimedeltaCoder] | None
    engine: object
    use_zarr_fill_value_as_mask: bool | None
    cache_members: bool
    device: str | None
    strict: bool


class DataTreeOptions(DatasetOptions, total=False):
    """Types of the further keyword arguments of ``xarray.open_datatree(…, engine="cuzarr")``."""

    group: str | None
    mode: AccessMode
    consolidated: bool | None
    storage_options: dict[str, Any] | None
    zarr_format: ZarrFormat | None
    zarr_version: ZarrFormat | None
    chunk_store: object
    synchronizer: object


class _NewArrayOptions(TypedDict, total=False):
    shards: Shards
    filters: Codecs
    compressors: Codecs
    serializer: CodecLike
    fill_value: FillValue
    order: Order | None
    attributes: dict[str, Any] | None
    chunk_key_encoding: ChunkKeyEncoding | None
    dimension_names: Iterable[str | None] | None
    storage_options: dict[str, Any] | None
    overwrite: bool


class BlockOptions(RunOptions, _NewArrayOptions, total=False):
    """Types of the further keyword arguments of :func:`cuzarr.map_blocks`, :func:`cuzarr.reduce` and :meth:`cuzarr.Expression.store`."""

    resume: bool
    chunks: Chunks | None
    name: str | None
    zarr_format: ZarrFormat | None
    config: ArrayConfigLike | None
    metadata_store: StoreLike


class RequireArrayOptions(_NewArrayOptions, total=False):
    """Types of further keyword arguments of :meth:`cuzarr.AsyncGroup.require_array`, used only if the array is missing and created."""

    chunks: Chunks
    compressor: CodecLike | None


class RequireOptions(RequireArrayOptions, total=False):
    """Types of the further keyword arguments of :meth:`cuzarr.Group.require_array`."""

    dtype: DTypeLike | None
    exact: bool


class GroupOptions(TypedDict, total=False):
    """Types of the further keyword arguments of :meth:`cuzarr.Group.create_group` and :meth:`cuzarr.Group.require_group`."""

    overwrite: bool
    attributes: dict[str, Any] | None


class OpenGroupOptions(TypedDict, total=False):
    """Types of the further keyword arguments of :func:`cuzarr.open_consolidated`."""

    mode: AccessMode
    path: str | None
    storage_options: dict[str, Any] | None
    zarr_format: ZarrFormat | None
    meta_array: ArrayLike | None
    attributes: dict[str, Any] | None
    device: Device | None
    metadata_store: StoreLike


class MemberOptions(ArrayEncoding, total=False):
    """Types of the further keyword arguments of :meth:`cuzarr.Group.full`."""

    overwrite: bool
    zarr_format: ZarrFormat | None
    config: ArrayConfigLike | None
    device: Device | None


class FilledMemberOptions(MemberOptions, total=False):
    """Types of the further keyword arguments of :meth:`cuzarr.Group.zeros` and of the other methods that create an array in a group."""

    fill_value: FillValue


# ---------------------------------------------------------------------------------------------------------------- results


class MemoryArray(Protocol):
    """An array in memory: the members that ``numpy.ndarray``, ``cupy.ndarray`` and :class:`cuzarr.DeviceArray` share.

    NumPy's scalars, which selections of one element return, also have these members.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def T(self) -> MemoryArray: ...  # noqa: N802, NumPy's name

    def __array__(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The elements of this array in host memory, as a NumPy array. For an array on a GPU this is an error, since copies to the host
        must be requested."""
        ...

    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[MemoryArray]: ...
    def __getitem__(self, key: Selection, /) -> MemoryArray: ...
    def __setitem__(self, key: Selection, value: ArrayLike, /) -> None: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    def __index__(self) -> int: ...
    def __neg__(self) -> MemoryArray: ...
    def __abs__(self) -> MemoryArray: ...
    def __invert__(self) -> MemoryArray: ...
    def __add__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __radd__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __sub__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __rsub__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __mul__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __rmul__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __truediv__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __rtruediv__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __floordiv__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __rfloordiv__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __mod__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __pow__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __rpow__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __matmul__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __and__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __or__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __xor__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __lshift__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __rshift__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __lt__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __le__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __gt__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __ge__(self, other: MemoryOperand, /) -> MemoryArray: ...
    def __eq__(self, other: object, /) -> MemoryArray: ...  # type: ignore[override]
    def __ne__(self, other: object, /) -> MemoryArray: ...  # type: ignore[override]
    def astype(self, dtype: npt.DTypeLike, /, *, copy: bool = ...) -> MemoryArray: ...
    def copy(self) -> MemoryArray: ...
    def item(self) -> Any: ...
    def tolist(self) -> Any: ...
    def reshape(self, shape: tuple[int, ...], /) -> MemoryArray: ...
    def ravel(self) -> MemoryArray: ...
    def transpose(self, axes: tuple[int, ...], /) -> MemoryArray: ...
    def view(self, dtype: Any, /) -> MemoryArray: ...
    def fill(self, value: Any, /) -> None: ...
    def sum(self, axis: int | tuple[int, ...] | None = ...) -> MemoryArray: ...
    def prod(self, axis: int | tuple[int, ...] | None = ...) -> MemoryArray: ...
    def mean(self, axis: int | tuple[int, ...] | None = ...) -> MemoryArray: ...
    def std(self, axis: int | tuple[int, ...] | None = ...) -> MemoryArray: ...
    def var(self, axis: int | tuple[int, ...] | None = ...) -> MemoryArray: ...
    def min(self, axis: int | tuple[int, ...] | None = ...) -> MemoryArray: ...
    def max(self, axis: int | tuple[int, ...] | None = ...) -> MemoryArray: ...
    def any(self, axis: int | tuple[int, ...] | None = ...) -> MemoryArray: ...
    def all(self, axis: int | tuple[int, ...] | None = ...) -> MemoryArray: ...


HeldT = TypeVar("HeldT", "np.ndarray[Any, np.dtype[Any]]", "DeviceArray")
"""Type variable for an array in memory: NumPy's, or a ``DeviceArray``. Functions of its library return arrays of the same library."""

MemoryOperand: TypeAlias = complex | np.generic | np.ndarray[Any, Any] | SupportsCudaArray | MemoryArray | Sequence[Any]
"""The second operand of an operation on an array in memory: a number, a list, or another array in memory. With stored arrays and plans, the
result is a plan."""


def __dir__() -> list[str]:
    """Lists the public names only."""
    return sorted(__all__)
