"""Asynchronous arrays and groups: like ``Array`` and ``Group``, but their methods are awaited."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, Unpack

import numpy as np

from cuzarr import _docstrings
from cuzarr._metadata.array import AnyArrayMetadata
from cuzarr._metadata.documents import check_zarr_format, read_array, read_group
from cuzarr._metadata.group import GroupMetadata
from cuzarr._node import resize
from cuzarr._node.array_config import ArrayConfig, ArrayConfigLike
from cuzarr._node.display import Tree
from cuzarr._operators.signs import is_operand
from cuzarr._runtime import run
from cuzarr._text import Info
from cuzarr.codecs.values import Codec
from cuzarr.errors import UnsupportedError
from cuzarr.storage import Store, StoreLike, StorePath, make_store_path

if TYPE_CHECKING:
    from cuzarr.typing import Array, DTypeLike, Group, MemoryArray, RequireArrayOptions, ShapeLike, ZarrFormat


T = TypeVar("T")
DefaultT = TypeVar("DefaultT")
Awaited = Callable[..., Awaitable[T]]
"""Type of a method that is awaited. It has the parameters of the synchronous method with its name."""
Listed = Callable[..., AsyncGenerator[T]]
"""Type of a method whose items are listed by ``async for``."""

# The asynchronous class of each synchronous class; :func:`complete` registers them.
_TWINS: dict[type, type[_AsyncNode]] = {}


def to_async(value: Any) -> Any:
    """The asynchronous form of an array or group. Other values are returned unchanged."""
    twin = next((_TWINS[base] for base in type(value).__mro__ if base in _TWINS), None)
    if twin is not None:
        return twin.of(value)
    return tuple(map(to_async, value)) if isinstance(value, tuple) else value


def to_sync(value: Any) -> Any:
    """The synchronous form of an array or group. Other values are returned unchanged."""
    return value._node if isinstance(value, _AsyncNode) else value


async def run_node(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs a blocking call of an array's or a group's method on another thread, and awaits its result. Arrays and groups become synchronous
    ones in its arguments, and asynchronous ones in its result."""
    arguments = {name: to_sync(value) for name, value in kwargs.items()}
    return to_async(await run(call, *map(to_sync, args), **arguments))


def _awaited(method: Callable[..., Any]) -> Any:
    """Makes the awaited form of a method of ``Array`` or ``Group``."""

    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await run_node(method, self._node, *args, **kwargs)

    return _undocumented(call, method)


