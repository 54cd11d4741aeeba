"""Sessions of Icechunk: read-only ones are opened by the Rust side, others through Icechunk; both show what zarr-python finds."""

from __future__ import annotations

import datetime
import email.utils
import http.server
import os
import pathlib
import pickle
import threading
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import devices
import numpy as np
import pytest
from test_remote import Files, bucket  # noqa: F401 (a fixture)

import cuzarr
from cuzarr import storage
from cuzarr.errors import ArgumentTypeError, CuzarrError, ReadOnlyError, UnsupportedError
from cuzarr.storage import sessions

icechunk = pytest.importorskip("icechunk")
zarr = pytest.importorskip("zarr")

FIELD = np.arange(2400, dtype="float32").reshape(40, 60)


class Bucket(Files):
    """Files of a folder, as the clouds' interfaces for reading give them."""

    def do_GET(self) -> None:
        self.path = urllib.parse.unquote(self.path)
        path, before = self.folder / self.path.split("?")[0].lstrip("/"), self.headers.get("If-Unmodified-Since")
        if before and path.is_file() and path.stat().st_mtime > email.utils.parsedate_to_datetime(before).timestamp():
            self.send_response(412)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        super().do_GET()

    do_HEAD = do_GET  # noqa: N815

    def end_headers(self) -> None:
        path = self.folder / self.path.split("?")[0].lstrip("/")
        if path.is_file():
            self.send_header("Last-Modified", email.utils.formatdate(path.stat().st_mtime, usegmt=True))
        super().end_headers()


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[str]:
    handler = type("Handler", (Bucket,), {"folder": tmp_path, "requests": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()


def commit(repository: Any, fill: Callable[[Any], Any], message: str) -> str:
    session = repository.writable_session("main")
    fill(session.store)
    return str(session.commit(message))


def create(folder: pathlib.Path, **more: Any) -> Any:
    """A repository whose branch `main` has two commits. The tag `first` is the one before."""
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder)), **more)

    def fill(store: Any) -> None:
        root = zarr.open_group(store, mode="a", attributes={"title": "field"})
        root.create_array("t", data=FIELD, chunks=(10, 30))
        root.create_group("g").create_array("small", data=np.arange(3), chunks=(3,))

    def change(store: Any) -> None:
        zarr.open_group(store, mode="r+")["t"][:10] = -FIELD[:10]

    repository.create_tag("first", commit(repository, fill, "first"))
    commit(repository, change, "second")
    return repository


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("bytes pass through Python")


def forbid_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, nothing may be read through Icechunk's store."""
    for name in ("get", "get_partial_values", "get_ranges", "list", "list_prefix", "list_dir", "exists", "getsize"):
        monkeypatch.setattr(icechunk.IcechunkStore, name, refuse)


