"""``Group``, a group in a store."""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, Unpack

import numpy as np

from cuzarr._checks import check_keywords, dictionary, items, parameters, parse_shape, whole
from cuzarr._compute.display import Explanation
from cuzarr._docstrings import documented
from cuzarr._metadata import create as new
from cuzarr._metadata.array import AnyArrayMetadata, canonical_json, parse_attributes
from cuzarr._metadata.documents import (
    AnyNodeMetadata,
    array_not_found,
    check_zarr_format,
    find_node,
    group_not_found,
    read_group,
    write_new,
)
from cuzarr._metadata.dtype import ZarrFormat, parse_dtype
from cuzarr._metadata.group import GroupMetadata, as_node
from cuzarr._node import create, many, members
from cuzarr._node.array import Array
from cuzarr._node.array_config import ArrayConfigLike, with_settings
from cuzarr._node.asynchronous import AsyncGroup, complete
from cuzarr._node.descriptions import group_html, group_info
from cuzarr._node.display import Tree
from cuzarr._node.hierarchy import create_nodes
from cuzarr._node.node import Node
from cuzarr._node.save import save_array
from cuzarr._node.writer import GroupWriter
from cuzarr._runtime import run
from cuzarr._text import Info, printable
from cuzarr.errors import ContainsArrayError, ContainsGroupError, CuzarrError, InvalidArgumentError, UnsupportedError
from cuzarr.storage import Store, StoreLike, StorePath, make_store_path, normalize_path

if TYPE_CHECKING:
    from cuzarr.typing import (
        ArrayLike,
        ChunkKeyEncoding,
        Chunks,
        CodecLike,
        Codecs,
        DTypeLike,
        FilledMemberOptions,
        FillValue,
        GroupOptions,
        MemberOptions,
        MemoryArray,
        Order,
        RequireOptions,
        ShapeLike,
        Shards,
    )


DefaultT = TypeVar("DefaultT")

_GROUP_OPTIONS = ("overwrite", "attributes")


