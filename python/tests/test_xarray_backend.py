"""xarray's own tests of a Zarr engine, reading by ``engine="cuzarr"``, and writing by ``dataset.cuzarr.to_zarr``."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import pytest

xarray = pytest.importorskip("xarray")
pytest.importorskip("zarr", minversion="3.4")
theirs = pytest.importorskip("xarray.tests.test_backends")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def default_zarr_format() -> Iterator[None]:
    """Format 3; both formats are compared in ``test_neighbours``."""
    import zarr

    with zarr.config.set(default_zarr_format=3):
        yield


@pytest.fixture(params=[True, False])
def use_dask(request: pytest.FixtureRequest) -> bool:
    """Of xarray's own ``conftest.py``."""
    if request.param:
        pytest.importorskip("dask")
    return bool(request.param)


@pytest.fixture(params=["s", "ms", "us", "ns"])
def time_unit(request: pytest.FixtureRequest) -> str:
    """Of xarray's own ``conftest.py``."""
    return str(request.param)


class TestEngine(theirs.TestZarrDirectoryStore):  # type: ignore[misc,name-defined]
    @contextlib.contextmanager
    def open(self, path: Any, **kwargs: Any) -> Iterator[Any]:
        with xarray.open_dataset(path, **{**kwargs, "engine": "cuzarr"}) as dataset:
            yield self.opened(dataset)

    def opened(self, dataset: Any) -> Any:
        """What the tests compare."""
        return dataset

    def test_hidden_zarr_keys(self) -> None:
        pytest.skip("xarray runs it with format 2 only: format 3 has no attribute for names of dimensions")


# They look at what was not read yet; the others compare elements.
OF_LAZINESS = {
    "test_auto_chunk", "test_chunked_datetime64_or_timedelta64", "test_dataset_caching", "test_dataset_compute", "test_load",
    "test_load_async", "test_manual_chunk", "test_ondisk_after_print", "test_orthogonal_indexing", "test_vectorized_indexing",
    "test_vectorized_indexing_negative_step", "test_warning_on_bad_chunks",
}  # fmt: skip


class TestEngineOnGpu(TestEngine):
    """The same, read into a GPU's memory and copied from there."""

    @pytest.fixture(autouse=True)
    def on_gpu(self, request: pytest.FixtureRequest, gpu: str) -> None:
        pytest.importorskip("cupy")
        if request.node.originalname in OF_LAZINESS:
            pytest.skip("looks at what was not read yet")

    def opened(self, dataset: Any) -> Any:
        return dataset.as_numpy()


# They look for xarray's or zarr-python's words in errors, or are of format 2 only; test_xarray_writes has such cases.
OF_WORDS = {
    "test_append_with_mode_not_a_raises", "test_attributes", "test_hidden_zarr_keys", "test_invalid_dataarray_names_raise",
    "test_write_region_errors",
}  # fmt: skip


class TestWriter(theirs.TestZarrDirectoryStore):  # type: ignore[misc,name-defined]
    """What cuzarr has written is read by zarr-python."""

    @pytest.fixture(autouse=True)
    def by_cuzarr(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        if request.node.originalname in OF_WORDS:
            pytest.skip("looks for words of xarray's")
        importlib.import_module("cuzarr.xarray")  # which registers the accessor
        monkeypatch.setattr(xarray.Dataset, "to_zarr", lambda dataset, *args, **options: dataset.cuzarr.to_zarr(*args, **options))