@pytest.mark.parametrize("revision", ["branch", "tag", "snapshot"])
def test_a_read_only_session_is_opened_by_the_rust_side(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    repository = create(tmp_path / "repository")
    forbid_python(monkeypatch)
    first, second = FIELD, np.concatenate([-FIELD[:10], FIELD[10:]])
    snapshot = repository.lookup_tag("first")
    given, expected = {
        "branch": ({"branch": "main"}, second),
        "tag": ({"tag": "first"}, first),
        "snapshot": ({"snapshot_id": snapshot}, first),
    }[revision]
    store = repository.readonly_session(**given).store
    group = cuzarr.open_group(store, mode="r")
    np.testing.assert_array_equal(group["t"][...], expected)
    np.testing.assert_array_equal(cuzarr.open_array(store, path="t", mode="r")[5:31:7, 11], expected[5:31:7, 11])
    assert sorted(name for name, _ in group.members(max_depth=None)) == ["g", "g/small", "t"]
    assert "small" in str(group.tree()) and group.attrs["title"] == "field" and group["t"].nchunks_initialized == 8
    np.testing.assert_array_equal(cuzarr.copy(group, {})["t"][...], expected)
    again = pickle.loads(pickle.dumps(group["t"]))
    np.testing.assert_array_equal(again[...], expected)
    assert again.store == group.store == storage.make_store(store)


def test_listings_and_values_are_those_of_icechunk(tmp_path: pathlib.Path) -> None:
    repository = create(tmp_path / "repository")
    store = storage.make_store(repository.readonly_session("main").store)
    through_icechunk = storage.make_store(repository.writable_session("main").store)
    assert store.list() == through_icechunk.list() and len(store.list()) == 13
    for prefix in ("", "g", "g/small", "t", "t/c", "nothing"):
        assert store.list_dir(prefix) == through_icechunk.list_dir(prefix), prefix
        assert store.list_prefix(prefix) == through_icechunk.list_prefix(prefix), prefix
    for key in store.list():
        assert store.get(key) == through_icechunk.get(key) and store.getsize(key) == through_icechunk.getsize(key), key
    for key in ("t", "t/c/9/9", "nothing/zarr.json"):
        assert store.get(key) is None and not store.exists(key)


def test_a_read_only_session_refuses_writes(tmp_path: pathlib.Path) -> None:
    session = create(tmp_path / "repository").readonly_session("main")
    store = storage.make_store(session.store)
    assert store.read_only
    for write in (
        lambda: store.set("t/c/0/0", b"1"),
        lambda: store.delete("t/c/0/0"),
        lambda: cuzarr.open_group(session.store, mode="r+"),
        lambda: cuzarr.open_group(session.store, mode="a"),
        lambda: cuzarr.create_array(session.store, name="a", shape=(1,), dtype="i4"),
        lambda: cuzarr.copy(cuzarr.zeros((2,), store={}), session.store, path="a"),
    ):
        with pytest.raises(ReadOnlyError):
            write()
    with pytest.raises(CuzarrError, match="cannot write to read-only store"):
        store.with_read_only(False).set("t/c/0/0", b"1")


def test_a_session_with_changes_is_read_through_icechunk(tmp_path: pathlib.Path) -> None:
    session = create(tmp_path / "repository").writable_session("main")
    group = cuzarr.open_group(session.store, mode="r+")
    group["t"][0, 0] = 77
    assert cuzarr.open_group(session.store, mode="r")["t"][0, 0] == 77
    fork = session.fork()
    assert cuzarr.open_array(fork.store, path="t", mode="r")[0, 0] == 77


PLACES: dict[str, Callable[[str], Any]] = {
    "http": lambda url: icechunk.http_storage(f"{url}/bucket/folder"),
    "s3": lambda url: icechunk.s3_storage(
        bucket="bucket", prefix="folder", region="us-east-1", endpoint_url=url, allow_http=True, force_path_style=True,
        access_key_id="k", secret_access_key="hush",
    ),
    "s3 by renewed credentials": lambda url: icechunk.s3_storage(
        bucket="bucket", prefix="folder", region="us-east-1", endpoint_url=url, allow_http=True, force_path_style=True,
        get_credentials=renewed,
    ),
    "s3 without credentials": lambda url: icechunk.s3_storage(
        bucket="bucket", prefix="folder", region="us-east-1", endpoint_url=url, allow_http=True, force_path_style=True, anonymous=True
    ),
    "gcs": lambda url: icechunk.gcs_storage(bucket="bucket", prefix="folder", anonymous=True, config={"google_base_url": url}),
    "gcs by a token": lambda url: icechunk.gcs_storage(
        bucket="bucket", prefix="folder", bearer_token="hush", config={"google_base_url": url}
    ),
    "azure": lambda url: icechunk.azure_storage(
        account="account", container="bucket", prefix="folder", access_key="aHVzaA==",
        config={"azure_storage_endpoint": url, "azure_allow_http": "true"},
    ),
}  # fmt: skip


def renewed() -> Any:
    return icechunk.S3StaticCredentials("k", "hush")


@pytest.mark.parametrize("place", PLACES)
def test_repositories_of_every_cloud_are_opened_by_the_rust_side(
    tmp_path: pathlib.Path, server: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    create(tmp_path / "bucket" / "folder")
    forbid_python(monkeypatch)
    repository = icechunk.Repository.open(PLACES[place](server))
    store = storage.make_store(repository.readonly_session(tag="first").store)
    np.testing.assert_array_equal(cuzarr.open_array(store, path="t", mode="r")[...], FIELD)
    assert "hush" not in f"{store} {store!r} {store.handle!r}" and "aHVzaA" not in f"{store!r} {store.handle!r}"


def test_a_repository_in_a_bucket_is_written_through_icechunk_and_read_by_the_rust_side(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = request.getfixturevalue("bucket")
    place = icechunk.s3_storage(
        bucket="bucket", prefix="repository", region="us-east-1", endpoint_url=options["endpoint_url"], allow_http=True,
        force_path_style=True, access_key_id=options["key"], secret_access_key=options["secret"],
    )  # fmt: skip
    repository = icechunk.Repository.create(place)
    source = cuzarr.open_group({}, mode="w")
    source.create_array("sharded", data=FIELD, chunks=(5, 10), shards=(20, 30))
    session = repository.writable_session("main")
    cuzarr.copy(source, session.store)
    session.commit("first")
    # What is written on the same branch later is not seen.
    reading = repository.readonly_session("main")
    later = repository.writable_session("main")
    cuzarr.open_group(later.store, mode="r+")["sharded"][...] = 0
    later.commit("second")
    forbid_python(monkeypatch)
    array = cuzarr.open_array(reading.store, path="sharded", mode="r")
    np.testing.assert_array_equal(array[...], FIELD)
    np.testing.assert_array_equal(array[7:33:5, 3:50:9], FIELD[7:33:5, 3:50:9])
    assert not cuzarr.open_array(repository.readonly_session("main").store, path="sharded", mode="r")[...].any()


def test_what_only_icechunk_opens_is_read_through_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = icechunk.Repository.create(icechunk.in_memory_storage())
    commit(memory, lambda store: zarr.create_array(store, data=FIELD, chunks=(10, 60)), "data")
    np.testing.assert_array_equal(cuzarr.open_array(memory.readonly_session("main").store, mode="r")[...], FIELD)
    repository = create(tmp_path / "repository")
    known = repository.readonly_session(tag="first").store
    packed = known.__getstate__()["_store"]
    assert sessions._state(packed)[2]["backend"]["path"] == str(tmp_path / "repository")
    # Another version of Icechunk may pack sessions otherwise. No form of it may lead to another repository, or to an error.
    create(tmp_path / "another")
    forms = [packed[:length] for length in range(0, len(packed), 7)]
    forms += [b"", b"\xc1", b"\x90", b"\x91" * 100_000, b"\xff" * 9, packed + b"\0", packed.replace(b"backend", b"Backend")]
    forms += [packed.replace(b"/repository", b"/another\xa0\xa0"), packed.replace(b"/repository", b"/repositorY")]
    for form in forms:
        monkeypatch.setattr(icechunk.IcechunkStore, "__getstate__", lambda _, form=form: {"_store": form})
        assert cuzarr.open_array(known, path="t", mode="r")[3, 4] == FIELD[3, 4], form


# ---------------------------------------------------------------------------------------------------- virtual chunks


def with_virtual_chunks(folder: pathlib.Path, prefix: str, container: Any, permission: Any, **checksum: Any) -> Any:
    """A repository whose chunks are parts of a file: shuffled and deflated, as netCDF-4 has them."""
    (folder / "files").mkdir(exist_ok=True)
    offsets, body = [], b"head"
    for row in range(0, 40, 10):
        plain = np.ascontiguousarray(FIELD[row : row + 10]).view("u1").reshape(-1, 4).T.tobytes()
        packed = zlib.compress(plain, 4)
        offsets.append((len(body), len(packed)))
        body += packed
    (folder / "files" / "a.nc").write_bytes(body)
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, container, name="files"))
    permissions = icechunk.containers_credentials({prefix: permission})
    place = icechunk.local_filesystem_storage(str(folder / "repository"))
    repository = icechunk.Repository.create(place, config, authorize_virtual_chunk_access=permissions)

    def fill(store: Any) -> None:
        cuzarr.create_array(
            store, name="t", shape=FIELD.shape, dtype="float32", chunks=(10, 60),
            compressors=[{"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}},
                         {"name": "numcodecs.zlib", "configuration": {"level": 4}}],
        )  # fmt: skip
        for number, (offset, length) in enumerate(offsets):
            store.set_virtual_ref(f"t/c/{number}/0", f"{prefix}a.nc", offset=offset, length=length, **checksum)

    commit(repository, fill, "virtual")
    return repository


def local_chunks(folder: pathlib.Path, **checksum: Any) -> Any:
    container = icechunk.local_filesystem_store(str(folder / "files"))
    return with_virtual_chunks(
        folder, f"file://{folder}/files/", container, icechunk.credentials.Credentials.LocalFileSystemAccess(), **checksum
    )


def far_chunks(folder: pathlib.Path, server: str, **checksum: Any) -> Any:
    permission = icechunk.credentials.Credentials.HttpAccess()
    return with_virtual_chunks(folder, f"{server}/files/", icechunk.http_store(), permission, **checksum)


@pytest.mark.parametrize("place", ["here", "far"])
@pytest.mark.parametrize("device", ["cpu", devices.NAME])
def test_virtual_chunks_are_decoded_by_the_kernels(
    tmp_path: pathlib.Path, server: str, monkeypatch: pytest.MonkeyPatch, place: str, device: str
) -> None:
    if device != "cpu":
        devices.require()
    repository = local_chunks(tmp_path) if place == "here" else far_chunks(tmp_path, server)
    forbid_python(monkeypatch)
    array = cuzarr.open_array(repository.readonly_session("main").store, path="t", mode="r", device=device)
    with cuzarr.config.set({"strict": True}):
        got = array[...]
    assert devices.is_on(device, got)
    np.testing.assert_array_equal(devices.to_host(got), FIELD)


@pytest.mark.parametrize("size", [1 << 18, 1 << 20, 1 << 24, 48 << 20])
def test_contiguous_chunks_take_one_request_for_16_mib(tmp_path: pathlib.Path, server: str, size: int) -> None:
    truth = np.random.default_rng(1).integers(0, 256, 48 << 20, "u1")
    (tmp_path / "files").mkdir()
    truth.tofile(tmp_path / "files" / "a.bin")
    prefix = f"{server}/files/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, icechunk.http_store()))
    repository = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(tmp_path / "repository")), config,
        authorize_virtual_chunk_access=icechunk.containers_credentials({prefix: icechunk.credentials.Credentials.HttpAccess()}),
    )  # fmt: skip

    def fill(store: Any) -> None:
        cuzarr.create_array(store, name="t", shape=truth.shape, dtype="u1", chunks=(size,), compressors=None)
        for at in range(truth.size // size):
            store.set_virtual_ref(f"t/c/{at}", f"{prefix}a.bin", offset=at * size, length=size)

    commit(repository, fill, "contiguous")
    array = cuzarr.open_array(repository.readonly_session("main").store, path="t", mode="r")
    np.testing.assert_array_equal(array[...], truth)
    report = array.last_report()
    assert report is not None and report["traffic"]["requests"] == 3


@pytest.mark.parametrize("place", ["here", "far"])
def test_files_of_virtual_chunks_that_changed_are_an_error(tmp_path: pathlib.Path, server: str, place: str) -> None:
    made = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=5)
    repository = local_chunks(tmp_path, checksum=made) if place == "here" else far_chunks(tmp_path, server, checksum=made)
    session = repository.readonly_session("main")
    array = cuzarr.open_array(session.store, path="t", mode="r")
    np.testing.assert_array_equal(array[...], FIELD)
    later = made.timestamp() + 60
    os.utime(tmp_path / "files" / "a.nc", (later, later))
    with pytest.raises(CuzarrError, match=r"a\.nc.* was changed"):
        array[...]
    with pytest.raises(icechunk.IcechunkError):
        zarr.open_array(session.store, path="t", mode="r")[...]


