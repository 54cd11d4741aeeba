"""Stores in the cloud and behind HTTP, through the Rust side: against servers on this machine."""

from __future__ import annotations

import datetime
import http.server
import logging
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import cuzarr
from cuzarr.errors import ArgumentTypeError, CuzarrError, InvalidArgumentError, ReadOnlyError, UnsupportedError
from cuzarr.storage import UrlStore, make_store


class Files(http.server.BaseHTTPRequestHandler):
    """Files of a folder, with entity tags and ranges."""

    protocol_version = "HTTP/1.1"
    # Else a body waits for the receipt of its headers, which takes 40 ms.
    disable_nagle_algorithm = True
    folder: pathlib.Path
    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.headers.get("Authorization", ""))
        path = self.folder / self.path.split("?")[0].lstrip("/")
        if not path.is_file():
            self.send_response(404)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        value, status, extent = path.read_bytes(), 200, ""
        size = len(value)
        if wanted := self.headers.get("Range"):
            first, last = wanted.removeprefix("bytes=").split("-")
            start = int(first) if first else max(size - int(last), 0)
            stop = min(int(last) + 1, size) if first and last else size
            value, status, extent = value[start:stop], 206, f"bytes {start}-{stop - 1}/{size}"
        self.send_response(status)
        self.send_header("Content-Length", str(size if self.command == "HEAD" else len(value)))
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        if extent:
            self.send_header("Content-Range", extent)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(value)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[tuple[str, type[Files]]]:
    handler = type("Handler", (Files,), {"folder": tmp_path, "requests": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}", handler
        served.shutdown()


TRUTH = np.arange(600, dtype="int32").reshape(20, 30)


def test_arrays_and_groups_open_without_another_library(
    server: tuple[str, type[Files]], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    url, handler = server
    root = cuzarr.create_group(tmp_path / "g")
    root.create_array("plain", shape=TRUTH.shape, dtype="int32", chunks=(7, 8))[...] = TRUTH
    root.create_array("sharded", shape=TRUTH.shape, dtype="int32", chunks=(5, 5), shards=(10, 15))[...] = TRUTH
    cuzarr.consolidate_metadata(tmp_path / "g")
    group = cuzarr.open_group(f"{url}/g", mode="r", storage_options={"headers": {"Authorization": "hush"}})
    assert isinstance(group.store, UrlStore) and set(handler.requests) == {"hush"}
    for name in ("plain", "sharded"):
        np.testing.assert_array_equal(group[name][...], TRUTH)
        np.testing.assert_array_equal(cuzarr.open_array(f"{url}/g/{name}", mode="r")[3:9, 11], TRUTH[3:9, 11])
    with pytest.raises(CuzarrError):
        cuzarr.open_array(f"{url}/g/missing", mode="r")
    with pytest.raises((ReadOnlyError, UnsupportedError)):
        cuzarr.create_array(f"{url}/new", shape=(2,), dtype="int32")


def test_options_are_checked_and_secrets_are_neither_shown_nor_pickled(server: tuple[str, type[Files]]) -> None:
    url, _ = server
    with pytest.raises(InvalidArgumentError, match=r"(?s)unknown storage option 'timout'.*did you mean 'timeout'"):
        make_store(f"{url}/g", storage_options={"timout": 3})
    store = make_store(f"{url}/g?sig=hush", storage_options={"timeout": 3, "headers": {"Authorization": "hush"}})
    assert "hush" not in f"{store} {store!r} {store.handle!r}"
    with pytest.raises(ArgumentTypeError, match="headers.Authorization") as caught:
        pickle.dumps(store)
    assert "hush" not in str(caught.value)
    plain = make_store(f"{url}/g", storage_options={"timeout": 3})
    assert pickle.loads(pickle.dumps(plain)) == plain
    with pytest.raises(InvalidArgumentError) as caught_too:
        make_store("s3://name:hush@bucket/a")
    assert "hush" not in str(caught_too.value)


def test_pickles_do_not_hold_the_query_of_a_url(server: tuple[str, type[Files]], tmp_path: pathlib.Path) -> None:
    url, _ = server
    cuzarr.create_array(tmp_path / "ab", data=TRUTH, chunks=(7, 8))
    cuzarr.create_array(tmp_path / "a.zip", data=TRUTH, chunks=(7, 8))
    for place in (f"{url}/ab?sig=hush", f"zip::{url}/a.zip?sig=hush"):
        array = cuzarr.open_array(place, mode="r")
        sent = pickle.dumps(array)
        assert b"hush" not in sent and "hush" not in f"{array!r} {array.store!r}"
        with pytest.raises(InvalidArgumentError, match=r"(?s)without the query.*CUZARR_STORAGE__HTTP__QUERY"):
            pickle.loads(sent)
        with cuzarr.config.set({"storage.http.query": "sig=hush"}):
            again = pickle.loads(sent)
            assert again.store == array.store
            np.testing.assert_array_equal(again[...], TRUTH)
            assert b"hush" not in pickle.dumps(again)
    plain = cuzarr.open_array(f"{url}/ab", mode="r")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(plain))[...], TRUTH)
    with pytest.raises(ArgumentTypeError, match="query"):
        pickle.dumps(make_store(f"{url}/ab", storage_options={"query": "sig=hush"}))


