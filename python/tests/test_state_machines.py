"""zarr-python's state machines of hypothesis, on our stores, on our pipeline, and on our own arrays and groups."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

zarr = pytest.importorskip("zarr", minversion="3.4")

from conftest import gpu_device  # noqa: E402
from hypothesis import HealthCheck, Phase, assume, settings, strategies as st  # noqa: E402
from hypothesis.extra import numpy as npst  # noqa: E402
from hypothesis.stateful import precondition, rule, run_state_machine_as_test  # noqa: E402
from zarr.buffer import cpu  # noqa: E402
from zarr.testing import stateful, strategies  # noqa: E402

import cuzarr.zarr  # noqa: E402
from cuzarr.storage import MemoryStore as OwnMemoryStore, SplitStore  # noqa: E402
from cuzarr.storage.zarr_form import GDSStore, GpuMemoryStore, LocalStore, MemoryStore, NativeStore  # noqa: E402

DEVICE = gpu_device()[0] or "cpu"
STORES: dict[str, Callable[[Path], Any]] = {
    "LocalStore": LocalStore,
    "GDSStore": GDSStore,
    "MemoryStore": lambda folder: MemoryStore(),
    "a mapping": lambda folder: MemoryStore({}),
    "GpuMemoryStore": lambda folder: GpuMemoryStore(device=DEVICE),
    "SplitStore": lambda folder: SplitStore(OwnMemoryStore(), OwnMemoryStore()).zarr_store,
}
SETTINGS = settings(
    max_examples=6,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    phases=[Phase.generate, Phase.explicit],
)


class By:
    """The functions of zarr-python that a machine calls. Those for the store under test are a library's, or called in a context."""

    def __init__(self, store: Any, library: Any, context: Callable[[], Any] | None = None) -> None:
        self.store, self.library, self.context, self.calls = store, library, context, 0

    def __getattr__(self, name: str) -> Any:
        plain, chosen = getattr(zarr, name), getattr(self.library, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if (args[0] if args else kwargs.get("store")) is not self.store:
                return plain(*args, **kwargs)
            self.calls += 1
            if self.context is None:
                return chosen(*args, **kwargs)
            with self.context():
                return chosen(*args, **kwargs)

        return call


class FileStoreStateMachine(stateful.ZarrStoreStateMachine):
    """A machine that sets no key which is a folder of another one."""

    @rule(key=strategies.keys(), data=st.binary(max_size=stateful.MAX_BINARY_SIZE))
    def set(self, key: str, data: bytes) -> None:
        assume(not any(f"{one}/".startswith(f"{other}/") for one, other in self._pairs(key)))
        value = cpu.Buffer.from_bytes(data)
        self.store.set(key, value)
        self.model[key] = value

    def _pairs(self, key: str) -> list[tuple[str, str]]:
        return [pair for other in self.model if other != key for pair in ((key, other), (other, key))]


class HierarchyStateMachine(stateful.ZarrHierarchyStateMachine):
    """A machine that cuts no chunk off, and names no index twice: there zarr-python and we keep other elements."""

    @precondition(lambda self: bool(self.all_arrays))
    @rule(data=st.data())
    def resize_array(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.all_arrays)))
        arrays = [stateful.zarr.open_array(path=path, store=store) for store in (self.model, self.store)]
        ends = [{0, extent, *itertools.accumulate(sizes)} for extent, sizes in zip(arrays[0].shape, arrays[0].write_chunk_sizes)]
        shape = tuple(data.draw(st.sampled_from(sorted(some | {max(some) + 3 * bool(max(some))}))) for some in ends)
        for array in arrays:
            array.resize(shape)

    @precondition(lambda self: bool(self.all_arrays))
    @rule(data=st.data())
    def overwrite_array_orthogonal_indexing(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.all_arrays)))
        arrays = [stateful.zarr.open_array(path=path, store=store) for store in (self.model, self.store)]
        drawn, _ = data.draw(strategies.orthogonal_indices(shape=arrays[0].shape))
        place = tuple(
            np.unique(one % extent) if isinstance(one, np.ndarray) else one
            for one, extent in zip(drawn, arrays[0].shape, strict=True)
        )
        value = data.draw(npst.arrays(shape=np.shape(arrays[0].oindex[place]), dtype=arrays[0].dtype))
        for array in arrays:
            array.oindex[place] = value


@pytest.fixture
def plain_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays in which both libraries store the same chunks, with attributes that both take.

    zarr-python stores no chunk of complex numbers that are -0 where the fill value is 0; ours keep their signs. We refuse text that
    is half of a surrogate pair.
    """
    text = st.text(st.characters(codec="utf-8"), max_size=5)
    real = strategies.dtypes().filter(lambda dtype: dtype.kind != "c")
    limits = {
        "attrs": st.none() | st.dictionaries(text.filter(bool), text | st.booleans() | st.lists(text)),
        "arrays": real.flatmap(lambda dtype: strategies.numpy_arrays(dtype=dtype)),
    }
    monkeypatch.setattr(stateful, "zarr_arrays", functools.partial(strategies.arrays, **limits))


@pytest.fixture(autouse=True)
def directories(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines know that a store of files lists folders without files, and that its names may be the same in upper case."""
    monkeypatch.setattr(stateful, "LocalStore", (zarr.storage.LocalStore, LocalStore))


@pytest.fixture(autouse=True)
def rectilinear() -> Iterator[None]:
    with cuzarr.config.set({"array.rectilinear_chunks": True}), zarr.config.set({"array.rectilinear_chunks": True}):
        yield


@pytest.mark.parametrize("name", STORES)
def test_stores_keep_what_a_dictionary_keeps(name: str, tmp_path: Path) -> None:
    machine = FileStoreStateMachine if name in ("LocalStore", "GDSStore") else stateful.ZarrStoreStateMachine
    run_state_machine_as_test(lambda: machine(STORES[name](tmp_path)), settings=SETTINGS)


@pytest.mark.parametrize("name", STORES)
def test_hierarchies_of_zarr_python_live_in_the_stores(name: str, tmp_path: Path) -> None:
    run_state_machine_as_test(lambda: stateful.ZarrHierarchyStateMachine(STORES[name](tmp_path)), settings=SETTINGS)


def test_zarr_python_with_our_pipeline_does_what_it_does_with_its_own(
    monkeypatch: pytest.MonkeyPatch, plain_arrays: None
) -> None:
    """The arrays of the store under test have our pipeline, repaired or not; the model's arrays have zarr-python's."""
    for store, context in [
        (zarr.storage.MemoryStore(), cuzarr.zarr.enable),
        (MemoryStore(), lambda: zarr.config.set({"codec_pipeline.path": "cuzarr.zarr.CodecPipeline"})),
    ]:
        by = By(store, zarr, context)
        monkeypatch.setattr(stateful, "zarr", by)
        run_state_machine_as_test(lambda store=store: HierarchyStateMachine(store), settings=SETTINGS)
        assert by.calls


@pytest.mark.parametrize("name", ["MemoryStore", "LocalStore", "GpuMemoryStore"])
def test_our_groups_and_arrays_do_what_those_of_zarr_python_do(
    name: str, monkeypatch: pytest.MonkeyPatch, plain_arrays: None, tmp_path: Path
) -> None:
    """The machine's calls for the store under test are ours, so that it compares our hierarchy with zarr-python's, key by key."""
    store = STORES[name](tmp_path)
    assert isinstance(store, NativeStore)
    by = By(store, cuzarr)
    monkeypatch.setattr(stateful, "zarr", by)
    run_state_machine_as_test(lambda: HierarchyStateMachine(store), settings=SETTINGS)
    assert by.calls