def test_files_that_were_not_permitted_are_refused_by_icechunk(tmp_path: pathlib.Path) -> None:
    local_chunks(tmp_path)
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "repository")))
    array = cuzarr.open_array(repository.readonly_session("main").store, path="t", mode="r")
    with pytest.raises(CuzarrError, match="(?i)authoriz"):
        array[...]


# ---------------------------------------------------------------------------------------------------- other processes


def double(block: Any) -> Any:
    return block * 2


def test_workers_read_sessions_and_write_none(tmp_path: pathlib.Path) -> None:
    distributed = pytest.importorskip("distributed")
    repository = create(tmp_path / "repository")
    writing = repository.writable_session("main")
    source = cuzarr.open_array(repository.readonly_session(tag="first").store, path="t", mode="r")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", processes=True) as cluster,
        distributed.Client(cluster) as client,
    ):
        got = cuzarr.map_blocks(double, source, out=tmp_path / "out", client=client)
        np.testing.assert_array_equal(got[...], FIELD * 2)
        keys = storage.make_store(writing.store).list()
        for out in (writing.store, cuzarr.open_array(writing.store, path="t", mode="r+"), writing.fork().store):
            with pytest.raises(UnsupportedError, match=r"(?s)on a cluster cannot write to.*commits all writes of one process"):
                cuzarr.map_blocks(double, source, out=out, client=client)
        assert storage.make_store(writing.store).list() == keys and not writing.has_uncommitted_changes
        with pytest.raises(ArgumentTypeError, match=r"(?s)does not go to another process.*readonly_session"):
            cuzarr.map_blocks(double, cuzarr.open_array(writing.store, path="t"), out=tmp_path / "no", client=client)
    assert not (tmp_path / "no").exists()
    fork = pickle.loads(pickle.dumps(cuzarr.open_array(writing.fork().store, path="t", mode="r")))
    assert fork[11, 0] == FIELD[11, 0]
