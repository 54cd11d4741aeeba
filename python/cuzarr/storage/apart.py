"""Opens stores of other libraries by cuzarr's own Rust stores, if the other store's settings can be read. Their bytes then do not pass
through Python."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from cuzarr import _core
from cuzarr.errors import CuzarrError
from cuzarr.storage.parquet import ParquetTable, ReferenceColumns
from cuzarr.storage.sessions import Opened, of_session
from cuzarr.storage.url import Credentials, flat_options


def taken_apart(store: Any, through_python: _core.Store, read_only: bool) -> _core.Store | None:
    """Opens another library's store on the Rust side, by the store's settings; ``None`` if the settings cannot be read.

    Parameters
    ----------
    store : object
        A store of another library.
    through_python : _core.Store
        The same store behind its adapter. A store of references uses its identity.
    read_only : bool
        Whether the store is only read. References are only taken over from a read-only store, because fsspec's references can be changed.
    """
    zarr_storage = sys.modules.get("zarr.storage")
    if zarr_storage is not None and type(store) is getattr(zarr_storage, "ObjectStore", None):
        store = store.store
    try:
        opened = _of_obstore(store) or of_session(store)
        if opened is not None:
            return _core.Store.open_url(*opened)
        return _of_references(store, through_python) if read_only else None
    except CuzarrError:
        # An option or a key that only the other library supports.
        return None


def _of_obstore(store: Any) -> Opened | None:
    library = sys.modules.get("obstore.store")
    kinds = {
        "S3Store": ("s3", "bucket"),
        "GCSStore": ("gs", "bucket"),
        "AzureStore": ("az", "container_name"),
        "HTTPStore": ("", ""),
    }
    kind = type(store).__name__
    if library is None or kind not in kinds or type(store) is not getattr(library, kind, None) or store.retry_config is not None:
        return None
    client = dict(store.client_options or {})
    headers = client.pop("default_headers", None) or {}
    if kind == "HTTPStore":
        options = {f"headers.{name}": value.decode() if isinstance(value, bytes) else value for name, value in headers.items()}
        return store.url, flat_options(client | options), None
    scheme, container = kinds[kind]
    provider, config = store.credential_provider, dict(store.config)
    if headers or (provider is not None and (scheme != "s3" or _is_asynchronous(provider))):
        return None
    url = f"{scheme}://{config.pop(container)}/{store.prefix or ''}".rstrip("/")
    return url, flat_options(config | client), None if provider is None else Credentials(provider)


def _is_asynchronous(provider: Any) -> bool:
    return inspect.iscoroutinefunction(provider) or inspect.iscoroutinefunction(type(provider).__call__)


def _of_references(store: Any, through_python: _core.Store) -> _core.Store | None:
    fs: Any = getattr(store, "fs", None)
    root = getattr(store, "root", getattr(store, "path", None))
    fs = getattr(fs, "sync_fs", fs)  # zarr-python puts this wrapper around some file systems
    library = sys.modules.get("fsspec.implementations.reference")
    if library is None or type(fs) is not library.ReferenceFileSystem or not isinstance(root, str):
        return None
    if type(fs.references) is library.LazyReferenceMapper:
        return _of_parquet(fs, root, through_python)
    if type(fs.references) is not dict:
        return None
    found = _references(fs)
    options = _options(fs, dict(_hosts(found.urls, _protocol(fs.fss[None]))))
    if options is None:
        return None
    return _core.Store.references(found.columns(), found.inline, options, through_python, root.strip("/"))


def _of_parquet(fs: Any, root: str, through_python: _core.Store) -> _core.Store | None:
    """Opens the store that a Parquet table of references describes, which fsspec has opened. The references of an array's chunks are read
    when a chunk of it is needed."""
    # The URLs in the table are not known yet. Any host is enough to test the options.
    options = _options(fs, dict.fromkeys((protocol for protocol in fs.fss if protocol), "localhost"))
    table = ParquetTable(fs.references, str(fs.target))
    if options is None or table.is_changed:
        return None
    pending = table.arrays, table.references
    return _core.Store.references(
        ReferenceColumns().columns(), table.documents, options, through_python, root.strip("/"), pending
    )


def _references(fs: Any) -> ReferenceColumns:
    """The chunk references that an fsspec reference file system holds in memory."""
    found = ReferenceColumns()
    for key, value in fs.references.items():
        if isinstance(value, bytes | str):
            found.add_inline(key, value)
            continue
        url = str(fs.target if value[0] is None else value[0])
        if len(value) != 3:
            found.add(key, url)
        elif value[2]:
            found.add(key, url, value[1], value[2])
        else:
            found.add_inline(key, b"")
    return found


def _options(fs: Any, hosts: dict[str, str]) -> list[tuple[str, str]] | None:
    """Options by which the Rust side opens the files to which a table of references refers. ``hosts`` has one host per protocol. ``None``
    if only fsspec can open them."""
    default = _protocol(fs.fss[None])
    chosen: list[list[tuple[str, str]]] = []
    for protocol, host in hosts.items():
        target = fs.fss.get(protocol, fs.fss[None])
        target = getattr(target, "sync_fs", target)
        if protocol in ("file", "local"):
            continue
        if protocol == "memory" or target.storage_args or not _core.Store.knows_url(f"{protocol}://{host}"):
            return None
        given = {name: value for name, value in target.storage_options.items() if name not in ("asynchronous", "loop")}
        chosen.append(flat_options(given))
        _core.Store.open_url(f"{protocol}://{host}", chosen[-1])
    if any(options != chosen[0] for options in chosen):
        return None
    # Allows the protocols that the user's file system names, so that all files that fsspec would read are allowed.
    allowed = [("allow", " ".join(f"{protocol}://" for protocol in hosts)), ("remote_protocol", default)]
    return [*allowed, *((f"remote_options.{name}", value) for name, value in (chosen[0] if chosen else []))]


def _protocol(fs: Any) -> str:
    fs = getattr(fs, "sync_fs", fs)
    return fs.protocol if isinstance(fs.protocol, str) else str(fs.protocol[0])


def _hosts(urls: Mapping[str, int], default: str) -> Iterator[tuple[str, str]]:
    """Yields the protocol and the host of each URL to which a table of references refers."""
    for url in urls:
        protocol, mark, rest = url.partition("://")
        if not mark:
            protocol, rest = default, url
        yield protocol, rest.partition("/")[0]