def _listed(method: Callable[..., Any]) -> Any:
    """The asynchronous form of a method that returns an iterable. It calls the method once, and then yields the items."""

    async def call(self: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        for item in await run(lambda: list(method(self._node, *args, **kwargs))):
            yield to_async(item)

    return _undocumented(call, method)


def _undocumented(call: Any, method: Callable[..., Any]) -> Any:
    """Gives an asynchronous method the name and parameters of the synchronous ``method``. :func:`complete` gives it a docstring."""
    functools.update_wrapper(call, method)
    call.__doc__ = None
    return call


def _same(of: type, name: str) -> Any:
    """Makes a property for an asynchronous class that returns the property ``name`` of the synchronous array or group inside. It does not
    access the store."""
    original: property = getattr(of, name)
    return property(lambda self: getattr(self._node, name), doc=original.__doc__)


class _Selector:
    """The object behind ``array.oindex`` and ``array.vindex`` of an asynchronous array, which reads and writes selections."""

    def __init__(self, selector: Any) -> None:
        self._selector = selector

    async def getitem(self, selection: Any) -> Any:
        """Read the elements of the array that a selection names.

        Parameters
        ----------
        selection : tuple
            A selection, as for ``Array.oindex`` and ``Array.vindex``.

        Returns
        -------
        array
            The elements, on the array's device.
        """
        return await run(self._selector.__getitem__, selection)

    async def setitem(self, selection: Any, value: Any) -> None:
        """Write the elements of the array that a selection names.

        Parameters
        ----------
        selection : tuple
            A selection, as for ``Array.oindex`` and ``Array.vindex``.
        value : array or scalar
            The elements. They are broadcast and converted.
        """
        await run(self._selector.__setitem__, selection, value)


class _AsyncNode:
    _node: Any
    # The synchronous class. The awaited methods call its methods.
    _blocking: ClassVar[Any]

    @classmethod
    def of(cls, node: Array | Group) -> Self:
        """The asynchronous form of an array or group. Changes to either of them are visible in both.

        Parameters
        ----------
        node : Array or Group
            An array for :class:`AsyncArray`, a group for :class:`AsyncGroup`.

        Returns
        -------
        AsyncArray or AsyncGroup
            The asynchronous form.

        Examples
        --------
        >>> import cuzarr
        >>> cuzarr.AsyncArray.of(cuzarr.zeros((2, 3), store={})).shape
        (2, 3)
        """
        twin = object.__new__(cls)
        twin._node = node
        return twin

    @property
    def attrs(self) -> dict[str, Any]:
        """A copy of the attributes as they were last read. :meth:`update_attributes` changes the stored ones."""
        return dict(self._node.metadata.attributes)

    def same_as(self, other: object) -> bool:
        """Whether two objects are the same array or group of the same store, with equal metadata and settings. ``==`` does the same.

        Parameters
        ----------
        other : object
            What to compare with.

        Returns
        -------
        bool
            ``True`` if they are the same.

        Examples
        --------
        >>> import cuzarr
        >>> array = cuzarr.AsyncArray.of(cuzarr.zeros((2, 3), store={}))
        >>> array.same_as(array), array.same_as(cuzarr.AsyncArray.of(cuzarr.zeros((2, 3), store={})))
        (True, False)
        """
        return isinstance(other, type(self)) and bool(self._node.same_as(other._node))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, type(self)):
            return self.same_as(other)
        if is_operand(other):
            hint = "compare elements: await array.getitem(...) == x"
            raise UnsupportedError(f"cannot compare {type(self).__name__} with elements of {type(other).__name__}", hint=hint)
        return NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return type(self).__name__, self._node.__dask_tokenize__()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of, (self._node,)

    def __repr__(self) -> str:
        return f"<Async{repr(self._node)[1:]}"


