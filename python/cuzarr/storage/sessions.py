"""Opens read-only sessions of Icechunk as URLs of the Rust side's scheme ``icechunk``.

A session has no public attribute for the place of its repository or for the credentials. They are in its pickle: MessagePack, in a form
that Icechunk may change. So each part is checked, and with any unexpected part Icechunk itself reads the session. A wrong place cannot be
read by mistake, because it must contain the snapshot with the same random identifier.
"""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cuzarr.storage.url import Credentials

Opened = tuple[str, list[tuple[str, str]], Callable[[], tuple[dict[str, str], float | None]] | None]
"""The arguments by which the Rust side opens a store: the URL, options, and a function that renews the credentials."""


class _UnknownError(Exception):
    """An exception for an Icechunk session that only Icechunk itself can open, for example because cuzarr does not know one of its
    options."""


def of_session(store: Any) -> Opened | None:
    """The URL and options to open an Icechunk session's snapshot; ``None`` if the session can write, or only Icechunk can open it."""
    library = sys.modules.get("icechunk")
    if library is None or type(store) is not library.IcechunkStore:
        return None
    session = store.session
    if not session.read_only or session.has_uncommitted_changes:
        return None
    try:
        return _opened(session.snapshot_id, _state(store.__getstate__()["_store"]))
    except (_UnknownError, LookupError, TypeError, ValueError, RecursionError, struct.error):
        return None


def _opened(snapshot: str, state: Any) -> Opened:
    storage, (containers, permissions, *_) = state[2], state[4]
    place = _place(storage)
    options = [(f"target_options.{name}", value) for name, value in place.options.items()]
    if containers and place.renewal is not None:
        raise _UnknownError  # these credentials would be used for the files of virtual chunks, too
    return f"icechunk://snapshot.{snapshot}::{place.url}", [*options, *_virtual(containers, permissions)], place.renewal


@dataclass
class _Place:
    """The location of an Icechunk repository: a directory, a bucket or a folder in one, with the options to open it."""

    url: str
    options: dict[str, str] = field(default_factory=dict)
    renewal: Credentials | None = None


def _place(storage: Mapping[str, Any]) -> _Place:
    """The location of an Icechunk repository, from the entry for its storage in a session's state."""
    backend = storage
    kind = storage["type"]
    if kind == "ObjectStorage":
        backend = dict(storage["backend"])
        kind = backend.pop("object_store_provider_type")
    match kind, backend:
        case "local_file_system_object_store_provider", {"path": str(path), **rest} if not rest:
            return _Place(f"file://{path}")
        case "http_object_store_provider", {"url": str(url), "config": config, **rest} if not rest:
            return _Place(url, _renamed(config, {"Timeout": "timeout", "ConnectTimeout": "connect_timeout"}))
        case "gcs_object_store_provider", {
            "bucket": bucket,
            "prefix": prefix,
            "config": config,
            "credentials": given,
            **rest,
        } if not rest:
            return _Place(_url("gs", bucket, prefix), _renamed(config, {"BaseUrl": "base_url"}) | _of_google(given))
        case "azure_object_store_provider", {
            "account": account, "container": container, "prefix": prefix, "config": config, "credentials": given, **rest
        } if not rest:  # fmt: skip
            known = {"Endpoint": "endpoint", "AllowHttp": ""}
            options = {"account_name": account} | _renamed(config, known) | _of_azure(given)
            return _Place(_url("az", container, prefix), options)
        case "s3_object_store_provider", {"bucket": bucket, "prefix": prefix, "config": config, "credentials": given, **rest} if (
            not rest
        ):
            return _s3_place(bucket, prefix, config, given)
        case "S3Storage", {
            "type": _, "bucket": bucket, "prefix": prefix, "config": config, "credentials": given, "can_write": _,
            "key_layout": "Standard", "extra_read_headers": [], "extra_write_headers": _, **rest
        } if not rest:  # fmt: skip
            return _s3_place(bucket, prefix, config, given)
        case _:
            raise _UnknownError


def _url(scheme: str, bucket: str, prefix: str | None) -> str:
    return f"{scheme}://{bucket}/{prefix or ''}".rstrip("/")


