"""Operations that a process may be killed in, and what readers may see afterwards."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import cuzarr

DOCUMENTS = ("zarr.json", ".zarray", ".zgroup")

Content = tuple[np.ndarray[Any, Any], dict[str, Any]]
"""Elements and attributes of an array."""


@dataclass
class Operation:
    """What is there, what is done to it, and which contents each array may have at any moment, the last ones at the end."""

    prepare: Callable[[Any], None]
    run: Callable[[Any], None]
    allowed: dict[str, list[Content]]
    final: tuple[str, ...]
    """The arrays that are there when the operation has ended."""


def numbers(count: int, dtype: str = "i4", first: int = 1) -> np.ndarray[Any, Any]:
    """Elements of which none is a fill value."""
    return np.arange(first, first + count).astype(dtype)


def make(store: Any, path: str, content: Content, zarr_format: int, chunks: int = 2) -> None:
    """An array with elements, in chunks without compression, so that a chunk of another array can be mistaken for one."""
    elements, attributes = content
    cuzarr.create_array(
        store, name=path, data=elements, chunks=(chunks,), compressors=None, attributes=attributes, zarr_format=zarr_format
    )


def operations(zarr_format: int, scale: int = 1) -> dict[str, Operation]:
    """All of them by name; arrays have some chunks, times ``scale``."""
    old: Content = numbers(6 * scale), {"of": "old"}
    new: Content = numbers(8 * scale, "i8", 1000), {"of": "new"}
    kept: Content = numbers(4), {"of": "kept"}
    where: dict[str, Any] = {"zarr_format": zarr_format, "compressors": None, "chunks": (2,)}

    def prepare(store: Any) -> None:
        cuzarr.create_group(store, path="g", attributes={"of": "old"}, zarr_format=zarr_format)
        make(store, "a", old, zarr_format)
        make(store, "g/b", old, zarr_format)
        make(store, "g/h/c", old, zarr_format)
        make(store, "kept", kept, zarr_format)

    def consolidated(store: Any) -> None:
        prepare(store)
        cuzarr.consolidate_metadata(store, zarr_format=zarr_format)

    def opened(store: Any, path: str = "a") -> Any:
        return cuzarr.open(store, mode="r+", path=path, zarr_format=zarr_format)

    def resized(length: int) -> Content:
        longer = np.zeros(length, "i4")
        count = min(length, 6 * scale)
        longer[:count] = old[0][:count]
        return longer, old[1]

    def replaces(run: Callable[[Any], None], *paths: str, content: Content = new, before: Any = prepare) -> Operation:
        """Arrays become others."""
        return Operation(before, run, {path: [old, content] for path in paths}, paths)

    def deletes(run: Callable[[Any], None], *paths: str, before: Any = prepare) -> Operation:
        return Operation(before, run, {path: [old] for path in paths}, ())

    def changes(run: Callable[[Any], None], content: Content, before: Any = prepare) -> Operation:
        return Operation(before, run, {"a": [old, content]}, ("a",))

    half, longer = 3 * scale // 2 * 2, 6 * scale + 4
    appended: Content = np.concatenate([old[0], numbers(4, first=1000)]), old[1]
    source = {"s": new}

    def with_source(store: Any) -> None:
        prepare(store)
        make(store, "s", source["s"], zarr_format, chunks=3)

    def hierarchy(store: Any) -> None:
        like = cuzarr.create_array({}, shape=new[0].shape, dtype="i8", attributes=new[1], **where).metadata
        group = cuzarr.create_group({}, zarr_format=zarr_format).metadata
        for _ in cuzarr.create_hierarchy(store=_store(store), nodes={"g": group, "g/b": like, "a": like}, overwrite=True):
            pass

    def save(store: Any) -> None:
        cuzarr.save_array(store, new[0], path="a", overwrite=True, attributes=new[1], chunks=(2,), zarr_format=zarr_format)

    def save_group(store: Any) -> None:
        cuzarr.save_group(store, path="g", b=new[0], z=new[0], zarr_format=zarr_format)

    def delete(path: str) -> Callable[[Any], None]:
        def run(store: Any) -> None:
            del cuzarr.open_group(store, mode="r+", zarr_format=zarr_format)[path]

        return run

    def create_empty(store: Any) -> None:
        cuzarr.create_array(store, name="a", shape=(8 * scale,), dtype="i8", attributes=new[1], overwrite=True, **where)

    def copy(function: Any, **options: Any) -> Callable[[Any], None]:
        def run(store: Any) -> None:
            function(opened(store, "s"), _store(store), path="a", overwrite=True, progress=False, **options)

        return run

    def pyramid(store: Any) -> None:
        cuzarr.pyramid(opened(store, "image"), _store(store), path="g", levels=2, overwrite=True, progress=False)

    image = numbers(8 * scale * 4, "i8", 1000).reshape(8 * scale, 4), {"of": "image"}
    smaller = np.rint(image[0].reshape(4 * scale, 2, 2, 2).mean((1, 3))).astype("i8")

    def with_image(store: Any) -> None:
        prepare(store)
        cuzarr.create_array(store, name="image", data=image[0], chunks=(2, 4), attributes=image[1], zarr_format=zarr_format)

    def set_attributes(store: Any) -> None:
        opened(store).attrs.put(new[1])

    async def resize_awaited(store: Any) -> None:
        array = await cuzarr.AsyncArray.open(cuzarr.storage.StorePath(_store(store), "a"), zarr_format=zarr_format)
        await array.resize((half,))

    async def delete_awaited(store: Any) -> None:
        group = await cuzarr.AsyncGroup.open(_store(store), zarr_format=zarr_format)
        await group.delitem("g")

    no_attributes: Content = new[0], {}
    empty: Content = np.zeros(8 * scale, "i8"), new[1]
    all_below = ("g/b", "g/h/c")
    found = {
        "shrink": changes(lambda store: opened(store).resize((half,)), resized(half)),
        "shrink what is consolidated": changes(lambda store: opened(store).resize((half,)), resized(half), consolidated),
        "shrink, awaited": changes(lambda store: asyncio.run(resize_awaited(store)), resized(half)),
        "grow": changes(lambda store: opened(store).resize((longer,)), resized(longer)),
        "append": changes(lambda store: opened(store).append(numbers(4, first=1000)), appended),
        "set attributes": changes(set_attributes, (old[0], new[1])),
        "delete an array": deletes(delete("a"), "a"),
        "delete a group": deletes(delete("g"), *all_below),
        "delete a group, awaited": deletes(lambda store: asyncio.run(delete_awaited(store)), *all_below),
        "delete what is consolidated": deletes(delete("g"), *all_below, before=consolidated),
        "clear": deletes(lambda store: _store(store).delete_dir("g"), *all_below),
        "create over an array": replaces(create_empty, "a", content=empty),
        "create over what is consolidated": replaces(create_empty, "a", content=empty, before=consolidated),
        "create with elements": replaces(
            lambda store: cuzarr.create_array(store, name="a", data=new[0], attributes=new[1], overwrite=True, **where),
            "a",
        ),
        "create from an array": Operation(
            with_source,
            lambda store: cuzarr.from_array(store, name="a", data=opened(store, "s"), overwrite=True),
            {"a": [old, new], "s": [new]},
            ("a", "s"),
        ),
        "save an array": replaces(save, "a"),
        "save a group": Operation(
            prepare,
            save_group,
            {"g/b": [old, no_attributes], "g/h/c": [old], "g/z": [no_attributes]},
            ("g/b", "g/z"),
        ),
        "open to write": replaces(
            lambda store: cuzarr.open_array(
                store,
                path="a",
                mode="w",
                shape=(8 * scale,),
                dtype="i8",
                attributes=new[1],
                chunks=(2,),
                zarr_format=zarr_format,
            ),
            "a",
            content=empty,
        ),
        "open a group to write": deletes(
            lambda store: cuzarr.open_group(store, path="g", mode="w", zarr_format=zarr_format), *all_below
        ),
        "store in a group": replaces(
            lambda store: cuzarr.open_group(store, mode="r+", zarr_format=zarr_format).__setitem__("a", new[0]),
            "a",
            content=no_attributes,
        ),
        "create a hierarchy": Operation(
            prepare, hierarchy, {"a": [old, empty], "g/b": [old, empty], "g/h/c": [old]}, ("a", "g/b")
        ),
        "copy": Operation(with_source, copy(cuzarr.copy), {"a": [old, new], "s": [new]}, ("a", "s")),
        "copy over what is consolidated": Operation(
            lambda store: (with_source(store), cuzarr.consolidate_metadata(store, zarr_format=zarr_format)),
            copy(cuzarr.copy),
            {"a": [old, new], "s": [new]},
            ("a", "s"),
        ),
        "rechunk": Operation(with_source, copy(cuzarr.rechunk, chunks=(4,)), {"a": [old, new], "s": [new]}, ("a", "s")),
        "pyramid": Operation(
            with_image,
            pyramid,
            {"g/b": [old], "g/h/c": [old], "g/0": [image], "g/1": [(smaller, {})], "image": [image]},
            ("g/0", "g/1", "image"),
        ),
        "consolidate": Operation(
            prepare, lambda store: cuzarr.consolidate_metadata(store, zarr_format=zarr_format) and None, {}, ()
        ),
    }
    for operation in found.values():
        untouched = {path: [old] for path in ("a", *all_below) if path not in operation.allowed}
        operation.final += tuple(untouched) + ("kept",)
        operation.allowed |= untouched | {"kept": [kept]}
    return found


def _store(store: Any) -> Any:
    return cuzarr.storage.make_store(store)


def work(zarr_format: int, scale: int, name: str, root: str, tell: Connection) -> None:
    """An operation on a directory, in a process that may be killed meanwhile. Here, because a new process imports only this module."""
    warnings.simplefilter("ignore")
    operation = operations(zarr_format, scale)[name]
    tell.send("begins")
    operation.run(root)
    tell.send("ended")


def arrays(store: Any, zarr_format: int | None = None) -> Iterator[tuple[str, Content]]:
    """Everything that a reader finds: arrays that have documents, wherever they lie, and those that groups have consolidated."""
    for key in _store(store).list():
        path, _, name = key.rpartition("/")
        if name not in DOCUMENTS:
            continue
        node = cuzarr.open(store, path=path, mode="r", **({} if zarr_format is None else {"zarr_format": zarr_format}))
        if isinstance(node, cuzarr.Array):
            yield path, (node[...], dict(node.attrs))
        elif node.metadata.consolidated_metadata is not None:
            for inner, member in node.members(max_depth=None):
                if isinstance(member, cuzarr.Array):
                    yield f"{path}/{inner}".lstrip("/"), (member[...], dict(member.attrs))


def same(left: Content, right: Content) -> bool:
    """Whether two arrays have the same elements and attributes."""
    return left[0].dtype == right[0].dtype and np.array_equal(left[0], right[0]) and left[1] == right[1]


def check(operation: Operation, store: Any) -> None:
    """Each array is as it was, or as it shall be, or not there."""
    for path, content in arrays(store):
        assert path in operation.allowed, f"'{path}' has come to life"
        assert any(same(content, allowed) for allowed in operation.allowed[path]), f"'{path}' is {content}"


def check_end(operation: Operation, store: Any) -> None:
    """The operation has done its work."""
    found: dict[str, Content] = {}
    for path, content in arrays(store):
        found.setdefault(path, content)
        assert same(content, operation.allowed[path][-1]), f"'{path}' is {content}"
    assert set(found) == set(operation.final)


def check_new(operation: Operation, store: Any, zarr_format: int) -> None:
    """Where an array is gone, none of its elements is in a new one; nor in what one that is there takes in when it grows."""
    there = dict(arrays(store))
    for path in operation.allowed:
        if path not in there:
            fresh = cuzarr.storage.MemoryStore()
            for key in _store(store).list():
                fresh.set(key, _store(store).get(key))
            try:
                array = cuzarr.create_array(
                    fresh, name=path, shape=(8,), dtype="i4", chunks=(2,), compressors=None, zarr_format=zarr_format
                )
            except cuzarr.errors.ContainsArrayError:
                array = cuzarr.create_array(
                    fresh,
                    name=path,
                    shape=(8,),
                    dtype="i4",
                    chunks=(2,),
                    compressors=None,
                    zarr_format=zarr_format,
                    overwrite=True,
                )
            assert not array[...].any(), f"'{path}' has old elements"
            array.resize((64,))
            assert not array[...].any(), f"'{path}' has old elements"