class AsyncArray(_AsyncNode):
    """An array whose elements are read and written by awaited calls. Its properties are those of :class:`cuzarr.Array`.

    Parameters
    ----------
    metadata : ArrayV2Metadata or ArrayV3Metadata
        The metadata of the array.
    store_path : StorePath
        The store, and the path in it.
    config : ArrayConfig or dict, optional
        Settings of the open array.

    Raises
    ------
    MetadataValidationError
        The metadata cannot be used.

    Examples
    --------
    >>> import asyncio, cuzarr
    >>> async def main():
    ...     array = await cuzarr.api.asynchronous.ones((2, 3), store={}, chunks=(1, 3))
    ...     await array.setitem((0, slice(1, 3)), 7)
    ...     return await array.getitem(0)
    >>> asyncio.run(main())
    array([1., 7., 7.])
    """

    basename: str
    cdata_shape: tuple[int, ...]
    chunks: tuple[int, ...]
    compressor: Codec | None
    compressors: tuple[Codec, ...]
    config: ArrayConfig
    device: str
    dtype: np.dtype[Any]
    fill_value: Any
    filters: tuple[Codec, ...]
    info: Info
    metadata: AnyArrayMetadata
    name: str
    nbytes: int
    nchunks: int
    ndim: int
    order: Literal["C", "F"]
    path: str
    read_chunk_sizes: tuple[tuple[int, ...], ...]
    read_only: bool
    serializer: Codec | None
    shape: tuple[int, ...]
    shards: tuple[int, ...] | None
    size: int
    store: Store
    store_path: StorePath
    write_chunk_sizes: tuple[tuple[int, ...], ...]

    def __init__(self, metadata: AnyArrayMetadata, store_path: StorePath, config: ArrayConfigLike | None = None) -> None:
        self._node = self._blocking(store_path, metadata, config)

    @classmethod
    def from_dict(cls, store_path: StorePath, data: dict[str, Any]) -> AsyncArray:
        return cls.of(cls._blocking.from_dict(store_path, data))

    @classmethod
    async def open(
        cls, store: StoreLike, zarr_format: ZarrFormat | None = 3, *, config: ArrayConfigLike | None = None
    ) -> AsyncArray:
        """Open an array, given by its store or path.

        Parameters
        ----------
        zarr_format : {2, 3, None}
            The format; ``None`` for either.

        Raises
        ------
        ArrayNotFoundError
            There is no array of this format.
        """

        def opened() -> Any:
            place = _place(store)
            return cls._blocking(place, read_array(place, check_zarr_format(zarr_format)), config)

        return cls.of(await run(opened))

    getitem: Awaited[MemoryArray]
    setitem: Awaited[None]
    get_basic_selection: Awaited[MemoryArray]
    set_basic_selection: Awaited[None]
    get_orthogonal_selection: Awaited[MemoryArray]
    set_orthogonal_selection: Awaited[None]
    get_coordinate_selection: Awaited[MemoryArray]
    set_coordinate_selection: Awaited[None]
    get_mask_selection: Awaited[MemoryArray]
    set_mask_selection: Awaited[None]
    get_block_selection: Awaited[MemoryArray]
    set_block_selection: Awaited[None]
    append: Awaited[tuple[int, ...]]
    update_attributes: Awaited[AsyncArray]
    nbytes_stored: Awaited[int]
    info_complete: Awaited[Info]

    async def nchunks_initialized(self) -> int:
        """Number of chunks that are stored. A stored shard counts with all its chunks. This call is awaited.

        Returns
        -------
        int
            At most ``array.nchunks``.

        Examples
        --------
        >>> import asyncio, cuzarr
        >>> array = cuzarr.zeros((4,), chunks=(2,), store={})
        >>> array[:2] = 7
        >>> asyncio.run(cuzarr.AsyncArray.of(array).nchunks_initialized())
        1
        """
        return await run(lambda: self._node.nchunks_initialized)  # type: ignore[no-any-return]

    async def resize(self, new_shape: ShapeLike, delete_outside_chunks: bool = True) -> None:
        """Change the shape of the array. New elements have the fill value.

        Parameters
        ----------
        new_shape : tuple of int
            The new extents, in elements.
        delete_outside_chunks : bool
            Whether stored chunks that lie outside of the new shape are deleted.

        Raises
        ------
        ReadOnlyError
            The array was opened for reading only.
        """
        await run(resize.resize, self._node, new_shape, delete_outside_chunks=delete_outside_chunks)

    def with_config(self, config: ArrayConfigLike) -> Self:
        return self.of(self._node.with_config(config))

    def with_device(self, device: str) -> Self:
        return self.of(self._node.with_device(device))

    @property
    def oindex(self) -> _Selector:
        """Reads and writes the outer product of one selector for each dimension: ``await array.oindex.getitem(([0, 3], slice(None)))``."""
        return _Selector(self._node.oindex)

    @property
    def vindex(self) -> _Selector:
        """Reads and writes points: ``await array.vindex.getitem(([0, 3], [1, 1]))``."""
        return _Selector(self._node.vindex)