@documented(
    """
    name : str
        Its path below this group.
    path : str
        The path below this group, such as ``"maps/t2m"``.
    shape : tuple of int
        Its shape.
    data : array
        The other array, stored or in memory. The new array gets its shape, dtype and chunks.
    **kwargs
        Arguments of the function of this name in ``cuzarr``.
    >>> import cuzarr
    >>> import numpy as np
    >>> group = cuzarr.create_group({})
    >>> _ = group.create_array("maps/t2m", shape=(4,), dtype="float32")
    """,
    errors={"overwrite": "ContainsArrayError, ContainsGroupError\n    A node is there, and ``overwrite`` is off."},
)
class Group(Node):
    """A group in a store: a container that holds arrays and other groups, each under a name.

    Parameters
    ----------
    store_path : StorePath
        The store, and the path of the group in it.
    metadata : GroupMetadata
        Its attributes, format and, if there are any, consolidated metadata.
    device : str, optional
        The device that its arrays are read to; by default the configured one.

    Raises
    ------
    KeyError
        From ``group[name]``: there is no such member.

    >>> group = cuzarr.create_group({})
    >>> array = group.create_array("a/b", shape=(4,), dtype="uint8")
    >>> sorted(group), [name for name, _ in group.members(max_depth=None)]
    (['a'], ['a', 'a/b'])
    >>> group["a/b"].shape
    (4,)
    """

    _metadata: GroupMetadata

    def __init__(
        self,
        store_path: StorePath,
        metadata: GroupMetadata,
        device: str | None = None,
        chunk_cache: bool | None = None,
    ) -> None:
        self._store_path = store_path
        self._metadata = metadata
        self._own_device = None if device is None else str(device)
        self._chunk_cache = chunk_cache

    @classmethod
    def from_store(
        cls,
        store: StoreLike,
        *,
        attributes: dict[str, Any] | None = None,
        zarr_format: ZarrFormat = 3,
        overwrite: bool = False,
    ) -> Self:
        """Create a group, at the root of a store or at a path.

        Parameters
        ----------
        store : store, path or URL
            Where the group will be.
        attributes : dict, optional
            Its attributes.
        zarr_format : {2, 3}
            The format.
        overwrite : bool
            Replace an existing node and everything below it.

        >>> import cuzarr
        >>> dict(cuzarr.Group.from_store({}, attributes={"title": "maps"}).attrs)
        {'title': 'maps'}
        """
        return cls._new(make_store_path(store), attributes, zarr_format, overwrite=overwrite)

    @classmethod
    def open(cls, store: StoreLike, zarr_format: ZarrFormat | None = 3) -> Self:
        """Open a group, given by its store or path.

        Parameters
        ----------
        store : store, path or URL
            Where the group is.
        zarr_format : {2, 3, None}
            The format; ``None`` for either.

        Raises
        ------
        GroupNotFoundError
            There is no group of this format.

        >>> import cuzarr
        >>> store = {}
        >>> _ = cuzarr.create_group(store)
        >>> cuzarr.Group.open(store).path
        ''
        """
        place = make_store_path(store)
        return cls(place, read_group(place, check_zarr_format(zarr_format)))

    @classmethod
    def _new(
        cls,
        place: StorePath,
        attributes: dict[str, Any] | None,
        zarr_format: ZarrFormat,
        *,
        overwrite: bool,
        device: str | None = None,
    ) -> Self:
        metadata = GroupMetadata(parse_attributes(attributes), zarr_format)
        write_new(place, metadata, overwrite=overwrite)
        return cls(place, metadata, device)

    @property
    def metadata(self) -> GroupMetadata:
        """The group's metadata document, as an object."""
        return self._metadata

    @property
    def synchronizer(self) -> None:
        """Always ``None``: cuzarr has no synchronizers. The property exists because zarr-python has it."""
        return None

    @property
    def info(self) -> Info:
        """A summary of the group. Its members are counted only if this does not need to list the keys of the store."""
        consolidated = self._metadata.consolidated_metadata
        return group_info(self, None if consolidated is None else self._kinds(None))

    def info_complete(self) -> Info:
        """A summary like :attr:`info`, with every member counted. This lists the keys of the store.

        Returns
        -------
        Info
            The summary; ``print`` shows it.

        >>> "No. arrays  : 1" in str(group.info_complete())
        True
        """
        return group_info(self, self._kinds(None))

    # ---------------------------------------------------------------------------------------------------- its members

    def _node(self, path: str, metadata: AnyNodeMetadata) -> Array | Self:
        place = self._store_path / path
        if isinstance(metadata, GroupMetadata):
            return type(self)(place, metadata, self._own_device, self._chunk_cache)
        return Array(place, metadata, with_settings(None, chunk_cache=self._chunk_cache), self._own_device)

    def _find(self, path: str) -> AnyNodeMetadata | None:
        return members.find(self._store_path, self._metadata, path)

    def __getitem__(self, path: str) -> Array | Self:
        """The array or group at a path below this group: ``group["maps/t2m"]``.

        Returns
        -------
        Array or Group
            The member. For a type checker, :meth:`get_array` and :meth:`get_group` say which kind it is.

        Raises
        ------
        KeyError
            Nothing is there.

        >>> group["maps/t2m"].shape, group["maps"]["t2m"].shape
        ((4,), (4,))
        """
        metadata = self._find(path)
        if metadata is None:
            error = KeyError(path)
            if hint := members.near_name(self._store_path, self._metadata, path):
                error.add_note(f"hint: {hint}")
            raise error
        return self._node(path, metadata)

    def get(self, path: str, default: DefaultT | None = None) -> Array | Self | DefaultT | None:
        """The array or group at a path below this group, or else a default value.

        Parameters
        ----------
        default : optional
            The result if nothing is at the path.

        >>> group.get("maps/t2m").shape, group.get("maps/msl", "none")
        ((4,), 'none')
        """
        metadata = self._find(path)
        return default if metadata is None else self._node(path, metadata)

    def get_array(self, path: str) -> Array:
        """The array at a path below this group.

        Raises
        ------
        ArrayNotFoundError, ContainsGroupError
            Nothing is there, or a group is.

        >>> group.get_array("maps/t2m").dtype
        dtype('float32')
        """
        node = self.get(path)
        if node is None:
            raise array_not_found(self._store_path / path)
        if not isinstance(node, Array):
            raise ContainsGroupError(f"a group is in store {self.store} at path '{node.path}'")
        return node

    def read(
        self,
        names: Iterable[str] | None = None,
        selection: Mapping[str, int | slice] | None = None,
        *,
        dtype: DTypeLike | None = None,
    ) -> dict[str, MemoryArray]:
        """Read many arrays in one call, such as all variables of a time step: see :func:`cuzarr.read_many`.

        Parameters
        ----------
        names : iterable of str, optional
            Paths of arrays below this group. By default all arrays directly below.
        selection : mapping of str to int or slice, optional
            Positions along dimensions, by their names (``dimension_names``, or xarray's in format 2). An integer drops the dimension.
            Arrays without a dimension are read whole along it.
        dtype : dtype, optional
            Element type of the results; elements are converted on the way.

        Returns
        -------
        dict of str to array
            The elements by path.

        Raises
        ------
        ArrayNotFoundError, ContainsGroupError
            Nothing is at a path, or a group is.
        SelectionInvalidError
            No array has a dimension with one of these names.
        CuzarrError
            The first failure of any read.

        >>> days = cuzarr.create_group({})
        >>> for name in ("t2m", "msl"):
        ...     _ = days.create_array(name, data=np.ones((4, 3), "f4"), dimension_names=("time", "x"))
        >>> {name: values.shape for name, values in days.read(selection={"time": slice(0, 2)}).items()}
        {'msl': (2, 3), 't2m': (2, 3)}
        """
        boxes = self._boxes(names, selection)
        return dict(zip(boxes, many.read_many(boxes.values(), dtype=dtype), strict=True))

    def writer(
        self,
        names: Iterable[str] | None = None,
        axis: int | str = "time",
        *,
        slots: int = 2,
        resume: bool = False,
        region: Sequence[slice] | None = None,
    ) -> GroupWriter:
        """Open a writer that takes rows of many arrays, such as all variables of a simulation: see :meth:`Array.writer`.

        The shapes of all arrays are stored together, and consolidated metadata once.

        Parameters
        ----------
        names : iterable of str, optional
            Paths of arrays below this group. By default all arrays directly below that have the dimension ``axis``.
        axis : int or str
            The dimension of rows: its name, or its number in all arrays.
        slots, resume
            As for :meth:`Array.writer`.
        region : tuple of slice, optional
            The part of every array to write, as for :meth:`Array.writer`. The arrays then have one shape, and keep it.

        Returns
        -------
        GroupWriter
            Its ``append`` takes a mapping of names to rows.

        Raises
        ------
        ArrayNotFoundError, ContainsGroupError
            Nothing is at a path, or a group is.
        InvalidArgumentError
            As for :meth:`Array.writer`, or no array has the dimension.
        ShapeMismatchError
            There is a region, and the arrays have different shapes.

        >>> run = cuzarr.create_group({})
        >>> for name in ("t2m", "msl"):
        ...     _ = run.create_array(name, shape=(0, 3), chunks=(4, 3), dtype="f4", dimension_names=("time", "x"))
        >>> with run.writer() as writer:
        ...     writer.append({"t2m": np.ones(3, "f4"), "msl": np.zeros(3, "f4")})
        >>> run["t2m"].shape
        (1, 3)
        """
        if names is None:
            arrays = dict(self.arrays())
            if isinstance(axis, str):
                arrays = {name: array for name, array in arrays.items() if axis in (array._dimension_names or ())}
            if not arrays:
                hint = "name the arrays, and give the axis as a number if they have no dimension names"
                raise InvalidArgumentError(f"no array directly below the group has the dimension {axis!r}", hint=hint)
        else:
            arrays = {name: self.get_array(name) for name in ([names] if isinstance(names, str) else names)}
        return GroupWriter(arrays, axis, slots=slots, resume=resume, region=region)

    def explain(
        self,
        names: Iterable[str] | None = None,
        selection: Mapping[str, int | slice] | None = None,
    ) -> Explanation:
        """Explain what :meth:`read` would do, and why. No elements are read.

        Parameters
        ----------
        names : iterable of str, optional
            Paths of arrays below this group. By default all arrays directly below.
        selection : mapping of str to int or slice, optional
            Positions along dimensions, as for :meth:`read`.

        Returns
        -------
        Explanation
            The groups of arrays that share batches, and where the codecs of each run. ``print`` shows it as text.

        Raises
        ------
        ArrayNotFoundError, ContainsGroupError
            Nothing is at a path, or a group is.
        SelectionInvalidError
            No array has a dimension with one of these names.

        >>> days = cuzarr.create_group({})
        >>> for name in ("t2m", "msl"):
        ...     _ = days.create_array(name, data=np.ones((4, 3), "f4"), dimension_names=("time", "x"))
        >>> [group["arrays"] for group in days.explain().to_dict()["groups"]]
        [['msl', 't2m']]
        """
        return many.explain(self._boxes(names, selection))

    def write(self, values: Mapping[str, ArrayLike], selection: Mapping[str, int | slice] | None = None) -> None:
        """Write to many arrays in one call, such as all variables of a time step: see :func:`cuzarr.write_many`.

        Parameters
        ----------
        values : mapping of str to array
            The elements to write, by the paths of arrays below this group.
        selection : mapping of str to int or slice, optional
            Positions along dimensions, by their names, as for :meth:`read`. Arrays without a dimension are written whole along it.

        Raises
        ------
        ArrayNotFoundError, ContainsGroupError
            Nothing is at a path, or a group is.
        SelectionInvalidError
            No array has a dimension with one of these names.
        ReadOnlyError, ShapeMismatchError, ConversionError
            The store is read-only, or a value does not fit. Nothing is written.
        CuzarrError
            The first failure of any write.

        >>> days = cuzarr.create_group({})
        >>> for name in ("t2m", "msl"):
        ...     _ = days.create_array(name, shape=(4, 3), dtype="f4", dimension_names=("time", "x"))
        >>> days.write({"t2m": np.ones(3), "msl": 7}, {"time": 2})
        >>> days["msl"][:, 0].tolist()
        [0.0, 0.0, 7.0, 0.0]
        """
        boxes = many.boxes_of(self._arrays_at(list(values)), selection)
        many.write_many((array, box, values[path]) for path, (array, box) in boxes.items())

    def _boxes(
        self, names: Iterable[str] | None, selection: Mapping[str, int | slice] | None
    ) -> dict[str, tuple[Array, tuple[int | slice, ...]]]:
        """Finds the arrays at the paths ``names``, and the box of each array that ``selection`` selects. Without ``names``, all arrays
        directly below the group."""
        paths = None if names is None else list(items(names, "names", "a list of paths of arrays"))
        return many.boxes_of(dict(self.arrays()) if paths is None else self._arrays_at(paths), selection)

    def _arrays_at(self, paths: list[str]) -> dict[str, Array]:
        arrays = self._nodes_at(paths)
        group = next((node for node in arrays.values() if not isinstance(node, Array)), None)
        if group is not None:
            raise ContainsGroupError(f"a group is in store {self.store} at path '{group.path}'")
        return arrays  # type: ignore[return-value]  # as was just seen

    def _nodes_at(self, paths: list[str]) -> dict[str, Array | Self]:
        """The arrays and groups at paths below this group. Their metadata are requested from the store at the same time."""
        found = dict(zip(paths, members.at(self._store_path, self._metadata, paths), strict=True))
        missing = next((path for path, metadata in found.items() if metadata is None), None)
        if missing is not None:
            raise array_not_found(self._store_path / missing)
        return {path: self._node(path, metadata) for path, metadata in found.items() if metadata is not None}

    def get_group(self, path: str) -> Self:
        """The group at a path below this group.

        Raises
        ------
        GroupNotFoundError, ContainsArrayError
            Nothing is there, or an array is.

        >>> group.get_group("maps").path
        'maps'
        """
        node = self.get(path)
        if node is None:
            raise group_not_found(self._store_path / path)
        if isinstance(node, Array):
            raise ContainsArrayError(f"an array is in store {self.store} at path '{node.path}'")
        return node

    def __contains__(self, member: str) -> bool:
        """Whether an array or group is at a path below this group: ``"maps/t2m" in group``.

        Parameters
        ----------
        member : str
            The path, such as ``"maps/t2m"``.

        >>> import asyncio, cuzarr
        >>> group = cuzarr.create_group({})
        >>> _ = group.create_array("maps/t2m", shape=(4,), dtype="float32")
        >>> "maps/t2m" in group, "maps/msl" in group
        (True, False)
        >>> asyncio.run(cuzarr.AsyncGroup.of(group).contains("maps"))
        True
        """
        return self._find(member) is not None

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def __len__(self) -> int:
        return self.nmembers()

    def _walk(self, max_depth: int | None, **kwargs: Any) -> Iterator[tuple[str, members.FoundMember]]:
        return members.walk(self._store_path, self._metadata, max_depth, **kwargs)

    def _nodes(
        self,
        max_depth: int | None,
        *,
        kind: type[Array] | type[Group] | None = None,
        dropped: Container[str] = (),
        strict: bool = True,
        **kwargs: Any,
    ) -> Iterator[tuple[str, Any]]:
        """Yields path and object of the arrays and groups below this group, or of the arrays or the groups only. Arrays whose names are in
        ``dropped`` are left out."""
        for path, found in self._walk(max_depth, **kwargs):
            is_group = isinstance(found, GroupMetadata)
            if (kind is not None and (kind is Array) == is_group) or (not is_group and path.rpartition("/")[2] in dropped):
                continue
            try:
                if isinstance(found, CuzarrError):
                    raise found
                node = self._node(path, found)
            except members.UNREADABLE as error:
                if strict:
                    raise
                members.warn_left_out(path, error, stacklevel=3)
                continue
            yield path, node

    def _kinds(self, max_depth: int | None) -> dict[str, bool]:
        """The path of each array and group below this group, and whether it is an array."""
        return dict(members.kinds(self._store_path, self._metadata, max_depth))

    def members(
        self, max_depth: int | None = 0, *, use_consolidated_for_children: bool = True, strict: bool = True
    ) -> tuple[tuple[str, Array | Self], ...]:
        """All arrays and groups below this group, each with its path.

        A node with an unknown codec or data type does not affect others. With ``strict=False`` the others are returned.

        Parameters
        ----------
        max_depth : int or None
            How many levels to go below the direct members: 0 for the direct members alone, ``None`` for all levels.
        use_consolidated_for_children : bool
            Whether to use the consolidated metadata of groups below this group, instead of listing them.
        strict : bool
            Whether a node that cannot be used is an error. With ``False`` it is left out, and a ``CuzarrUserWarning`` names it and the
            reason.

        Returns
        -------
        tuple of (str, Array or Group)

        Raises
        ------
        UnknownCodecError, UnknownDataTypeError, UnsupportedFeatureError, MetadataValidationError
            With ``strict``: a node below cannot be used. The error names it.

        >>> [path for path, node in group.members(max_depth=None)]
        ['maps', 'maps/t2m']
        """
        _check_depth(max_depth)
        return tuple(self._nodes(max_depth, strict=strict, use_consolidated_for_children=use_consolidated_for_children))

    def nmembers(self, max_depth: int | None = 0) -> int:
        """The number of arrays and groups below this group.

        Parameters
        ----------
        max_depth : int or None
            As in :meth:`members`.

        >>> group.nmembers(), group.nmembers(max_depth=None)
        (1, 2)
        """
        _check_depth(max_depth)
        return len(self._kinds(max_depth))

    def keys(self) -> Generator[str]:
        """Names of the arrays and groups directly below this group.

        >>> list(group.keys())
        ['maps']
        """
        yield from self._kinds(0)

    def arrays(self) -> Generator[tuple[str, Array], None]:
        """Yields name and object of each array directly below this group.

        >>> [(name, array.shape) for name, array in group["maps"].arrays()]
        [('t2m', (4,))]
        """
        yield from self._nodes(0, kind=Array)

    def array_keys(self) -> Generator[str, None]:
        """Names of the arrays directly below this group.

        >>> list(group["maps"].array_keys())
        ['t2m']
        """
        yield from (name for name, is_array in self._kinds(0).items() if is_array)

    def array_values(self) -> Generator[Array, None]:
        """The arrays directly below this group.

        >>> [array.shape for array in group["maps"].array_values()]
        [(4,)]
        """
        yield from (array for _, array in self.arrays())

    def groups(self) -> Generator[tuple[str, Self], None]:
        """Yields name and object of each group directly below this group.

        >>> [(name, below.path) for name, below in group.groups()]
        [('maps', 'maps')]
        """
        yield from self._nodes(0, kind=Group)

    def group_keys(self) -> Generator[str, None]:
        """Names of the groups directly below this group.

        >>> list(group.group_keys())
        ['maps']
        """
        yield from (name for name, is_array in self._kinds(0).items() if not is_array)

    def group_values(self) -> Generator[Self, None]:
        """The groups directly below this group.

        >>> [below.path for below in group.group_values()]
        ['maps']
        """
        yield from (group for _, group in self.groups())

    def tree(
        self,
        expand: bool | None = None,
        level: int | None = None,
        *,
        max_nodes: int = 500,
        plain: bool = False,
    ) -> Tree:
        """The hierarchy below this group, as text.

        Parameters
        ----------
        expand : None
            Not supported; zarr-python has it.
        level : int, optional
            Number of levels to show; by default all.
        max_nodes : int
            Largest number of nodes to show.
        plain : bool
            Whether names are shown without bold type.

        Returns
        -------
        Tree
            The hierarchy; ``print`` shows it.

        Raises
        ------
        UnsupportedError
            ``expand`` is given.

        >>> print(group.tree(plain=True), end="")
        /
        └── maps
            └── t2m (4,) float32
        """
        if expand is not None:
            raise UnsupportedError("tree does not support expand")
        if level is not None:
            whole(level, "level", 0, hint="pass None for all levels")
        most = min(whole(max_nodes, "max_nodes", 0), 1 << 62)
        return members.tree(self.name, self._walk(level, most=most + 1), most, plain)

    # -------------------------------------------------------------------------------------------- making and deleting

    def create_group(self, name: str, **kwargs: Unpack[GroupOptions]) -> Self:
        """Create a group below this one.

        Parameters
        ----------
        **kwargs
            ``overwrite`` and ``attributes``, as in :func:`cuzarr.create_group`.

        Raises
        ------
        ContainsArrayError, ContainsGroupError
            A node is there, and ``overwrite`` is off.

        >>> group.create_group("charts").path
        'charts'
        """
        check_keywords("Group.create_group", kwargs, _GROUP_OPTIONS)
        overwrite, attributes = kwargs.pop("overwrite", False), kwargs.pop("attributes", None)
        place, zarr_format = self._store_path / name, self._metadata.zarr_format
        group = self._new(place, attributes, zarr_format, overwrite=overwrite, device=self._own_device)
        group._chunk_cache = self._chunk_cache
        self._note(name, group._metadata)
        return group

    def require_group(self, name: str, **kwargs: Unpack[GroupOptions]) -> Self:
        """The group at a path below this group, which is created if it is missing.

        Parameters
        ----------
        **kwargs
            As in :meth:`create_group`. ``overwrite=True`` replaces a group that exists.

        Raises
        ------
        TypeError
            An array is there.

        >>> group.require_group("maps").path, group.require_group("more").path
        ('maps', 'more')
        """
        check_keywords("Group.require_group", kwargs, _GROUP_OPTIONS)
        if kwargs.pop("overwrite", False):
            return self.create_group(name, overwrite=True, **kwargs)  # type: ignore[misc]  # taken out above
        node = self.get(name)
        if node is None:
            try:
                return self.create_group(name, **kwargs)
            except ContainsGroupError:  # another program created it in the meantime
                node = self.get_group(name)
        if isinstance(node, Array):
            raise TypeError(f"an array is at '{printable(node.path)}', expected a group")
        return node

    def require_groups(self, *names: str) -> tuple[Self, ...]:
        """Returns the groups at several paths below this group, and creates those that are missing.

        Parameters
        ----------
        *names : str
            Paths below this group.

        Returns
        -------
        tuple of Group
            The groups, in the order of ``names``.

        Raises
        ------
        TypeError
            An array is at one of the paths.

        >>> [below.path for below in group.require_groups("a", "b/c")]
        ['a', 'b/c']
        """
        return tuple(self.require_group(name) for name in names)

    def create_array(
        self,
        name: str,
        *,
        shape: ShapeLike | None = None,
        dtype: DTypeLike | None = None,
        data: ArrayLike | None = None,
        chunks: Chunks = "auto",
        shards: Shards = None,
        filters: Codecs = "auto",
        compressors: Codecs = "auto",
        compressor: CodecLike | None = "auto",
        serializer: CodecLike = "auto",
        fill_value: FillValue = new.DEFAULT_FILL_VALUE,
        order: Order | None = None,
        attributes: dict[str, Any] | None = None,
        chunk_key_encoding: ChunkKeyEncoding | None = None,
        dimension_names: Iterable[str | None] | None = None,
        storage_options: dict[str, Any] | None = None,
        overwrite: bool = False,
        config: ArrayConfigLike | None = None,
        write_data: bool = True,
    ) -> Array:
        """Create an array below this group. The arguments are those of :func:`cuzarr.create_array`.

        Parameters
        ----------
        name : str
            Its path below this group. Missing groups above it are created.
        shape, data, ...
            As in :func:`cuzarr.create_array`.
        compressor : codec or None, optional
            The only compressor, in place of ``compressors``.

        Raises
        ------
        ContainsArrayError, ContainsGroupError
            A node is there, and ``overwrite`` is off.
        InvalidArgumentError
            The arguments do not fit each other.

        >>> group.create_array("maps/msl", shape=(8, 8), chunks=(4, 4), dtype="float32").nchunks
        4
        """
        arguments = dict(locals())
        del arguments["self"], arguments["compressor"]
        if not new.is_auto(compressor):
            if not new.is_auto(compressors):
                raise InvalidArgumentError("compressor and compressors mean the same; pass only one")
            arguments["compressors"] = () if compressor is None else (compressor,)

        arguments["config"] = with_settings(config, chunk_cache=self._chunk_cache)
        zarr_format = self._metadata.zarr_format
        array = create.create_array(self._store_path, **arguments, zarr_format=zarr_format, device=self._own_device)
        self._note(name, array.metadata)
        return array

    create = create_array  # zarr-python has both names

    def require_array(
        self,
        name: str,
        *,
        shape: ShapeLike,
        config: ArrayConfigLike | None = None,
        **kwargs: Unpack[RequireOptions],
    ) -> Array:
        """The array at a path below this group, which is created if it is missing.

        Parameters
        ----------
        shape : tuple of int
            The shape that it must have.
        config : ArrayConfig or dict, optional
            Settings of the open array.
        **kwargs
            ``dtype``: a type to which the array's values can be cast, or with ``exact=True`` the array's own type. For a new array also
            the arguments of :meth:`create_array`.

        Raises
        ------
        TypeError
            The node at the path is not an array, or its shape or dtype differs.

        >>> group.require_array("maps/t2m", shape=(4,), dtype="float64").dtype
        dtype('float32')
        """
        known = parameters(Group.require_array, Group.create_array, create.create)
        check_keywords("Group.require_array", kwargs, [*known, "exact"])
        exact, dtype = kwargs.pop("exact", False), kwargs.pop("dtype", None)
        node = self.get(name)
        if node is None:
            created = "float64" if dtype is None else dtype
            try:
                return self.create_array(name, shape=shape, dtype=created, config=config, **kwargs)  # type: ignore[misc]
            except ContainsArrayError:
                if (node := self.get(name)) is None:
                    raise
                # Another program created it in the meantime.
        if not isinstance(node, Array):
            raise TypeError(f"a group is at '{printable(node.path)}', expected an array")
        if node.shape != parse_shape(shape):
            raise TypeError(f"the array at '{printable(node.path)}' has shape {node.shape}, not {parse_shape(shape)}")
        native = parse_dtype("float64" if dtype is None else dtype, self._metadata.zarr_format).native
        if node.dtype != native if exact else not np.can_cast(node.dtype, native):
            raise TypeError(f"the array at '{printable(node.path)}' has elements of {node.dtype}, not {native}")
        return node if config is None else node.with_config(config)

    def create_hierarchy(
        self, nodes: dict[str, AnyArrayMetadata | GroupMetadata], *, overwrite: bool = False
    ) -> Iterator[tuple[str, Self | Array]]:
        """Create many arrays and groups below this group in one call, and yield each with its path.

        Parameters
        ----------
        nodes : dict
            Metadata of arrays and groups, by path below this group.
        overwrite : bool
            Whether to replace nodes that exist.

        Returns
        -------
        iterator of (str, Array or Group)
            Paths and new nodes. Each node is created before it is yielded.

        Raises
        ------
        InvalidArgumentError
            A node has another format than this group, or is the group itself.
        ContainsArrayError, ContainsGroupError
            A node is there, and ``overwrite`` is off.

        >>> metadata = group["maps/t2m"].metadata
        >>> sorted(path for path, node in group.create_hierarchy({"a": metadata, "b": metadata}))
        ['a', 'b']
        """

        nodes = {path: as_node(node) for path, node in dictionary(nodes, "nodes").items()}
        for path, node in nodes.items():
            if node.zarr_format != self._metadata.zarr_format:
                raise InvalidArgumentError(f"'{path}' is of format {node.zarr_format}, the group of {self._metadata.zarr_format}")
            if not normalize_path(path):
                raise InvalidArgumentError("the nodes include the group itself, which exists already")
        below = {(self._store_path / path).path: node for path, node in nodes.items()}
        skip = len(self.path) + 1 if self.path else 0
        for path, created in create_nodes(StorePath(self.store), below, overwrite):
            if path != self.path and path.startswith(self.path):
                metadata = created if isinstance(created, GroupMetadata) else created.metadata
                self._note(path[skip:], metadata)
                yield path[skip:], self._node(path[skip:], metadata)

    def _like(self, function: str, name: str, **kwargs: Any) -> Array:
        zarr_format = kwargs.pop("zarr_format", None) or self._metadata.zarr_format
        if zarr_format != self._metadata.zarr_format:
            raise InvalidArgumentError(f"an array of format {zarr_format} cannot be in a group of {self._metadata.zarr_format}")
        kwargs.setdefault("device", self._own_device)
        array = getattr(create, function)(store=self._store_path, path=name, zarr_format=zarr_format, **kwargs)
        self._note(name, array.metadata)
        return array  # type: ignore[no-any-return]

    def empty(self, *, name: str, shape: tuple[int, ...], **kwargs: Unpack[FilledMemberOptions]) -> Array:
        """Create an array below this group whose elements are the fill value. No element is written.

        >>> group.empty(name="a", shape=(2,)).shape
        (2,)
        """
        return self._like("empty", name, shape=shape, **kwargs)

    def zeros(self, *, name: str, shape: tuple[int, ...], **kwargs: Unpack[FilledMemberOptions]) -> Array:
        """Create an array of zeros below this group.

        >>> group.zeros(name="a", shape=(2,)).shape
        (2,)
        """
        return self._like("zeros", name, shape=shape, **kwargs)

    def ones(self, *, name: str, shape: tuple[int, ...], **kwargs: Unpack[FilledMemberOptions]) -> Array:
        """Create an array of ones below this group.

        >>> group.ones(name="a", shape=(2,)).shape
        (2,)
        """
        return self._like("ones", name, shape=shape, **kwargs)

    def full(self, *, name: str, shape: tuple[int, ...], fill_value: FillValue, **kwargs: Unpack[MemberOptions]) -> Array:
        """Create an array below this group whose elements all have one value.

        Parameters
        ----------
        fill_value : scalar
            The value.

        >>> group.full(name="a", shape=(2,), fill_value=7.0).shape
        (2,)
        """
        return self._like("full", name, shape=shape, fill_value=fill_value, **kwargs)

    def empty_like(self, *, name: str, data: ArrayLike, **kwargs: Unpack[FilledMemberOptions]) -> Array:
        """Create an array like ``data`` below this group, whose elements are the fill value. No element is written.

        >>> group.empty_like(name="copy", data=group["maps/t2m"]).dtype
        dtype('float32')
        """
        return self._like("empty_like", name, a=data, **kwargs)

    def zeros_like(self, *, name: str, data: ArrayLike, **kwargs: Unpack[FilledMemberOptions]) -> Array:
        """Create an array of zeros below this group, with the shape, type and settings of ``data``.

        >>> group.zeros_like(name="copy", data=group["maps/t2m"]).dtype
        dtype('float32')
        """
        return self._like("zeros_like", name, a=data, **kwargs)

    def ones_like(self, *, name: str, data: ArrayLike, **kwargs: Unpack[FilledMemberOptions]) -> Array:
        """Create an array of ones below this group, with the shape, type and settings of ``data``.

        >>> group.ones_like(name="copy", data=group["maps/t2m"]).dtype
        dtype('float32')
        """
        return self._like("ones_like", name, a=data, **kwargs)

    def full_like(self, *, name: str, data: ArrayLike, **kwargs: Unpack[FilledMemberOptions]) -> Array:
        """Create an array of one value below this group, with the shape, type and settings of ``data``.

        >>> group.full_like(name="copy", data=group["maps/t2m"], fill_value=7).dtype
        dtype('float32')
        """
        return self._like("full_like", name, a=data, **kwargs)

    def __setitem__(self, key: str, value: ArrayLike) -> None:
        """Store an array at a path below this group, and replace any existing node: ``group["t2m"] = array``.

        Parameters
        ----------
        key : str
            The path, such as ``"maps/t2m"``.
        value : array_like
            The elements: an array of any library, on any device.

        Raises
        ------
        ReadOnlyError
            The store is read-only.

        >>> import asyncio, cuzarr, numpy as np
        >>> group = cuzarr.create_group({})
        >>> group["a"] = np.arange(3)
        >>> asyncio.run(cuzarr.AsyncGroup.of(group).setitem("b", np.arange(4)))
        >>> group["a"].shape, group["b"].shape
        ((3,), (4,))
        """

        save_array(self._store_path / key, value, zarr_format=self._metadata.zarr_format, overwrite=True)
        if self._metadata.consolidated_metadata is not None:
            self._note(key, find_node(self._store_path / key, self._metadata.zarr_format))

    def __delitem__(self, key: str) -> None:
        """Delete the array or group at a path below this group, and everything below it: ``del group["t2m"]``.

        Parameters
        ----------
        key : str
            The path, such as ``"maps/t2m"``. Nothing happens if nothing is there.

        Raises
        ------
        ReadOnlyError
            The store is read-only.
        InvalidArgumentError
            The path is that of this group.

        >>> import asyncio, cuzarr, numpy as np
        >>> group = cuzarr.create_group({})
        >>> group["a"] = group["b"] = np.arange(3)
        >>> del group["a"]
        >>> asyncio.run(cuzarr.AsyncGroup.of(group).delitem("b"))
        >>> list(group)
        []
        """
        self.store.check_writable()
        path = (self._store_path / key).path
        if path == self.path:
            raise InvalidArgumentError("a group cannot delete itself")
        self.store._handle.delete_node(path)
        self._note(key, None)

    def _note(self, name: str, node: AnyNodeMetadata | None) -> None:
        """Updates this object's consolidated metadata after a member was replaced, or deleted (``node`` is ``None``)."""
        self._metadata = members.noted(self._metadata, name, node)

    def move(self, source: str, dest: str) -> None:
        """Not supported: stores cannot rename.

        Parameters
        ----------
        source, dest : str
            Paths, as in zarr-python.

        Raises
        ------
        UnsupportedError
            Always.

        >>> import cuzarr
        >>> cuzarr.create_group({}).move("a", "b")
        Traceback (most recent call last):
        cuzarr.errors.UnsupportedError: stores cannot rename
        hint: copy the array, then delete the source
        """
        raise UnsupportedError("stores cannot rename", hint="copy the array, then delete the source")

    # ----------------------------------------------------------------------------------------- as an object of Python

    async def update_attributes_async(self, new_attributes: dict[str, Any]) -> Group:
        """Like :meth:`update_attributes`, but awaited.

        Parameters
        ----------
        new_attributes : dict
            Values that JSON can hold.

        >>> import asyncio, cuzarr
        >>> group = cuzarr.create_group({})
        >>> dict(asyncio.run(group.update_attributes_async({"units": "K"})).attrs)
        {'units': 'K'}
        """

        return await run(self.update_attributes, new_attributes)

    @property
    def async_group(self) -> AsyncGroup:
        """This group as an :class:`AsyncGroup`, whose methods are awaited."""

        return AsyncGroup.of(self)

    def same_as(self, other: object) -> bool:
        """Whether two objects are the same group of the same store, with equal metadata. ``==`` does the same.

        Parameters
        ----------
        other : object
            What to compare with.

        >>> import cuzarr
        >>> store = {}
        >>> cuzarr.create_group(store).same_as(cuzarr.open_group(store))
        True
        """
        return isinstance(other, Group) and self._store_path == other._store_path and self._metadata == other._metadata

    def __eq__(self, other: object) -> bool:
        return self.same_as(other) if isinstance(other, Group) else NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # attributes may change

    def __reduce__(self) -> tuple[Any, ...]:
        return Group._rebuilt, (self.store, self.path, self._metadata.to_dict(), self._own_device, self._chunk_cache)

    @classmethod
    def _rebuilt(cls, store: Store, path: str, document: dict[str, Any], device: str | None, chunk_cache: bool | None) -> Group:
        return cls(StorePath(store, path), GroupMetadata.from_dict(document), device, chunk_cache)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # Equal for the same group in every process, because dask names its tasks by it.
        return type(self).__name__, str(self.store), self.path, canonical_json(self._metadata.to_dict()), self._own_device

    def _repr_html_(self) -> str:
        return group_html(self, members.near_tree(self._store_path, self._metadata))

    def __repr__(self) -> str:
        return f"<Group {printable(str(self._store_path))}>"


def _check_depth(max_depth: int | None) -> None:
    if max_depth is not None:
        whole(max_depth, "max_depth", 0, hint="pass None for all members")


complete(AsyncGroup, Group)
