"""What is shown: representations as text and HTML, and progress."""

from __future__ import annotations

import asyncio
import io
import shutil
import sys
import threading
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuzarr


class Balance(HTMLParser):
    """Fails on a closing tag that nothing opened, and keeps the texts."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def texts(markup: str) -> list[str]:
    parser = Balance()
    parser.feed(markup)
    assert parser.opened == []
    return parser.texts


def test_notebooks_show_members_of_groups_that_are_near(tmp_path: Path) -> None:
    group = cuzarr.create_group(tmp_path / "group")
    group.create_array("<t2m>", shape=(2, 3), dtype="f4")
    shown = group._repr_html_()
    assert "<details><summary>Members</summary>" in shown and "<t2m>" not in shown
    assert "&lt;t2m&gt;" in shown and " (2, 3) float32" in "".join(texts(shown))
    for number in range(150):
        group.create_group(f"g{number}")
    assert group._repr_html_().count("<b>") == 101 and "Only 100 nodes are shown" in group._repr_html_()
    # Listing an object store costs requests, so members are shown only where they are known.
    away = cuzarr.open_group(cuzarr.storage.FsspecStore.from_url(f"file://{tmp_path / 'group'}"), mode="r")
    assert "Members" not in away._repr_html_()
    cuzarr.consolidate_metadata(tmp_path / "group")
    away = cuzarr.open_group(cuzarr.storage.FsspecStore.from_url(f"file://{tmp_path / 'group'}"), mode="r")
    assert "&lt;t2m&gt;" in away._repr_html_()
    gone = cuzarr.open_group(tmp_path / "group", use_consolidated=False)
    shutil.rmtree(tmp_path / "group")
    texts(gone._repr_html_())
    broken = cuzarr.create_group({})
    broken.store.set("x/zarr.json", b"{")
    assert "x cannot be used: not JSON at byte 1" in "".join(texts(broken._repr_html_()))
    with cuzarr.config.set(metadata_max_bytes=0):
        assert "cannot be listed: " in "".join(texts(broken._repr_html_()))


def test_notebooks_show_the_steps_of_lazy_arrays_and_plans() -> None:
    array = cuzarr.create_array({}, shape=(10, 20), chunks=(5, 20), dtype="f4")
    view = array.lazy[2:, ::-1]
    shown = "".join(texts(view._repr_html_()))
    for part in ("LazyArray", "(8, 20)", "640", "Steps", "chunks               2 "):
        assert part in shown, part
    shown = "".join(texts((array - array.mean(axis=0))._repr_html_()))
    assert "1. mean(array, axis=[0])" in shown and "2. (array - mean(array, axis=[0]))" in shown
    with cuzarr.config.set(memory_limit=100):
        assert "hint: raise memory_limit" in "".join(texts((array + 1)._repr_html_()))


def test_notebooks_send_no_requests_for_plans() -> None:
    asked: list[str] = []

    class Store:
        def __init__(self) -> None:
            self.values: dict[str, bytes] = {}

        def get(self, key: str) -> bytes | None:
            asked.append(key)
            return self.values.get(key)

        def set(self, key: str, value: bytes) -> None:
            self.values[key] = value

        def delete(self, key: str) -> None:
            self.values.pop(key, None)

        def list(self) -> list[str]:
            asked.append("list")
            return list(self.values)

    array = cuzarr.create_array(Store(), shape=(10, 20), chunks=(5, 20), shards=(10, 20), dtype="f4")
    asked.clear()
    for shown in (array, array.lazy[2:], (array.lazy[2:] - 1).mean(axis=0), array + 1):
        texts(shown._repr_html_())
    assert asked == [] and "call explain()" in (array + 1)._repr_html_()


def test_settings_that_were_changed_are_shown_first() -> None:
    with cuzarr.config.set({"json_indent": 3}):
        assert repr(cuzarr.config).startswith("json_indent ")


def drawing(array: cuzarr.Array) -> ElementTree.Element:
    markup = array._repr_html_()
    return ElementTree.fromstring(markup[markup.index("<svg") : markup.index("</svg>") + 6])


def lines(svg: ElementTree.Element, width: str) -> int:
    return sum(element.get("stroke-width") == width for element in svg.iter() if element.tag.endswith("line"))


def test_arrays_show_what_they_are_and_where_each_codec_runs(device: str) -> None:
    array = cuzarr.create_array(
        {}, shape=(10, 20), chunks=(5, 4), shards=(10, 8), dtype="f4", compressors={"name": "numcodecs.bz2"}
    )
    shown = texts(array._repr_html_())
    for part in ("float32", "(10, 20)", "(5, 4)", "(10, 8)", "800", array.device, "Codec numcodecs.bz2"):
        assert part in shown, part
    place = dict(array.placements())["numcodecs.bz2"]
    assert place in shown and (place == "native" if device == "cpu" else place.startswith("via host: "))


@pytest.mark.parametrize("chunks", [(64,), (4096,), (1 << 20,)])
def test_placements_are_those_that_explain_names(chunks: tuple[int, ...]) -> None:
    array = cuzarr.create_array({}, shape=(1 << 24,), chunks=chunks, dtype="f4").with_device("cuda:0")
    explained = [(one["codec"], one["placement"]) for one in array.explain().to_dict()["codecs"]]
    assert [(name, place.partition(":")[0]) for name, place in array.placements()] == explained
    if chunks == (64,):  # of one chunk alone the host takes care
        assert explained[-1] == ("zstd", "native")
        assert array.explain(slice(0, 64)).to_dict()["codecs"][-1]["placement"] == "via host"


def test_the_grid_has_thin_lines_for_chunks_and_thick_ones_for_shards() -> None:
    svg = drawing(cuzarr.create_array({}, shape=(10, 21), chunks=(5, 4), shards=(10, 8), dtype="u1"))
    assert (lines(svg, "0.5"), lines(svg, "1.5")) == (3 + 7, 2 + 4)
    assert "21" in {element.text for element in svg.iter()}
    deep = drawing(cuzarr.zeros((3, 7, 10, 21), chunks=(1, 1, 5, 4), store={}))
    assert (lines(deep, "0.5"), lines(deep, "1.5")) == (10, 0)
    assert "3 × 7 such planes" in {element.text for element in deep.iter()}
    assert lines(drawing(cuzarr.zeros((9,), chunks=(3,), store={})), "0.5") == 4 + 2


@pytest.mark.parametrize("shape", [(), (0,), (0, 5), (10**9, 3), (1, 10**12)])
def test_every_shape_is_drawn_small(shape: tuple[int, ...]) -> None:
    array = cuzarr.create_array({}, shape=shape, chunks=tuple(min(max(extent, 1), 1000) for extent in shape), dtype="u1")
    assert len(array._repr_html_()) < 20_000
    texts(array._repr_html_())


def test_markup_of_names_is_escaped() -> None:
    group = cuzarr.open_group({}, mode="w")
    array = group.create_array("<b>", shape=(1,), dtype="u1")
    assert "<b>" not in array._repr_html_() and "&lt;b&gt;" in array._repr_html_()
    assert "Group" in texts(group._repr_html_())


def test_notebooks_show_names_of_dimensions_attributes_and_the_place(tmp_path: Path) -> None:
    group = cuzarr.create_group(tmp_path / "group", attributes={"title": "<i>a year</i>"})
    array = group.create_array(
        "t2m", shape=(2, 3, 4), dtype="u1", dimension_names=("time", None, "lon"), attributes={"units": "K"}
    )
    shown = texts(array._repr_html_())
    for part in ("time, -, lon", "Attribute units", "'K'", str(array.store_path)):
        assert part in shown, part
    assert "Attribute units" not in texts(cuzarr.zeros((1,), store={})._repr_html_())
    shown = texts(group._repr_html_())
    for part in ("Attribute title", "'<i>a year</i>'", str(group.store_path), "Consolidated"):
        assert part in shown, part
    assert "<i>" not in group._repr_html_()
    plan = (array + 1) / array.max() - cuzarr.zeros((4,), store=tmp_path / "other<")
    shown = "\n".join(texts(plan._repr_html_()))
    for part in ("Expression", "max(", "time, -, lon", "float64", "(2, 3, 4)", "192", str(array.store_path), "other<"):
        assert part in shown, part
    assert shown.count(str(array.store_path)) == 1 and "other<" not in plan._repr_html_()
    for number in range(14):
        plan = plan + cuzarr.ones((4,), store={}) * number
    assert "and 6 more" in texts(plan._repr_html_()) and len(plan._repr_html_()) < 20_000
    many = cuzarr.create_group({}, attributes={str(number): "x" * 10_000 for number in range(300)})
    assert "and 280 more" in texts(many._repr_html_()) and len(many._repr_html_()) < 20_000


def test_complete_info_says_what_is_stored() -> None:
    zarr = pytest.importorskip("zarr", minversion="3.4")
    store: dict[str, Any] = {}
    array = cuzarr.create_array(store, data=np.zeros((8, 8), "f8") + 1, chunks=(4, 4))
    got = dict(array.info_complete().lines)
    assert got["Chunks Initialized"] == "4"
    assert got["No. bytes stored"] == str(array.nbytes_stored()) and float(got["Storage ratio"]) == round(
        512 / array.nbytes_stored(), 1
    )
    theirs = str(zarr.open_array(zarr.storage.MemoryStore({}), shape=(1,), mode="w").info)
    foreign = cuzarr.open_array(zarr.storage.MemoryStore(), shape=(1,), mode="w")
    store_types = [
        line.split(":")[1].strip() for line in (theirs, str(foreign.info)) for line in line.splitlines() if "Store type" in line
    ]
    assert store_types == ["MemoryStore", "MemoryStore"]


# ------------------------------------------------------------------------------------------------------------- progress


@pytest.fixture
def array() -> cuzarr.Array:
    """Twelve stored objects, one of them missing."""
    array = cuzarr.create_array({}, shape=(6, 8), chunks=(2, 2), dtype="i4")
    array[:] = np.arange(48).reshape(6, 8) + 1
    array[4:, 6:] = 0
    return array


@pytest.mark.parametrize(("selection", "count"), [(..., 12), (0, 4), ((slice(0, 4), 1), 2), (slice(3, 3), 0)])
def test_a_function_hears_of_all_objects_in_the_end(array: cuzarr.Array, selection: Any, count: int) -> None:
    heard: list[tuple[int, int | None]] = []
    result = array.getitem(selection, progress=lambda done, total: heard.append((done, total)))
    np.testing.assert_array_equal(result, array[selection])
    assert heard[-1] == (count, count) and all(done <= count and total == count for done, total in heard)
    heard.clear()
    array.setitem(selection, result * 2, progress=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (count, count)
    np.testing.assert_array_equal(array[selection], result * 2)


def test_a_function_hears_while_the_store_is_slow() -> None:
    heard: list[int] = []
    enough = threading.Event()

    class Slow(dict[str, Any]):
        reads = 0

        def get(self, key: str, default: Any = None) -> Any:
            if not key.endswith("zarr.json"):
                self.reads += 1
                if self.reads == 4:  # three objects have come: wait until somebody was told
                    assert enough.wait(30)
            return super().get(key, default)

    def listen(done: int, total: int | None) -> None:
        heard.append(done)
        if done == 3:
            enough.set()

    store = Slow()
    array = cuzarr.create_array(store, data=np.arange(1, 9), chunks=(1,))
    store.reads = 0
    array.getitem(..., progress=listen)
    assert 3 in heard and heard == sorted(heard) and heard[-1] == 8


def test_selections_of_unknown_size_are_counted_without_a_total(array: cuzarr.Array) -> None:
    heard: list[tuple[int, int | None]] = []
    array.getitem(([0, 5], [0, 1]), progress=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (2, None)


def test_meters_like_tqdms_are_updated_by_what_is_new(array: cuzarr.Array) -> None:
    class Meter:
        total = None
        count = 0

        def update(self, n: int) -> None:
            self.count += n

    meter = Meter()
    array.getitem(..., progress=meter)
    assert (meter.count, meter.total) == (12, 12)


class Tqdm:
    """A meter that refuses to say whether it is true, as tqdm's do that know no total."""

    total = None
    n = 0

    def __bool__(self) -> bool:
        raise TypeError("bool() undefined when iterable == total == None")

    def update(self, n: int) -> None:
        self.n += n