def _renamed(config: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Renames Icechunk's options to cuzarr's. An option whose new name is empty has no effect, and is left out."""
    if not config.keys() <= names.keys():
        raise _UnknownError
    return {names[name]: value for name, value in config.items() if names[name]}


def _s3_place(bucket: str, prefix: str | None, config: Any, given: Any) -> _Place:
    place = _Place(_url("s3", bucket, prefix), _s3_options(config))
    match given:
        case {"s3_credential_type": "refreshable", "pickled_function": list(function)}:
            # Unpickling is safe: Icechunk pickled the user's function in this process, and unpickles it itself to call it.
            place.renewal = Credentials(_S3Function(pickle.loads(bytes(function))))
        case _:
            place.options |= _of_s3(given)
    return place


class _S3Function:
    """The user's function that gives S3 credentials to Icechunk, wrapped so that it returns a dictionary."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def __call__(self) -> dict[str, Any]:
        given = self._function()
        return {
            "access_key_id": given.access_key_id,
            "secret_access_key": given.secret_access_key,
            "token": given.session_token,
            "expires_at": given.expires_after,
        }


def _s3_options(config: Any) -> dict[str, str]:
    match config:
        case [str() | None as region, str() | None as endpoint, bool(anonymous), bool(), bool(by_path), _, bool(pays), _]:
            if endpoint is not None and not by_path:
                raise _UnknownError  # the bucket would belong in the endpoint's name
            given = {
                "region": region,
                "endpoint": endpoint,
                "skip_signature": "true" if anonymous else None,
                "request_payer": "true" if pays else None,
            }
            return {name: value for name, value in given.items() if value is not None}
        case _:
            raise _UnknownError


def _of_s3(given: Any) -> dict[str, str]:
    match given:
        case ["static", str(key), str(secret), str() | None as token, _]:
            session = {} if token is None else {"session_token": token}
            return {"access_key_id": key, "secret_access_key": secret} | session
        case ["anonymous"]:
            return {"skip_signature": "true"}
        case None | ["from_env"]:
            return {}
        case _:
            raise _UnknownError


def _of_google(given: Any) -> dict[str, str]:
    match given:
        case ["anonymous"]:
            return {"skip_signature": "true"}
        case None | ["from_env"]:
            return {}
        case ["static", "service_account", str(path)]:
            return {"service_account_path": path}
        case ["static", "service_account_key", str(key)]:
            return {"service_account_key": key}
        case ["static", "application_credentials", str(path)]:
            return {"application_credentials": path}
        case ["static", "bearer_token", [str(token), _]]:
            return {"bearer_token": token}
        case _:
            raise _UnknownError


def _of_azure(given: Any) -> dict[str, str]:
    match given:
        case ["static", "access_key", str(key)]:
            return {"account_key": key}
        case ["static", "s_a_s_token", str(token)]:
            return {"sas_token": token}
        case None | ["from_env"]:
            return {}
        case _:
            raise _UnknownError


def _virtual(containers: list[Any], permissions: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Options for opening the files that an Icechunk repository's virtual chunks are in."""
    allowed: list[str] = []
    chosen: dict[str, dict[str, str]] = {}
    for name, prefix, store in containers:
        if prefix not in permissions:
            raise _UnknownError  # Icechunk's own error says how to permit it
        given = permissions[prefix]
        (kind, config), *others = store.items()
        match kind, given:
            case "local_file_system", None | ["local_file_system_access"]:
                scheme, options = "file", {}
            case "http", None | ["http_access"]:
                scheme, options = "http", _renamed(config, {})
            case "s3" | "s3_compatible", None | ["s3", *_]:
                scheme, options = "s3", _s3_options(config) | _of_s3(given and given[1:])
            case "gcs", None | ["gcs", *_]:
                scheme, options = "gs", _renamed(config, {"google_base_url": "base_url"}) | _of_google(given and given[1:])
            case _:
                raise _UnknownError
        if others or chosen.setdefault(scheme, options) != options:
            raise _UnknownError
        if any(mark in prefix for mark in ", \n"):
            raise _UnknownError  # the option would be cut at this character
        allowed.append(prefix)
        if name is not None:
            yield f"container.{name}", prefix
    yield from (
        (f"remote_options.{scheme}.{name}", value) for scheme, options in chosen.items() for name, value in options.items()
    )
    if allowed:
        yield "allow", ",".join(allowed)


def _state(packed: bytes) -> Any:
    """Decodes the state of an Icechunk session, which is a MessagePack document."""
    reader = _Reader(packed)
    value = reader.value()
    if reader.at != len(packed):
        raise _UnknownError
    return value


class _Reader:
    """A decoder of MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md), without extension types.

    The package msgpack is not used, because Icechunk does not install it. Without this decoder, all bytes would pass through Python.
    """

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self.at = 0

    def value(self) -> Any:
        code = self._number(1)
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 256
        if code < 0xC0:
            return self._text(code & 31) if code >= 0xA0 else self._list(code & 15) if code >= 0x90 else self._map(code & 15)
        match code:
            case 0xC0 | 0xC2 | 0xC3:
                return {0xC0: None, 0xC2: False, 0xC3: True}[code]
            case 0xC4 | 0xC5 | 0xC6:
                return self._bytes(self._number(1 << (code - 0xC4)))
            case 0xCA | 0xCB:
                return struct.unpack(">f" if code == 0xCA else ">d", self._bytes(4 << (code - 0xCA)))[0]
            case 0xCC | 0xCD | 0xCE | 0xCF:
                return self._number(1 << (code - 0xCC))
            case 0xD0 | 0xD1 | 0xD2 | 0xD3:
                return int.from_bytes(self._bytes(1 << (code - 0xD0)), "big", signed=True)
            case 0xD9 | 0xDA | 0xDB:
                return self._text(self._number(1 << (code - 0xD9)))
            case 0xDC | 0xDD:
                return self._list(self._number(2 << (code - 0xDC)))
            case 0xDE | 0xDF:
                return self._map(self._number(2 << (code - 0xDE)))
            case _:
                raise _UnknownError

    def _bytes(self, length: int) -> bytes:
        found = self._packed[self.at : self.at + length]
        if len(found) != length:
            raise _UnknownError
        self.at += length
        return found

    def _number(self, length: int) -> int:
        return int.from_bytes(self._bytes(length), "big")

    def _text(self, length: int) -> str:
        return self._bytes(length).decode()

    def _list(self, length: int) -> list[Any]:
        return [self.value() for _ in range(length)]

    def _map(self, length: int) -> dict[str, Any]:
        return {self._name(): self.value() for _ in range(length)}

    def _name(self) -> str:
        """Reads the name of an entry in a MessagePack map. In a map for a nested enum variant, ``{"Client": "AllowHttp"}``, the name is the
        value."""
        match self.value():
            case str(name):
                return name
            case dict(inner) if len(inner) == 1:
                return str(next(iter(inner.values())))
            case _:
                raise _UnknownError