def test_headers_that_are_none_are_not_repeated() -> None:
    for headers in ({"Authorization: hush": ""}, {"Authorization": "a\nhush"}, {"Authorization: hush": object()}):
        with pytest.raises((InvalidArgumentError, ArgumentTypeError)) as caught:
            UrlStore("https://localhost/a", storage_options={"headers": headers})
        assert "hush" not in str(caught.value) and "headers" in str(caught.value)


def test_options_that_nothing_knows_are_refused(tmp_path: pathlib.Path) -> None:
    cuzarr.create_array(tmp_path / "a.zip", data=TRUTH)
    for url in ("memory://options", f"zip::{tmp_path}/a.zip", f"zip::file://{tmp_path}/a.zip"):
        with pytest.raises(InvalidArgumentError, match=r"(?s)unknown storage option 'timout'.*did you mean 'timeout'"):
            UrlStore(url, storage_options={"timout": 3})
    with pytest.raises(InvalidArgumentError, match=r"(?s)unknown storage option 'branch'.*icechunk://branch.NAME::URL"):
        make_store(f"icechunk::{tmp_path}", storage_options={"branch": "x"})
    for store in (tmp_path / "a", str(tmp_path / "a"), f"file://{tmp_path}/a", {}, "memory://a"):
        with pytest.raises(TypeError, match="storage_options only serve URLs of remote stores"):
            make_store(store, storage_options={"timout": 3})


FORKED = """
import os, sys
import cuzarr

array = cuzarr.open_array(sys.argv[1], mode="r")
assert array[...].sum() == 179700
child = os.fork()
if child == 0:
    assert array[...].sum() == 179700
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert array[...].sum() == 179700
"""