class Rich:
    """Several tasks, as rich's ``Progress`` has them."""

    def __init__(self) -> None:
        self.tasks: dict[int, dict[str, Any]] = {}

    def add_task(self, description: str, total: float | None = 100.0) -> int:
        self.tasks[len(self.tasks)] = {"description": description, "total": total}
        return len(self.tasks) - 1

    def update(self, task_id: int, **news: Any) -> None:
        self.tasks[task_id] |= news


LONG: dict[str, Any] = {
    "Array.getitem": lambda array, progress: array.getitem(..., progress=progress),
    "Array.setitem": lambda array, progress: array.setitem(..., 1, progress=progress),
    "AsyncArray.getitem": lambda array, progress: asyncio.run(cuzarr.AsyncArray.of(array).getitem(..., progress=progress)),
    "Array.read": lambda array, progress: array.read(..., dtype="f8", progress=progress),
    "Array.read to several": lambda array, progress: array.read(..., device=["cpu", "cpu"], progress=progress),
    "Array.read_many": lambda array, progress: array.read_many([0, 3], progress=progress),
    "LazyArray.result": lambda array, progress: array.lazy[::-1].result(progress=progress),
    "Expression.store into a view": lambda array, progress: (array * 2).store(
        cuzarr.zeros((9, 8), store={}).lazy[3:], progress=progress
    ),
    "copy": lambda array, progress: cuzarr.copy(array, {}, progress=progress),
    "rechunk": lambda array, progress: cuzarr.rechunk(array, {}, chunks=(3, 4), progress=progress),
    "pyramid": lambda array, progress: cuzarr.pyramid(array, {}, levels=2, axes="yx", progress=progress),
    "map_blocks": lambda array, progress: cuzarr.map_blocks(lambda block: block, array, progress=progress),
    "reduce": lambda array, progress: cuzarr.reduce(np.sum, np.add, array, progress=progress),
    "reduce along an axis": lambda array, progress: cuzarr.reduce(lambda b: b.sum(0), np.add, array, axis=0, progress=progress),
    "Expression.compute": lambda array, progress: (array * 2).compute(progress=progress),
    "Expression.store": lambda array, progress: (array * 2).store({}, progress=progress),
}


