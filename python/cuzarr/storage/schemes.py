"""Schemes of URLs, such as ``s3``, at which stores can be opened. The Rust side opens those in ``BUILT_IN``."""

from __future__ import annotations

from cuzarr._names import did_you_mean

LOCAL = ("file", "memory", "zip")
"""Schemes of URLs for stores on this machine: those of ``LocalStore``, ``MemoryStore`` and ``ZipStore``."""

BUCKETS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
"""Schemes of cloud storage, each with the scheme that tables of references use for it. The first segment of their URLs is the bucket."""

SERVERS = ("http", "https")
"""Schemes of URLs of web servers."""

BUILT_IN = (*LOCAL, *BUCKETS, *SERVERS, "reference", "icechunk")
"""Schemes of URLs that cuzarr opens without another library."""

KNOWN = (*BUILT_IN, "ftp", "sftp", "github", "git")
"""The schemes that a misspelt scheme is compared with: the built-in ones and common ones of fsspec, which also knows others."""

PLACELESS = ("reference", "github", "git")
"""Schemes of URLs that may be empty behind the scheme, because ``storage_options`` can say where the data is."""


def near(scheme: str) -> str | None:
    """A hint that suggests the known scheme nearest to a misspelt one; ``None`` if the scheme is known."""
    return None if scheme in KNOWN else did_you_mean(scheme, KNOWN)