class AsyncGroup(_AsyncNode):
    """A group whose members are read and created by awaited calls. Its properties are those of :class:`cuzarr.Group`.

    Parameters
    ----------
    metadata : GroupMetadata
        The metadata of the group.
    store_path : StorePath
        The store, and the path in it.

    Raises
    ------
    KeyError
        From ``await group.getitem(name)``: there is no such member.

    Examples
    --------
    >>> import asyncio
    >>> from cuzarr.api import asynchronous
    >>> async def main():
    ...     group = await asynchronous.create_group({})
    ...     await group.create_array("a", shape=(4,), dtype="int8")
    ...     return (await group.getitem("a")).shape
    >>> asyncio.run(main())
    (4,)
    """

    basename: str
    device: str
    info: Info
    metadata: GroupMetadata
    name: str
    path: str
    read_only: bool
    store: Store
    store_path: StorePath
    synchronizer: None

    def __init__(self, metadata: GroupMetadata, store_path: StorePath) -> None:
        self._node = self._blocking(store_path, metadata)

    @classmethod
    def from_dict(cls, store_path: StorePath, data: dict[str, Any]) -> AsyncGroup:
        """The group at a path of a store, from its metadata document ``data``. Nothing is read or written.

        Parameters
        ----------
        store_path : StorePath
            Where the group is.
        data : dict
            The document, with the attributes inside.

        Returns
        -------
        AsyncGroup
            The group.

        Raises
        ------
        MetadataValidationError
            The document is not metadata of a group.

        Examples
        --------
        >>> import cuzarr
        >>> group = cuzarr.create_group({}, attributes={"title": "maps"})
        >>> cuzarr.AsyncGroup.from_dict(group.store_path, group.metadata.to_dict()).attrs
        {'title': 'maps'}
        """
        return cls(GroupMetadata.from_dict(data), store_path)

    @classmethod
    async def from_store(
        cls,
        store: StoreLike,
        *,
        attributes: dict[str, Any] | None = None,
        overwrite: bool = False,
        zarr_format: ZarrFormat | None = 3,
    ) -> AsyncGroup:
        return await run_node(  # type: ignore[no-any-return]
            cls._blocking.from_store, store, attributes=attributes, overwrite=overwrite, zarr_format=zarr_format
        )

    @classmethod
    async def open(
        cls, store: StoreLike, zarr_format: ZarrFormat | None = 3, use_consolidated: bool | str | None = None
    ) -> AsyncGroup:
        """Open a group, given by its store or path.

        Parameters
        ----------
        use_consolidated : bool or str, optional
            Whether to read consolidated metadata: ``True`` requires it, ``False`` ignores it, ``None`` uses it if it is there.
            Text is the name of its key in format 2.
        """

        def opened() -> Any:
            place = _place(store)
            return cls._blocking(place, read_group(place, check_zarr_format(zarr_format), use_consolidated))

        return cls.of(await run(opened))

    setitem: Awaited[None]
    delitem: Awaited[None]
    contains: Awaited[bool]
    get_array: Awaited[AsyncArray]
    get_group: Awaited[AsyncGroup]
    create_array: Awaited[AsyncArray]
    require_groups: Awaited[tuple[AsyncGroup, ...]]
    update_attributes: Awaited[AsyncGroup]
    nmembers: Awaited[int]
    info_complete: Awaited[Info]
    tree: Awaited[Tree]
    move: Awaited[None]
    members: Listed[tuple[str, AsyncArray | AsyncGroup]]
    keys: Listed[str]
    arrays: Listed[tuple[str, AsyncArray]]
    array_keys: Listed[str]
    array_values: Listed[AsyncArray]
    groups: Listed[tuple[str, AsyncGroup]]
    group_keys: Listed[str]
    group_values: Listed[AsyncGroup]
    create_hierarchy: Listed[tuple[str, AsyncArray | AsyncGroup]]
    empty: Awaited[AsyncArray]
    zeros: Awaited[AsyncArray]
    ones: Awaited[AsyncArray]
    full: Awaited[AsyncArray]
    empty_like: Awaited[AsyncArray]
    zeros_like: Awaited[AsyncArray]
    ones_like: Awaited[AsyncArray]
    full_like: Awaited[AsyncArray]

    async def getitem(self, key: str) -> AsyncArray | AsyncGroup:
        """The array or group at a path below this group.

        Parameters
        ----------
        key : str
            The path, such as ``"maps/t2m"``.

        Examples
        --------
        >>> import asyncio, cuzarr
        >>> group = cuzarr.create_group({})
        >>> _ = group.create_array("maps/t2m", shape=(4,), dtype="float32")
        >>> asyncio.run(cuzarr.AsyncGroup.of(group).getitem("maps/t2m")).shape
        (4,)
        """
        return await run_node(self._node.__getitem__, key)  # type: ignore[no-any-return]

    async def require_array(
        self,
        name: str,
        *,
        shape: ShapeLike,
        dtype: DTypeLike | None = None,
        exact: bool = False,
        config: ArrayConfigLike | None = None,
        **kwargs: Unpack[RequireArrayOptions],
    ) -> AsyncArray:
        """The array at a path below this group, which is created if it is missing.

        Parameters
        ----------
        dtype : dtype-like, optional
            Type of the elements.
        exact : bool
            Whether an existing array must have exactly this type. Otherwise it suffices that its elements can be cast to this type.
        **kwargs
            As for :meth:`cuzarr.Group.create_array`, if the array is created.
        """
        given: dict[str, Any] = {"shape": shape, "dtype": dtype, "exact": exact, "config": config} | kwargs
        return await run_node(self._node.require_array, name, **given)  # type: ignore[no-any-return]

    async def get(self, key: str, default: DefaultT | None = None) -> AsyncArray | AsyncGroup | DefaultT | None:
        """The array or group at a path below this group, or a default value.

        Parameters
        ----------
        key : str
            The path below this group, such as ``"maps/t2m"``.

        Returns
        -------
        AsyncArray, AsyncGroup or the default
            The node at the path, or the default.
        """
        return await run_node(self._node.get, key, default)  # type: ignore[no-any-return]

    async def create_group(self, name: str, *, overwrite: bool = False, attributes: dict[str, Any] | None = None) -> AsyncGroup:
        """Create a group below this one.

        Parameters
        ----------
        overwrite : bool
            Replace an existing node and everything below it.
        attributes : dict, optional
            The attributes of the new group.
        """
        created = run_node(self._node.create_group, name, overwrite=overwrite, attributes=attributes)
        return await created  # type: ignore[no-any-return]

    async def require_group(self, name: str, overwrite: bool = False) -> AsyncGroup:
        """The group at a path below this group, which is created if it is missing.

        Parameters
        ----------
        overwrite : bool
            Whether to replace a group that exists.

        Raises
        ------
        ContainsArrayError
            An array is there, and ``overwrite`` is off.
        """
        return await run_node(self._node.require_group, name, overwrite=overwrite)  # type: ignore[no-any-return]


def _place(store: StoreLike) -> StorePath:
    return make_store_path(store, mode="r" if getattr(store, "read_only", False) is True else "r+")


def complete(twin: type[_AsyncNode], blocking: type) -> None:
    """Adds to an asynchronous class the methods and properties that it declares, each from the synchronous class ``blocking``."""
    twin._blocking, _TWINS[blocking] = blocking, twin
    for name, kind in twin.__annotations__.items():
        method = getattr(blocking, name, None) or getattr(blocking, f"__{name}__")
        twinned = {"Awaited": _awaited, "Listed": _listed}.get(kind.partition("[")[0])
        setattr(twin, name, twinned(method) if twinned else _same(blocking, name))
    for name, member in vars(twin).items():
        function, original = getattr(member, "__func__", member), getattr(blocking, name, getattr(blocking, f"__{name}__", None))
        if inspect.isfunction(function) and inspect.isroutine(original) and not name.startswith("_"):
            function.__name__ = name
            place = f"cuzarr.{twin.__name__}" if isinstance(member, classmethod) else f"cuzarr.{twin.__name__}.of({{}})"
            _docstrings.follow(function, original, f"cuzarr.{blocking.__name__}.{original.__name__}", place)
