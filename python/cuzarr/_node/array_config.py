"""``ArrayConfig``, the settings of an open array."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from cuzarr._checks import dictionary, whole
from cuzarr._config import config as global_config
from cuzarr._config.keys import DEFAULTS, check_value
from cuzarr.errors import ArgumentTypeError, InvalidArgumentError


@dataclass(frozen=True)
class ArrayConfig:
    """Settings for reading and writing an open array. They are not stored with the array.

    Settings that are not given come from the configuration. Ranges of a shard of 1 MiB and more are never joined with the next range.

    Parameters
    ----------
    order : {"C", "F"}
        Memory order of results, for arrays of format 3.
    write_empty_chunks : bool
        Whether chunks that hold the fill value only are stored.
    read_missing_chunks : bool
        Whether missing chunks are read as the fill value; otherwise they are an error.
    sharding_coalesce_max_gap_bytes : int
        Ranges of a shard that are at most this many bytes apart are read by one request.
    sharding_coalesce_max_bytes : int
        Largest size of such a request, in bytes.
    chunk_cache : bool
        Whether decoded chunks are kept in the chunk cache of the device, for reads that need them again.
    accelerator : {"none", "auto", "cuda:0", ...}, optional
        The GPU that decodes and encodes for results and values in host memory; ``None`` leaves it to the setting ``accelerator``.

    Raises
    ------
    ConfigInvalidError
        A value is not allowed.

    Examples
    --------
    >>> import cuzarr
    >>> array = cuzarr.zeros((2,), store={}, config=cuzarr.ArrayConfig(write_empty_chunks=True))
    >>> array.config.write_empty_chunks
    True
    """

    order: Literal["C", "F"] = "C"
    write_empty_chunks: bool = False
    read_missing_chunks: bool = True
    sharding_coalesce_max_gap_bytes: int = 1 << 20
    sharding_coalesce_max_bytes: int = 16 << 20
    chunk_cache: bool = False
    accelerator: str | None = None

    def __post_init__(self) -> None:
        if self.order not in ("C", "F"):
            raise InvalidArgumentError(f"order is {self.order!r}, expected 'C' or 'F'")
        for name in ("write_empty_chunks", "read_missing_chunks", "chunk_cache"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ArgumentTypeError(f"{name} is {getattr(self, name)!r}, expected True or False")
        for name in ("sharding_coalesce_max_gap_bytes", "sharding_coalesce_max_bytes"):
            whole(getattr(self, name), name, 0)
        if self.accelerator is not None:
            check_value("accelerator", self.accelerator, "an array's settings")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ArrayConfig:
        """Array settings from a dictionary. Missing settings come from the global configuration.

        Parameters
        ----------
        data : dict
            Some settings by name.

        Returns
        -------
        ArrayConfig
            The settings.

        Raises
        ------
        InvalidArgumentError
            There is no such setting, or it cannot have this value.

        Examples
        --------
        >>> from cuzarr import ArrayConfig
        >>> ArrayConfig.from_dict({"order": "F"}).order
        'F'
        """
        names = cls.__dataclass_fields__
        data = dictionary(data, "config")
        if unknown := data.keys() - names:
            raise TypeError(f"unknown array settings {sorted(map(str, unknown))}, expected some of {', '.join(names)}")
        values = global_config._values()
        configured: dict[str, Any] = {name: values.get(f"array.{name}") for name in names}
        return cls(**configured | dict(data))

    def to_dict(self) -> dict[str, Any]:
        """A dictionary of all settings by name.

        Returns
        -------
        dict
            Names and values.

        Examples
        --------
        >>> from cuzarr import ArrayConfig
        >>> ArrayConfig.from_dict({"order": "F"}).to_dict()["order"]
        'F'
        """
        return asdict(self)


ArrayConfigLike = ArrayConfig | Mapping[str, Any]
_KEYS = tuple(key for name in ArrayConfig.__dataclass_fields__ if (key := f"array.{name}") in DEFAULTS)


@functools.lru_cache(maxsize=64)
def _configured(*values: Any) -> ArrayConfig:
    """The array settings that the global configuration has. Equal values are checked only once."""
    return ArrayConfig(*values)


def parse_array_config(data: Any) -> ArrayConfig:
    """Array settings from ``None`` (the global configuration), a dictionary, or a settings object of cuzarr or zarr-python."""
    if data is None:
        return _configured(*map(global_config._values().__getitem__, _KEYS))
    if isinstance(data, ArrayConfig):
        return data
    return ArrayConfig.from_dict(data.to_dict() if hasattr(data, "to_dict") else data)


def with_settings(config: ArrayConfigLike | None, **settings: bool | str | None) -> ArrayConfigLike | None:
    """Array settings with these replaced; those that are ``None`` stay as they are."""
    given = {name: value for name, value in settings.items() if value is not None}
    return replace(parse_array_config(config), **given) if given else config  # type: ignore[arg-type]  # checked when it is made


def parse_changes(config: Any) -> dict[str, Any]:
    """A dictionary of the array settings to change, after their names and values are checked."""
    changes = dictionary(config.to_dict() if hasattr(config, "to_dict") else config, "config")
    ArrayConfig.from_dict(changes)
    return changes
