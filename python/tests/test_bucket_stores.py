"""Stores in a bucket as zarr-python's: its own tests of stores, against moto's server."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

zarr = pytest.importorskip("zarr")
moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")
boto3 = pytest.importorskip("boto3")

from test_zarr_stores import OurStoreTests  # noqa: E402
from werkzeug.serving import WSGIRequestHandler  # noqa: E402

import cuzarr  # noqa: E402
from cuzarr.storage import UrlStore  # noqa: E402
from cuzarr.storage.zarr_form import NativeStore  # noqa: E402

FOLDERS = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def bucket() -> Iterator[Any]:
    """A client of a bucket, whose credentials are in the environment, so that stores can be pickled."""
    served = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    served.start()
    host, port = served.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "k")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        yield client
    served.stop()


class TestBucketStore(OurStoreTests):
    store_cls = NativeStore

    @pytest.fixture(autouse=True)
    def client(self, bucket: Any) -> None:
        self._client = bucket

    def _key(self, store: Any, key: str) -> str:
        return f"{store.cuzarr_store.url.removeprefix('s3://bucket/')}/{key}"

    # By the client, not by the store that is tested.
    async def set(self, store: Any, key: str, value: Any) -> None:
        self._client.put_object(Bucket="bucket", Key=self._key(store, key), Body=value.to_bytes())

    async def get(self, store: Any, key: str) -> Any:
        found = self._client.get_object(Bucket="bucket", Key=self._key(store, key))
        return self.buffer_cls.from_bytes(found["Body"].read())

    @pytest.fixture
    def store_kwargs(self) -> dict[str, Any]:
        return {"store": UrlStore(f"s3://bucket/folder-{next(FOLDERS)}")}


@pytest.mark.parametrize("shards", [None, (8, 20)])
def test_arrays_of_zarr_python_live_in_a_bucket(shards: Any) -> None:
    store = UrlStore(f"s3://bucket/folder-{next(FOLDERS)}")
    value = np.arange(600, dtype="int16").reshape(20, 30)
    array = zarr.create_array(store.zarr_store, name="a", shape=(20, 30), chunks=(4, 10), shards=shards, dtype="int16")
    array[:] = value
    array[3:5, 7:21] = -1
    value[3:5, 7:21] = -1
    np.testing.assert_array_equal(zarr.open_array(store.zarr_store, path="a", mode="r")[3:18:2, 5:], value[3:18:2, 5:])
    np.testing.assert_array_equal(cuzarr.open_array(store, path="a", mode="r")[:], value)


APPENDS = """
import sys, numpy as np, cuzarr
url, number = sys.argv[1], int(sys.argv[2])
for step in range(5):
    group = cuzarr.open_group(url, mode="r+")
    group["t"].append(np.full(3, 10 * number + step, "i4"))
    group["t"].attrs[f"{number}-{step}"] = step
"""


@pytest.fixture
def one_request_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 tests the condition of a write and stores the value in one step. moto's server does so if it does nothing else meanwhile."""
    turn, answer = threading.Lock(), WSGIRequestHandler.run_wsgi

    def alone(self: Any) -> None:
        with turn:
            answer(self)

    monkeypatch.setattr(WSGIRequestHandler, "run_wsgi", alone)


@pytest.mark.usefixtures("one_request_at_a_time")
def test_processes_that_append_to_one_array_lose_no_row() -> None:
    url = f"s3://bucket/folder-{next(FOLDERS)}"
    cuzarr.open_group(url, mode="w").create_array("t", shape=(0,), chunks=(4,), dtype="i4")
    with pytest.warns(UserWarning, match="not part of the Zarr format 3"):
        cuzarr.consolidate_metadata(url)
    command = [sys.executable, "-c", APPENDS, url]
    processes = [subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE, text=True) for number in range(3)]
    outcomes = [(process.communicate()[1], process.returncode) for process in processes]
    assert all(code == 0 for _, code in outcomes), outcomes
    array = cuzarr.open_group(url, mode="r", use_consolidated=True)["t"]
    found = array[:].reshape(-1, 3)
    assert (found == found[:, :1]).all(), "rows of two appends are mixed"
    assert sorted(found[:, 0].tolist()) == sorted(10 * number + step for number in range(3) for step in range(5))
    assert len(array.attrs) == 15


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each request that comes to moto's server, noted before it is answered."""
    heard: list[str] = []
    answer = WSGIRequestHandler.run_wsgi

    def note(self: Any) -> None:
        heard.append(f"{self.command} {self.path.partition('?')[0]}")
        answer(self)

    monkeypatch.setattr(WSGIRequestHandler, "run_wsgi", note)
    return heard


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_change_takes_few_requests(requests: list[str], zarr_format: Any) -> None:
    url = f"s3://bucket/folder-{next(FOLDERS)}"
    group = cuzarr.open_group(url, mode="w", zarr_format=zarr_format)
    group.create_array("t", shape=(0,), chunks=(4,), dtype="i4")
    array = group["t"]

    def count(change: Callable[[], Any]) -> int:
        requests.clear()
        change()
        return len(requests)

    # The lock of an append is an object: it is made, and deleted. Format 2 has more documents.
    more = 2 if zarr_format == 2 else 0
    assert count(lambda: array.append(np.zeros(4, "i4") + 1)) <= 7 + more, requests
    assert count(lambda: array.attrs.update(a=1)) <= 4 + more, requests
    assert count(lambda: group.create_array("u", shape=(4,), dtype="i4", overwrite=True)) <= 11 + 3 * more, requests
    assert count(lambda: group.__delitem__("u")) <= 6 + more, requests
