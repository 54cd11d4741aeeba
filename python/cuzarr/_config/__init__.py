"""The configuration of cuzarr: ``config``, and the meaning of its keys."""

from cuzarr._config.classes import device_class, resolve_class
from cuzarr._config.keys import DEFAULTS, parse_size
from cuzarr._config.settings import ArrayType, Config, ConfigSet, LocalSet, config, device_name

__all__ = [
    "DEFAULTS",
    "ArrayType",
    "Config",
    "ConfigSet",
    "LocalSet",
    "config",
    "device_class",
    "device_name",
    "parse_size",
    "resolve_class",
]
