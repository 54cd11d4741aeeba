"""Groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from cuzarr._metadata.array import encode_document
from cuzarr._metadata.documents import AnyNodeMetadata, check_zarr_format, read_group
from cuzarr._metadata.group import GroupMetadata
from cuzarr._node.creating import GroupCreation
from cuzarr._node.display import Info
from cuzarr._text import printable
from cuzarr.errors import InvalidArgumentError, UnsupportedError
from cuzarr.storage import Store, StorePath, make_store_path

if TYPE_CHECKING:
    from cuzarr._node.asynchronous import AsyncGroup


class Group(GroupCreation):
    """A group of a store: arrays and groups by their names.

    Parameters
    ----------
    store_path : StorePath
        Where it is.
    metadata : GroupMetadata
        Its attributes, format and, where there is any, consolidated metadata.
    device : str, optional
        Where its arrays are read to; the configuration's ``device`` unless given.

    Examples
    --------
    >>> import cuzarr
    >>> group = cuzarr.create_group({})
    >>> array = group.create_array("a/b", shape=(4,), dtype="uint8")
    >>> sorted(group), [name for name, _ in group.members(max_depth=None)]
    (['a'], ['a', 'a/b'])
    >>> group["a/b"].shape
    (4,)
    """

    @classmethod
    def from_store(
        cls,
        store: Any,
        *,
        attributes: dict[str, Any] | None = None,
        zarr_format: Any = 3,
        overwrite: bool = False,
    ) -> Self:
        """Creates a group at a store or path.

        Raises
        ------
        ContainsArrayError, ContainsGroupError
            A node is there, and ``overwrite`` is off.
        """
        return cls._new(make_store_path(store), attributes, zarr_format, overwrite=overwrite)

    @classmethod
    def open(cls, store: Any, zarr_format: Any = 3) -> Self:
        """Opens the group at a store or path.

        Raises
        ------
        GroupNotFoundError
            There is none.
        """
        place = make_store_path(store)
        return cls(place, read_group(place, check_zarr_format(zarr_format)))

    @property
    def metadata(self) -> GroupMetadata:
        """The metadata document, as a value."""
        return self._metadata

    @property
    def synchronizer(self) -> None:
        """Nothing; kept for zarr-python's sake."""
        return None

    @property
    def info(self) -> Info:
        """What the group is, at a glance; members are counted where that needs no listing."""
        consolidated = self._metadata.consolidated_metadata
        return self._info(None if consolidated is None else list(consolidated.flattened_metadata.values()))

    def info_complete(self) -> Info:
        """The same with every member counted, for which the store is listed."""
        return self._info([metadata for _, metadata in self._walk(None)])

    def _info(self, members: list[AnyNodeMetadata] | None) -> Info:
        groups = None if members is None else sum(isinstance(member, GroupMetadata) for member in members)
        return Info.of(
            [
                ("Name", self.path),
                ("Type", type(self).__name__),
                ("Zarr format", self._metadata.zarr_format),
                ("Read-only", self.read_only),
                ("Store type", self._store_kind),
                ("No. members", None if members is None else len(members)),
                ("No. arrays", None if members is None or groups is None else len(members) - groups),
                ("No. groups", groups),
            ]
        )

    def __delitem__(self, key: str) -> None:
        """Deletes the array or group at a path, with all that is below it."""
        self.store.check_writable()
        path = (self._store_path / key).path
        if path == self.path:
            raise InvalidArgumentError("a group does not delete itself")
        self.store._handle.delete_node(path)
        self._note(key, None)

    def move(self, source: str, dest: str) -> None:
        """Refuses: stores cannot rename."""
        raise UnsupportedError("stores cannot rename", hint="copy the array, then delete the source")

    async def update_attributes_async(self, new_attributes: dict[str, Any]) -> Group:
        """As :meth:`update_attributes`, awaited."""
        from cuzarr._runtime import run

        return await run(self.update_attributes, new_attributes)

    @property
    def async_group(self) -> AsyncGroup:
        """The same group, with members that are awaited."""
        from cuzarr._node.asynchronous import AsyncGroup

        return AsyncGroup.of(self)

    def same_as(self, other: object) -> bool:
        """Whether both are the same group of the same store, with the same metadata: what ``==`` says of groups, too."""
        return isinstance(other, Group) and self._store_path == other._store_path and self._metadata == other._metadata

    def __eq__(self, other: object) -> bool:
        return self.same_as(other) if isinstance(other, Group) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # attributes may change

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.store, self.path, self._metadata.to_dict(), self._own_device)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # The same for the same group in every process: dask names its tasks by it.
        return type(self).__name__, str(self.store), self.path, encode_document(self._metadata.to_dict()), self._own_device

    def _repr_html_(self) -> str:
        return self.info._repr_html_()

    def __repr__(self) -> str:
        return f"<Group {printable(str(self._store_path))}>"


def _rebuild(store: Store, path: str, document: dict[str, Any], device: str) -> Group:
    return Group(StorePath(store, path), GroupMetadata.from_dict(document), device)
