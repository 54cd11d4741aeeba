"""Random programs of selections and writes: what they are made of, and how two libraries are compared that run them.

Most are programs that a user would write by mistake: indices outside, masks of the wrong shape, values that do not fit. Both
libraries have to refuse the same ones, and to give the same elements for all others.
"""

from __future__ import annotations

import itertools
import operator
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer.cpu import NDBuffer
from zarr.core.indexing import ensure_tuple, is_pure_fancy_indexing

STRUCTURES: list[Any] = [[("a", "<i4"), ("b", "<f8")], [("t", "<M8[s]"), ("n", "S3"), ("x", [("p", "<f4"), ("q", "u1")])]]
DTYPES = ["bool", "i1", "<i4", "<u8", "<f2", ">f8", "<c8", "<M8[s]", "<m8[25us]", "<U4", "S5", "V3", "string", *STRUCTURES]
WORDS = ["", "a", "é☃", "z" * 40]
# Each way to select, and the method that reads; `set` stands there for the one that writes.
METHODS = [f"get_{kind}_selection" for kind in ("basic", "orthogonal", "coordinate", "mask", "block")]
BRACKETS = ["brackets", "brackets", "oindex", "vindex", "blocks"]


def values(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Elements of a type that an array of it may hold."""
    if dtype.kind in "OT":
        return np.array([WORDS[place] for place in rng.integers(0, 4, int(np.prod(shape)))], dtype).reshape(shape)
    if dtype.names is not None:
        whole = np.empty(shape, dtype)
        for name in dtype.names:
            whole[name] = values(rng, dtype[name], shape)
        return whole
    if dtype.kind in "US":
        return rng.integers(0, 9999, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    whole = np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)
    return whole if dtype.kind not in "fc" else rng.normal(size=shape).astype(dtype)


def a_slice(choose: random.Random, extent: int) -> slice:
    """A slice whose ends may lie outside."""
    ends = [choose.choice([None, choose.randint(-extent - 1, extent + 1)]) for _ in range(2)]
    return slice(*ends, choose.choice([None, 1, 2, 3]))


# ------------------------------------------------------------------------------------------------ arrays


def edges(choose: random.Random, extent: int, unit: int = 1) -> list[int]:
    """Lengths of chunks of a rectilinear grid, multiples of a unit: of this many elements, or some more."""
    lengths = [unit * choose.randint(1, 4) for _ in range(3)]
    found = [choose.choice(lengths)]
    while sum(found) < extent:
        found.append(choose.choice(lengths))
    return found


def an_array(choose: random.Random, rectilinear: bool) -> dict[str, Any]:
    """Arguments of ``create_array``, shape and element type among them; with a rectilinear grid where the array can have one."""
    ndim, zarr_format = choose.choice([0, 1, 1, 2, 2, 3]), choose.choice([2, 3, 3])
    chunks = tuple(choose.randint(1, 4) for _ in range(ndim))
    shape = tuple(choose.choice([0, 1, choose.randint(2, 7), choose.randint(2, 7), choose.randint(2, 7)]) for _ in chunks)
    dtypes = DTYPES if zarr_format == 3 else [*DTYPES, ">i2", ">U2"]
    options = {"shape": shape, "chunks": chunks, "dtype": choose.choice(dtypes), "zarr_format": zarr_format, "compressors": None}
    if zarr_format == 3 and ndim and 0 not in shape and rectilinear:
        options["chunks"] = [edges(choose, extent) for extent in shape]
        options["shape"] = tuple(map(sum, options["chunks"]))
    elif zarr_format == 3 and choose.random() < 0.4 and ndim:
        options["shards"] = tuple(choose.randint(1, 3) * chunk for chunk in chunks)
    elif zarr_format == 2:
        options["order"] = choose.choice("CF")
    return options


# -------------------------------------------------------------------------------------------- selections


def an_index(choose: random.Random, extent: int) -> Any:
    """One index, mostly inside."""
    inside = choose.randint(-extent, extent - 1) if extent else 0
    index = inside if choose.random() < 0.9 else choose.choice([extent, -extent - 1, 2**40, -(2**40)])
    kind = choose.choice([int, int, int, np.int64, np.int8, np.uint64, np.asarray])
    return kind(index) if -128 <= index < 128 and (index >= 0 or kind is not np.uint64) else index


def an_index_array(choose: random.Random, extent: int) -> Any:
    """A list or an array of indices, mostly inside."""
    count = choose.choice([0, 1, 1, 2, 3, 5])
    indices = [choose.randint(-extent, extent - 1) if extent else 0 for _ in range(count if extent else min(count, 1))]
    if indices and choose.random() < 0.1:
        indices[choose.randrange(len(indices))] = choose.choice([extent, -extent - 1])
    if choose.random() < 0.3:
        indices = sorted(abs(index) for index in indices)
    kind = choose.choice(["list", "list", "i8", "i4", "u8", "u1", "f8", ">i4", "column", "tuple", "O"])
    if kind in ("list", "tuple"):
        return indices if kind == "list" else tuple(indices)
    if kind == "column":
        return np.array(indices, "i8").reshape(-1, 1)
    return np.array([abs(index) for index in indices] if kind.startswith("u") else indices, kind)


def a_mask(choose: random.Random, shape: tuple[int, ...]) -> Any:
    """A boolean array, mostly of this shape."""
    if choose.random() < 0.1:
        shape = choose.choice([(*shape, 1), shape[:-1], tuple(extent + 1 for extent in shape), tuple(reversed(shape))])
    share = choose.choice([0, 0.4, 0.4, 1])
    mask = np.array([choose.random() < share for _ in range(int(np.prod(shape)))], bool).reshape(shape)
    return mask.tolist() if choose.random() < 0.3 else mask


def an_item(choose: random.Random, extent: int) -> Any:
    """What selects along one dimension."""
    step = choose.choice([-1, 0, None, 2**70])
    odd = [
        None,
        True,
        np.False_,
        1.0,
        "a",
        slice(1.0, 2),
        slice(np.int64(0), np.uint8(2)),
        slice(None, None, step),
        ...,
        [],
        b"x",
    ]
    kind = choose.random()
    if kind < 0.35:
        return a_slice(choose, extent)
    if kind < 0.6:
        return an_index(choose, extent)
    if kind < 0.78:
        return an_index_array(choose, extent)
    return a_mask(choose, (extent,)) if kind < 0.9 else choose.choice(odd)


def a_block_item(choose: random.Random, blocks: int, rectilinear: bool) -> Any:
    """What selects stored chunks along one dimension."""
    if choose.random() < 0.1:
        return an_item(choose, blocks)
    ends = [choose.choice([None, choose.randint(-blocks - 1, blocks + 2)]) for _ in range(2)]
    if rectilinear and ends[0] is not None:
        ends[0] = max(ends[0], -blocks)  # zarr-python refuses such starts of regular grids only
    return choose.choice([slice(*ends), slice(*ends), an_index(choose, blocks), slice(*ends, choose.choice([1, 2, -1]))])


def a_selection(choose: random.Random, way: str, shape: tuple[int, ...], blocks: tuple[int, ...], rectilinear: bool) -> Any:
    """A selection for one of the ways to select; sometimes one that another way takes."""
    kind = way if choose.random() < 0.85 else choose.choice(BRACKETS)
    if "mask" in kind or (kind in ("brackets", "vindex") and choose.random() < 0.2):
        return a_mask(choose, shape)
    if "coordinate" in kind or (kind in ("brackets", "vindex") and choose.random() < 0.3):
        items = [choose.choice([an_index, an_index_array])(choose, extent) for extent in shape]
        if choose.random() < 0.5:  # of one length
            count = choose.choice([0, 1, 2, 3, 40])
            items = [np.array([choose.randrange(extent) for _ in range(count)], "i8") if extent else [] for extent in shape]
    elif "block" in kind:
        items = [a_block_item(choose, count, rectilinear) for count in blocks]
    elif "basic" in kind and choose.random() < 0.8:
        items = [choose.choice([an_index, a_slice, a_slice])(choose, extent) for extent in shape]
    else:
        items = [an_item(choose, extent) for extent in shape]
    if any(isinstance(item, list | np.ndarray) for item in items) and choose.random() < 0.1:
        items[choose.randrange(len(items))] = ...
    elif items and choose.random() < 0.2:
        items.pop(choose.randrange(len(items)))
    if choose.random() < 0.1:
        items.insert(choose.randint(0, len(items)), choose.choice([..., ..., None, 0, slice(None), "a", []]))
    return items[0] if len(items) == 1 and choose.random() < 0.5 else tuple(items)


# ------------------------------------------------------------------------------------------------ values


def a_shape(choose: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to this one, or nearly so."""
    kind = choose.random()
    if kind < 0.4:
        return shape
    if kind < 0.5:
        return ()
    if kind < 0.6:
        return (1,) * choose.randint(1, 2) + shape
    if kind < 0.75:
        return tuple(choose.choice([1, extent]) for extent in shape)
    if kind < 0.8:
        return shape[choose.randint(0, len(shape)) :]
    if kind < 0.85:
        return (*shape, 1)
    if kind < 0.9:
        return (int(np.prod(shape)),)
    return tuple(choose.choice([extent, extent + 1, 0, 2]) for extent in shape)


SCALARS: list[Any] = [
    0, 1, -1, 300, 2**40, 2**70, True, 1.5, float("nan"), 1 + 2j, "a", "é☃ longer", "7", b"bytes", b"\xff", None, (), (1, 2.5), {"a": 1},
    np.int16(7), np.float32(2.5), np.complex64(1 + 2j), np.bool_(True), np.str_("b"), np.bytes_(b"c"),
    np.datetime64("2020-01-01"), np.timedelta64(3, "s"),
    np.array((1, 2.5), STRUCTURES[0])[()], [(1, 2.5)], np.datetime64("NaT", "s"), np.void(b"abc"), slice(1), bytearray(b"ab"),
]  # fmt: skip


def a_value(choose: random.Random, rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """What is written to a selection of a shape: mostly elements of the array's own type."""
    if choose.random() < 0.16:
        return choose.choice(SCALARS)
    if choose.random() < 0.04:
        return np.full(shape, 1 + 2j).tolist()
    kind = choose.random()
    other = dtype if kind < 0.6 else np.dtype(choose.choice([*DTYPES[:11], "S1", "S9", "<U9", "<f8", "O", ">i2", *STRUCTURES]))
    if other.kind == "O":
        elements = np.array([WORDS[place] for place in rng.integers(0, 4, 1)], object)
        elements = np.resize(elements, a_shape(choose, shape))
    else:
        # Small numbers: what does not fit another type is another matter, on which processors differ.
        sizes = a_shape(choose, shape)
        elements = values(rng, other, sizes) if other == dtype or other.names else rng.integers(0, 99, sizes).astype(other)
    match choose.random():
        case chance if chance < 0.15:
            return elements.tolist()
        case chance if chance < 0.2:
            return np.asfortranarray(elements)
        case chance if chance < 0.25:
            return elements[()]
    return elements


# ---------------------------------------------------------------------------------------------- programs


@dataclass
class Step:
    """One call: the way of selecting, whether it writes, and with what."""

    way: str
    selection: Any
    writes: bool
    value: Any = None
    fields: Any = None
    out: tuple[tuple[int, ...], Any] | None = None

    def run(self, array: Any, place: Callable[[Any], Any] = lambda value: value) -> Any:
        """Does it. ``place`` puts values where they shall be."""
        value = place(self.value)
        if self.way.startswith("get"):
            options: dict[str, Any] = {} if self.fields is None else {"fields": self.fields}
            if self.writes:
                getattr(array, self.way.replace("get", "set"))(self.selection, value, **options)
                return None
            if self.out is None:
                return getattr(array, self.way)(self.selection, **options)
            memory = np.zeros(*self.out)
            getattr(array, self.way)(self.selection, out=NDBuffer.from_numpy_array(memory), **options)
            return memory
        target = array if self.way == "brackets" else getattr(array, self.way)
        if self.writes:
            target[self.selection] = value
            return None
        return target[self.selection]

    def __str__(self) -> str:
        more = f" = {self.value!r}" if self.writes else "" if self.out is None else f" out={self.out}"
        return f"{self.way}[{self.selection!r}]{'' if self.fields is None else f' fields={self.fields!r}'}{more}".replace(
            "\n", ""
        )


def a_step(choose: random.Random, rng: np.random.Generator, array: Any) -> Step:
    """A step for an array of zarr-python's."""
    way = choose.choice([*METHODS, *BRACKETS])
    step = Step(way, a_selection(choose, way, array.shape, grid(array), is_rectilinear(array)), choose.random() < 0.5)
    shape, dtype = array.shape, array.dtype
    got = outcome(lambda: Step(way, step.selection, False).run(array))
    if not isinstance(got, Refusal):
        shape = np.shape(got)
    if choose.random() < (0.4 if dtype.names else 0.03):
        known = dtype.names or ("a", "b")
        name = choose.choice(known)
        step.fields = choose.choice([name, name, [name], list(known), "missing", [], (name,)])
        if not way.startswith("get"):  # as one more item
            names = [step.fields] if isinstance(step.fields, str) else step.fields
            step.selection = (*names, *ensure_tuple(step.selection))
            step.fields = None
    if step.writes:
        if dtype.names and choose.random() < 0.3:
            dtype = dtype[choose.choice(dtype.names)]
        step.value = a_value(choose, rng, dtype, shape)
    elif way.startswith("get") and choose.random() < (0.4 if "coordinate" in way else 0.15):
        flat = (int(np.prod(shape)),)
        step.out = (choose.choice([shape, shape, shape, flat, (*shape, 1)]), dtype if choose.random() < 0.9 else "i2")
    return step


@dataclass
class Refusal:
    """What was raised."""

    error: Exception


def outcome(act: Callable[[], Any]) -> Any:
    """The result, or the refusal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return act()
        except Exception as error:  # noqa: BLE001, whatever a library refuses with
            return Refusal(error)


def stored(store: Any) -> np.ndarray[Any, Any]:
    """All elements in a store, as zarr-python reads them."""
    array = zarr.open_array(store, mode="r")
    elements = np.empty(array.shape, array.dtype)
    elements[...] = array[...]
    return elements


def after(step: Step, array: Any, store: Any, place: Callable[[Any], Any] = lambda value: value) -> Any:
    """What a step comes to: what was read, all elements in the store after a write, or the refusal."""
    done = outcome(lambda: step.run(array, place))
    return done if isinstance(done, Refusal) or not step.writes else outcome(lambda: stored(store))


def program(seed: int, count: int = 6) -> Iterator[tuple[Step, Any, Callable[[], Any]]]:
    """The steps of a random program, each with the array of zarr-python's on which it is about to run, and a function that
    copies the store, as it is before the step."""
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    array = zarr.create_array(zarr.storage.MemoryStore(), **an_array(choose, rectilinear=seed % 4 == 3))
    if choose.random() < 0.8:
        array[...] = values(rng, array.dtype, array.shape)
    for _ in range(count):
        array = zarr.open_array(array.store)
        content = dict(array.store._store_dict)
        yield a_step(choose, rng, array), array, lambda content=content: zarr.storage.MemoryStore(dict(content))


# ------------------------------------------------------------------------------------------------ judges


def same(one: Any, other: Any) -> bool:
    """Whether two outcomes are equal: both refused, or equal in shape, element type and bits. A scalar equals an array of no
    dimensions."""
    if isinstance(one, Refusal) or isinstance(other, Refusal):
        return isinstance(one, Refusal) and isinstance(other, Refusal)
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        # Scalars have no width and no byte order of their own.
        one, other = (np.asarray(each[()] if isinstance(each, np.ndarray) else each) for each in (one, other))
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(one.tolist() == other.tolist() if one.dtype.kind in "OT" else one.tobytes() == other.tobytes())


def positions(array: Any) -> Any:
    """An array of zarr-python's like this one, whose elements are their own places."""
    count = int(np.prod(array.shape))
    chunks, shards = (list(map(list, array.write_chunk_sizes)), None) if is_rectilinear(array) else (array.chunks, array.shards)
    places = zarr.create_array({}, shape=array.shape, chunks=chunks, shards=shards, dtype="i8", compressors=None)
    if count:
        places[...] = np.arange(count).reshape(array.shape)
    return places


def parted(step: Step) -> tuple[Any, tuple[Any, ...]]:
    """The fields that a step names, in either way, and the items of its selection."""
    items = ensure_tuple(step.selection)
    if step.way.startswith("get"):
        return step.fields, items
    names = [item for item in items if isinstance(item, str)]
    return names[0] if len(names) == 1 else names, tuple(item for item in items if not isinstance(item, str))


def is_empty_mask(item: Any) -> bool:
    """Whether this is a boolean array of one dimension without elements, where zarr-python looks for the last of no chunks."""
    return isinstance(item, np.ndarray) and item.dtype == bool and item.shape == (0,)


def is_array(item: Any) -> bool:
    """Whether this is an array with dimensions, which zarr-python compares with an ellipsis, element by element."""
    return isinstance(item, np.ndarray | list)


def ends_below(item: Any, blocks: int) -> bool:
    """Whether a slice ends before the first block, from where zarr-python counts a second time from the end."""
    return isinstance(item, slice) and isinstance(item.stop, int) and item.stop < -blocks


def grid(array: Any) -> tuple[int, ...]:
    """How many stored chunks there are along each dimension."""
    return tuple(map(len, array.write_chunk_sizes))


def is_rectilinear(array: Any) -> bool:
    """Whether chunks have lengths of their own."""
    return array.metadata.zarr_format == 3 and array.metadata.chunk_grid.to_dict()["name"] == "rectilinear"


def expanded(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """The items without their ellipsis, of which there is one at most."""
    for place, item in enumerate(items):
        if item is Ellipsis:
            return (*items[:place], *[slice(None)] * (ndim - len(items) + 1), *items[place + 1 :])
    return items


def plain(step: Step, array: Any) -> Step:
    """The same selection of whole elements, said in a way that zarr-python understands."""
    _, items = parted(step)
    understood = items
    if sum(item is Ellipsis for item in items) == 1:
        full = expanded(items, array.ndim)
        if any(map(is_array, items)) or "block" in step.way:
            understood = full
    if "block" in step.way and len(understood) <= array.ndim:
        ends = itertools.zip_longest(understood, grid(array)[: len(understood)])
        understood = tuple(slice(item.start, item.start or 0) if ends_below(item, count) else item for item, count in ends)
    way = step.way
    if way in ("brackets", "oindex", "get_orthogonal_selection") and any(map(is_empty_mask, understood)):
        # Brackets around index arrays alone would mean points.
        way = "oindex" if len(understood) > 1 else way
        understood = tuple(np.empty(0, int) if is_empty_mask(item) else item for item in understood)
    is_as_said = len(understood) == len(ensure_tuple(step.selection)) and all(map(operator.is_, understood, items))
    return Step(way, step.selection if is_as_said else understood[0] if len(understood) == 1 else understood, False)


def means_points(step: Step, ndim: int) -> bool:
    """Whether it selects points by their coordinates, which take one element each in any number of dimensions of 1."""
    _, items = parted(step)
    if any(np.asarray(item).dtype == bool for item in items if is_array(item)):
        return False
    if step.way == "brackets":
        return is_pure_fancy_indexing(items, ndim)
    return step.way in ("vindex", "get_coordinate_selection")


def numpys(step: Step, array: Any, before: np.ndarray[Any, Any]) -> Any:
    """What NumPy makes of a step: the elements read, or all elements after the write. The selection is zarr-python's, of the
    places of elements; what is written to them, and as what they are read, is NumPy's."""
    places = positions(array)
    fields, _ = parted(step)
    chosen = outcome(lambda: plain(step, array).run(places))
    if isinstance(chosen, Refusal):
        return chosen

    def act() -> Any:
        whole = np.array(before, order="C").reshape(-1)
        elements = np.empty(np.shape(chosen), before.dtype)
        elements[...] = whole[chosen]
        part = elements
        if fields:
            name = fields[0] if step.writes and len(fields) == 1 else fields
            part = elements[name if isinstance(name, str) else list(name)]
        if step.writes:
            value = step.value if hasattr(step.value, "dtype") else np.asarray(step.value, part.dtype)
            shapes = part.squeeze().shape, part.reshape(-1).squeeze().shape
            if np.ndim(value) and means_points(step, array.ndim) and np.squeeze(value).shape in shapes:
                value = value.reshape(part.shape)
            part[...] = value
            whole[chosen] = elements
            return whole.reshape(before.shape)
        if fields and not isinstance(fields, str):
            part = part.astype([(name, before.dtype[name]) for name in fields])
        if step.out is None:
            return part
        memory = np.zeros(*step.out)
        memory[...] = part.reshape(-1) if means_points(step, array.ndim) and memory.shape == (part.size,) else part
        return memory

    return outcome(act)