def test_a_forked_child_has_its_own_connections(server: tuple[str, type[Files]], tmp_path: pathlib.Path) -> None:
    cuzarr.create_array(tmp_path / "a", data=TRUTH, chunks=(7, 8))
    command = [sys.executable, "-W", "ignore", "-c", FORKED, f"{server[0]}/a"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_line_takes_urls(server: tuple[str, type[Files]], tmp_path: pathlib.Path) -> None:
    cuzarr.create_array(tmp_path / "a", data=TRUTH, chunks=(7, 8))
    url = f"{server[0]}/a"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cuzarr", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert "[20, 30]" in run("--json", "info", url).stdout.replace("\n", "").replace(" ", "").replace(",", ", ")
    assert run("copy", "--storage-option", "timeout=5", url, str(tmp_path / "copied")).returncode == 0
    np.testing.assert_array_equal(cuzarr.open_array(tmp_path / "copied", mode="r")[...], TRUTH)
    refused = run("copy", str(tmp_path / "copied"), f"{server[0]}/b")
    assert refused.returncode == 1 and "it is read-only" in refused.stderr


INTERRUPTED = """
import http.server, os, signal, sys, threading, time
import cuzarr

signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background of a shell ignore it

class Silent(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(60)

    do_HEAD = do_GET

served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
served.daemon_threads = True
threading.Thread(target=served.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{served.server_port}/a"
store = cuzarr.storage.make_store(url)
calls = {
    "open": lambda: cuzarr.open_array(url, mode="r"),
    "get": lambda: store.get("a"),
    "archive": lambda: cuzarr.open_group(f"zip::{url}.zip", mode="r"),
    "references": lambda: cuzarr.open_group(f"reference::{url}.json", mode="r"),
}
begun = time.monotonic()
try:
    calls[sys.argv[1]]()
except KeyboardInterrupt:
    print(time.monotonic() - begun, flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize("call", ["open", "get", "archive", "references"])
def test_an_interrupt_does_not_wait_for_a_server(call: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, call]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and float(done.stdout) < 20, done.stderr


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not list open files")
def test_many_opens_leave_no_connections(server: tuple[str, type[Files]], tmp_path: pathlib.Path) -> None:
    cuzarr.create_array(tmp_path / "a", data=TRUTH, chunks=(20, 30))

    def connections() -> int:
        names = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
        return sum(os.readlink(name).startswith("socket:") for name in names if os.path.lexists(name))

    def opened(count: int) -> int:
        for _ in range(count):
            assert cuzarr.open_array(f"{server[0]}/a", mode="r")[3, 4] == TRUTH[3, 4]
        return connections()

    before = opened(50)
    # Connections that were just closed by one side may be open at the other.
    assert opened(300) <= before + 20


@pytest.fixture
def bucket() -> Iterator[dict[str, str]]:
    """A bucket of moto's server."""
    moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    boto3 = pytest.importorskip("boto3")
    served = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    served.start()
    host, port = served.get_host_and_port()
    options = {"key": "k", "secret": "s", "endpoint_url": f"http://{host}:{port}", "region": "us-east-1"}
    client = boto3.client(
        "s3", aws_access_key_id="k", aws_secret_access_key="s", endpoint_url=options["endpoint_url"], region_name="us-east-1"
    )
    client.create_bucket(Bucket="bucket")
    yield options
    served.stop()


def test_arrays_in_a_bucket_are_written_changed_and_deleted(bucket: dict[str, str]) -> None:
    group = cuzarr.open_group("s3://bucket/root", mode="w", storage_options=bucket)
    array = group.create_array("a", shape=TRUTH.shape, dtype="int32", chunks=(7, 8))
    array[...] = TRUTH
    array[3:5, 2:9] = 1
    expected = TRUTH.copy()
    expected[3:5, 2:9] = 1
    again = cuzarr.open_group("s3a://bucket/root", mode="a", storage_options=bucket)
    np.testing.assert_array_equal(again["a"][...], expected)
    assert sorted(name for name, _ in again.members()) == ["a"]
    again["a"].resize((10, 30))
    np.testing.assert_array_equal(again["a"][...], expected[:10])
    del again["a"]
    assert list(again.members()) == []


def test_other_threads_run_while_a_lock_is_given_back(bucket: dict[str, str]) -> None:
    array = cuzarr.create_array("s3://bucket/l", data=TRUTH, chunks=(7, 8), storage_options=bucket)
    answered: list[str] = []

    class Log(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            answered.append(record.getMessage())

    # The server is a thread of this process: it answers while the interpreter is free.
    server, log = logging.getLogger("werkzeug"), Log()
    server.addHandler(log)
    try:
        array.resize((30, 30))
        during = [message for message in answered if "POST" in message]
        time.sleep(0.5)
        assert during and [message for message in answered if "POST" in message] == during
    finally:
        server.removeHandler(log)


def test_credentials_come_from_the_environment(bucket: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket["endpoint_url"])
    array = cuzarr.create_array("s3://bucket/b", data=TRUTH, chunks=(7, 8))
    assert os.environ["AWS_ENDPOINT_URL"] and pickle.loads(pickle.dumps(array.store)) == array.store
    np.testing.assert_array_equal(cuzarr.open_array("s3://bucket/b", mode="r")[...], TRUTH)


def test_a_function_renews_credentials(bucket: dict[str, str]) -> None:
    calls = []

    def renewed() -> dict[str, object]:
        calls.append(1)
        # They end so soon that each request needs new ones.
        return {"access_key_id": "k", "secret_access_key": "hush", "expires_at": datetime.datetime.now(datetime.UTC)}

    options = {"endpoint_url": bucket["endpoint_url"], "region": "us-east-1", "credential_provider": renewed}
    array = cuzarr.create_array("s3://bucket/c", data=TRUTH, chunks=(7, 8), storage_options=options)
    made = len(calls)
    np.testing.assert_array_equal(array[...], TRUTH)
    assert 1 < made < len(calls)
    assert "hush" not in f"{array.store} {array.store!r}"


def test_stores_of_obstore_are_opened_by_their_settings(bucket: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    obstore = pytest.importorskip("obstore")
    config = {
        "access_key_id": "k", "secret_access_key": "s", "endpoint": bucket["endpoint_url"], "region": "us-east-1",
    }  # fmt: skip
    client = {"allow_http": True, "timeout": "20s"}
    store = obstore.store.S3Store("bucket", prefix="in/side", config=config, client_options=client)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("bytes pass through Python")

    for name in ("get", "get_async", "get_range", "get_range_async", "get_ranges", "get_ranges_async", "put", "put_async"):
        monkeypatch.setattr(obstore, name, refuse)
    array = cuzarr.create_array(store, name="a", data=TRUTH, chunks=(7, 8))
    np.testing.assert_array_equal(cuzarr.open_array(store, path="a", mode="r")[...], TRUTH)
    same = cuzarr.open_array("s3://bucket/in/side/a", mode="r", storage_options=bucket)
    np.testing.assert_array_equal(same[...], TRUTH)
    # The user's store travels with its own settings.
    again = pickle.loads(pickle.dumps(array))
    np.testing.assert_array_equal(again[3:5], TRUTH[3:5])
    assert again.store == array.store
    calls = []

    def renewed() -> dict[str, str]:
        calls.append(1)
        return {"access_key_id": "k", "secret_access_key": "s"}

    plain = {"endpoint": bucket["endpoint_url"], "region": "us-east-1"}
    own = obstore.store.S3Store("bucket", config=plain, client_options=client, credential_provider=renewed)
    np.testing.assert_array_equal(cuzarr.open_array(own, path="in/side/a", mode="r")[...], TRUTH)
    assert calls
    # Settings that have no name here leave the store as it is.
    kept = obstore.store.S3Store("bucket", config=config, client_options=client, retry_config={"max_retries": 1})
    with pytest.raises(CuzarrError, match="bytes pass through Python"):
        cuzarr.open_array(kept, path="in/side/a", mode="r")


def test_web_servers_of_obstore_are_opened_by_their_settings(server: tuple[str, type[Files]], tmp_path: pathlib.Path) -> None:
    obstore = pytest.importorskip("obstore")
    cuzarr.create_array(tmp_path / "a", data=TRUTH, chunks=(7, 8))
    client = {"allow_http": True, "default_headers": {"Authorization": "hush"}}
    store = obstore.store.HTTPStore.from_url(f"{server[0]}/a", client_options=client)
    array = cuzarr.open_array(store, mode="r")
    np.testing.assert_array_equal(array[...], TRUTH)
    assert set(server[1].requests) == {"hush"} and "hush" not in repr(array.store)