@pytest.mark.parametrize("name", LONG)
def test_every_long_call_tells_meters_of_its_progress(array: cuzarr.Array, name: str) -> None:
    meter, rich = Tqdm(), Rich()
    LONG[name](array, meter)
    LONG[name](array, rich)
    (task,) = rich.tasks.values()
    assert meter.n > 0 and task["completed"] > 0 and task["description"]
    assert task["total"] is None or task["completed"] == task["total"]


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("progress", [None, False, np.False_])
def test_long_calls_are_silent_unless_asked(
    array: cuzarr.Array, name: str, progress: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    LONG[name](array, progress)
    assert capsys.readouterr() == ("", "")


def test_a_line_is_shown_on_terminals_and_in_notebooks_only(array: cuzarr.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    class Cell(io.StringIO):
        """Like standard error in Jupyter: no terminal, but a line can be written over."""

    Cell.__module__ = "ipykernel.iostream"
    for stream, shown in ((Terminal(), True), (Cell(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        array.getitem(..., progress=True)
        assert (stream.getvalue().endswith("100% |##############################| 12/12 objects\n")) == shown


def test_a_listener_that_fails_ends_the_call(array: cuzarr.Array) -> None:
    def fail(done: int, total: int | None) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        array.getitem(..., progress=fail)


def test_progress_does_not_hide_an_outer_cancellation(array: cuzarr.Array) -> None:
    watch = cuzarr._core.Watch()
    watch.cancel()
    with watch, pytest.raises(cuzarr.errors.CancelledError):
        array.getitem(..., progress=lambda done, total: None)
    assert array.getitem(...).shape == (6, 8)


# ------------------------------------------------------------------------------------------- names that steer a terminal

_HOSTILE = ["\x1b]0;owned\x07", "a\rb\nc", "\u202egpj.\x9b1m", "zero\u200bwidth\U000e0041"]


def _steering(text: str) -> list[str]:
    return [one for one in text if one != "\n" and not one.isprintable()]


def test_names_and_attributes_of_a_store_do_not_steer_what_shows_them() -> None:
    group = cuzarr.create_group({}, attributes={name: name for name in _HOSTILE})
    for name in _HOSTILE:
        inside = group.create_group(name)
        inside.create_array(name, shape=(4,), dtype="u1", dimension_names=(name,), attributes={name: name})
    shown: list[str] = [repr(group), repr(group.store_path), repr(group.attrs), repr(group.info), repr(group.info_complete())]
    shown += [group._repr_html_(), repr(group.tree()), *group.tree()._repr_mimebundle_().values()]
    for name in _HOSTILE:
        inside, array = group[name], group[f"{name}/{name}"]
        shown += [repr(inside), inside._repr_html_(), repr(array), array._repr_html_(), repr(array.info), repr(array.attrs)]
        shown += [repr(array.async_array), repr(array + 1), repr(array.explain())]
        shown += [repr(array.store_path), repr(cuzarr.copy(array, {}, dry_run=True))]
    for text in shown:
        assert not _steering(text), repr(text)
    assert "a\\rb\\nc" in repr(group.tree()) and len(repr(group.tree()).strip().splitlines()) == 1 + 2 * len(_HOSTILE)
    assert group.attrs["a\rb\nc"] == "a\rb\nc"  # what programs ask for stays as it is


@pytest.mark.parametrize("name", _HOSTILE)
def test_errors_and_warnings_do_not_steer_a_terminal(name: str) -> None:
    group = cuzarr.create_group({})
    group.create_array(name, shape=(4,), dtype="u1", dimension_names=(name,))
    store = group.store
    calls: list[Any] = [
        lambda: group[f"{name}x"],
        lambda: cuzarr.open_array(store, path=f"{name}x", mode="r"),
        lambda: cuzarr.open(store, path=name, mode="w-"),
        lambda: cuzarr.open_array(store, path=f"{name}/{name}"),
        lambda: group.create_array(name, shape=(4,), dtype="u1"),
        lambda: cuzarr.create_array({}, shape=(4,), dtype=name),
        lambda: cuzarr.create_array({}, shape=(4,), dtype="u1", compressors={"name": name}),
        lambda: cuzarr.config.set({name: 1}),
        lambda: cuzarr.config.set({"array.order": name}),
        lambda: group[name][9],
        lambda: group.require_array(name, shape=(5,), dtype="u1"),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(Exception) as caught:
            call()
        text = str(caught.value)
        assert not [one for one in text.replace("\nhint: ", "") if not one.isprintable()], (number, text)
    with pytest.warns(cuzarr.errors.CuzarrUserWarning) as caught_warnings:
        store.set(f"{name}/.zarray", cuzarr.create_array({}, shape=(1,), dtype="u1", zarr_format=2).store.get(".zarray"))
        cuzarr.open_array(store, path=name, mode="r")
    assert not any(_steering(str(one.message)) for one in caught_warnings)
