"""Calls of the package's functions with one wrong argument each: which functions, which arguments, and what may come of them."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import cuzarr
from cuzarr import codecs, dtype, memory, storage, xp
from cuzarr.errors import CuzarrError

VALUES = np.arange(24, dtype="int16").reshape(4, 6)

WRONG: dict[str, Any] = {
    "None": None, "text": "time", "bytes": b"x", "minus three": -3, "huge": 2**70, "long": 2**40, "fraction": 1.5, "nan": float("nan"), "complex": 1j,
    "dictionary": {"time": -1}, "empty list": [], "numbers": [1, 2, 3, 4, 5], "negatives": (-3, -3), "names": ["time", "nowhere"], "nothings": (None, None),
    "nested": [[1], [2, 3]], "elements": np.arange(3.0), "mask": np.ones((2, 2), bool), "object": object(), "class": dict, "slice": slice(None), "true": True,
    "huge pair": (2**70, 2**70), "path": Path("nowhere/at all"), "set": {1, "a"},
}  # fmt: skip


# Flags and names, of which Python asks whether they are true or equal to another one; of arrays it says itself that this has no answer.
NEVER_ARRAYS = """
    overwrite skip_unreadable read_only resume copy write_data dry_run progress keepdims density exact use_consolidated writing endpoint
    order mode device dimension_separator zarr_format method prototype fields unit units endianness shards
""".split()


# So many elements are not wrong: a machine that promises more memory than it has begins to make them.
MAKES_MEMORY = "xp.zeros xp.empty xp.full xp.arange xp.linspace".split()


class World:
    """What good arguments are made of."""

    @cached_property
    def group(self) -> cuzarr.Group:
        group = cuzarr.create_group({}, attributes={"a": 1})
        group.create_array("x", data=VALUES, chunks=(2, 3), dimension_names=("time", "place"))
        return group

    @property
    def store(self) -> cuzarr.storage.Store:
        return self.group.store

    @cached_property
    def array(self) -> cuzarr.Array:
        return cuzarr.create_array({}, data=VALUES, chunks=(2, 3), dimension_names=("time", "place"))

    @cached_property
    def sharded(self) -> cuzarr.Array:
        return cuzarr.create_array({}, data=VALUES, chunks=(1, 3), shards=(2, 3))

    @cached_property
    def floats(self) -> cuzarr.Array:
        return cuzarr.create_array({}, data=VALUES * 0.5, chunks=(2, 3))

    @property
    def device(self) -> str:
        return str(cuzarr.config.get("device"))

    @cached_property
    def there(self) -> cuzarr.DeviceArray:
        return cuzarr.DeviceArray.from_host(VALUES, self.device)

    @cached_property
    def text(self) -> cuzarr.Array:
        return cuzarr.create_array({}, data=np.array(["a", "b"]), chunks=(1,))

    @cached_property
    def plan(self) -> cuzarr.Expression:
        return self.floats * 1  # type: ignore[no-any-return]

    @cached_property
    def memory(self) -> cuzarr.storage.MemoryStore:
        return storage.MemoryStore()


Good = Callable[[World], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]

_REDUCTIONS = "sum prod mean min max argmin argmax any all count_nonzero nansum nanprod nanmean nanmin nanmax nanargmin nanargmax"
_CREATE = {
    "chunks": (2, 3), "dtype": "i2", "fill_value": 1, "attributes": {"a": 1}, "overwrite": True, "zarr_format": 3, "config": {"order": "F"}, "device": "cpu",
    "chunk_key_encoding": {"name": "v2", "separator": "."}, "dimension_names": ("a", "b"), "order": None,
}  # fmt: skip
_COPY = {
    "path": "c", "zarr_format": 3, "compressors": None, "codecs": None, "overwrite": True, "resume": False, "storage_options": None, "device": "cpu",
    "memory_limit": "1 MiB", "progress": False, "dry_run": False, "skip_unreadable": False,
}  # fmt: skip


def _double(block: Any) -> Any:
    return block * 2


GOOD: dict[str, Good] = {
    "create_array": lambda w: (cuzarr.create_array, ({},), {"name": "n", "shape": (4, 6), "shards": (4, 6), "filters": (), "compressors": None, "serializer": "auto", "storage_options": None, "metadata_store": None, **_CREATE}),
    "create_array from data": lambda w: (cuzarr.create_array, ({},), {"data": VALUES, "chunks": (2, 3), "shards": None, "write_data": True}),
    "create_array of format 2": lambda w: (cuzarr.create_array, ({},), {"shape": (4, 6), "dtype": "i2", "chunks": (2, 3), "filters": None, "compressors": None, "order": "C", "zarr_format": 2, "fill_value": 0}),
    "from_array": lambda w: (cuzarr.from_array, ({},), {"data": w.array, "chunks": (2, 3), "shards": None, "filters": (), "compressors": None, "serializer": "auto", "name": "n"}),
    "create": lambda w: (cuzarr.create, ((4, 6),), {"compressor": "auto", "store": {}, "path": "p", "filters": None, "codecs": None, "storage_options": None, "mode": "a", "data": None, "chunk_shape": None, "dimension_separator": None, "write_empty_chunks": None, **_CREATE}),
    "create of format 2": lambda w: (cuzarr.create, ((4, 6),), {"compressor": None, "filters": None, "zarr_format": 2, "dimension_separator": "/", "order": "F", "fill_value": 0}),
    "array": lambda w: (cuzarr.array, (VALUES,), {"chunks": (2, 3), "store": {}, "path": "p"}),
    "zeros": lambda w: (cuzarr.zeros, ((4, 6),), {"chunks": (2, 3), "dtype": "i2", "store": {}}),
    "full": lambda w: (cuzarr.full, ((4, 6), 3), {"chunks": (2, 3), "dtype": "i2"}),
    "zeros_like": lambda w: (cuzarr.zeros_like, (w.array,), {"zarr_format": 3, "chunks": (2, 3)}),
    "open_like": lambda w: (cuzarr.open_like, (w.array, "p"), {"store": {}}),
    "open": lambda w: (cuzarr.open, (w.store,), {"mode": "r", "zarr_format": 3, "path": "x", "storage_options": None, "config": {"order": "C"}, "device": "cpu", "metadata_store": None}),
    "open_array": lambda w: (cuzarr.open_array, (w.store,), {"mode": "r", "zarr_format": 3, "path": "x", "storage_options": None, "config": {"order": "C"}, "device": "cpu", "metadata_store": None}),
    "open_group": lambda w: (cuzarr.open_group, (w.store,), {"mode": "r", "zarr_format": 3, "path": "", "storage_options": None, "device": "cpu", "use_consolidated": None, "attributes": None, "metadata_store": None}),
    "open_consolidated": lambda w: (cuzarr.open_consolidated, (cuzarr.consolidate_metadata(w.store).store,), {"path": ""}),
    "create_group": lambda w: (cuzarr.create_group, ({},), {"path": "p", "zarr_format": 3, "overwrite": True, "attributes": {"a": 1}, "storage_options": None}),
    "group": lambda w: (cuzarr.group, ({},), {"path": "p", "zarr_format": 3, "attributes": {"a": 1}}),
    "create_hierarchy": lambda w: (lambda **given: list(cuzarr.create_hierarchy(**given)), (), {"store": w.memory, "nodes": {"a": cuzarr.GroupMetadata()}, "overwrite": False}),
    "consolidate_metadata": lambda w: (cuzarr.consolidate_metadata, (w.store,), {"path": "", "zarr_format": 3}),
    "save": lambda w: (cuzarr.save, ({}, VALUES), {"path": "p", "zarr_format": 3}),
    "save_array": lambda w: (cuzarr.save_array, ({}, VALUES), {"path": "p", "zarr_format": 3, "mode": "a"}),
    "save_group": lambda w: (cuzarr.save_group, ({}, VALUES), {"path": "p", "zarr_format": 3}),
    "load": lambda w: (cuzarr.load, (w.store,), {"path": "x", "zarr_format": 3}),
    "tree": lambda w: (cuzarr.tree, (w.group,), {"expand": None, "level": 1}),
    "copy": lambda w: (cuzarr.copy, (w.array, {}), _COPY),
    "copy of a group": lambda w: (cuzarr.copy, (w.group, {}), _COPY),
    "rechunk": lambda w: (cuzarr.rechunk, (w.array, {}), {"chunks": (4, 2), "shards": None, **_COPY}),
    "rechunk of shards": lambda w: (cuzarr.rechunk, (w.sharded, {}), {"chunks": (1, 2), "shards": (4, 2)}),
    "rechunk of a group": lambda w: (cuzarr.rechunk, (w.group, {}), {"chunks": (4, 2), "shards": None}),
    "pyramid": lambda w: (cuzarr.pyramid, (w.array, {}), {"method": "mean", "levels": 2, "axes": "yx", "scale": (1, 1), "units": ("meter", None), "factors": (2, 2), "channels": ["one"], "name": "n", "version": "0.5", "chunks": (2, 2), "shards": None, "compressors": None, "path": "p", "overwrite": False, "memory_limit": "1 MiB", "device": "cpu"}),
    "map_blocks": lambda w: (cuzarr.map_blocks, (_double, w.array), {"out": {}, "dtype": "i2", "chunks": (2, 2), "shards": None, "overlap": 0, "device": "cpu", "memory_limit": "1 MiB", "progress": None, "resume": False}),
    "map_blocks in memory": lambda w: (cuzarr.map_blocks, (_double, w.array), {"dtype": "i2", "chunks": None, "overlap": (0, 0)}),
    "reduce": lambda w: (cuzarr.reduce, (lambda block: block.sum(0), np.add, w.array), {"axis": 0, "keepdims": False, "finish": None, "initial": None, "out": {}, "dtype": "i8", "chunks": (3,), "shards": None, "device": "cpu", "memory_limit": "1 MiB", "resume": False}),
    "reduce in memory": lambda w: (cuzarr.reduce, (np.sum, np.add, w.array), {"initial": None, "memory_limit": "1 MiB"}),
    **{name: (lambda w, name=name: (getattr(cuzarr.xp, name), (w.floats,), {"axis": 0, "keepdims": False})) for name in _REDUCTIONS.split()},  # type: ignore[misc]
    "mean in memory": lambda w: (cuzarr.xp.mean, (VALUES,), {"axis": 0, "keepdims": False}),
    "std": lambda w: (cuzarr.xp.std, (w.floats,), {"axis": 0, "ddof": 1, "keepdims": False}),
    "Array.mean": lambda w: (w.array.mean, (0,), {"keepdims": False}),
    "Array.var": lambda w: (w.array.var, (0,), {"ddof": 1}),
    "Expression.sum": lambda w: (w.plan.sum, (0,), {"keepdims": False}),
    "quantile": lambda w: (cuzarr.xp.quantile, (w.floats, 0.5), {"axis": 0, "method": "linear", "keepdims": False}),
    "percentile": lambda w: (cuzarr.xp.percentile, (w.floats, [5, 95]), {"axis": 0, "method": "nearest"}),
    "median": lambda w: (cuzarr.xp.median, (w.floats,), {"axis": 0}),
    "histogram": lambda w: (lambda *given, **named: [getattr(part, "compute", int)() for part in cuzarr.xp.histogram(*given, **named)], (w.floats,), {"bins": 3, "range": (0, 5), "density": False}),
    "histogram in memory": lambda w: (cuzarr.xp.histogram, (VALUES,), {"bins": [1, 2, 3], "density": False}),
    "histogram_bin_edges": lambda w: (cuzarr.xp.histogram_bin_edges, (w.floats,), {"bins": 3, "range": (0, 5)}),
    "add": lambda w: (cuzarr.xp.add, (w.array, 1), {}),
    "add in memory": lambda w: (cuzarr.xp.add, (VALUES, 1), {}),
    "sin": lambda w: (cuzarr.xp.sin, (w.array,), {}),
    "where": lambda w: (cuzarr.xp.where, (w.array > 1, w.array, 0), {}),
    "clip": lambda w: (cuzarr.xp.clip, (w.array,), {"min": 0, "max": 1}),
    "round": lambda w: (cuzarr.xp.round, (w.floats,), {"decimals": 1}),
    "astype": lambda w: (cuzarr.xp.astype, (w.array, "f4"), {}),
    "Array.__add__": lambda w: (lambda other: w.array + other, (1,), {}),
    "Array.__radd__": lambda w: (lambda other: other * w.array, (1,), {}),
    "Array.__eq__": lambda w: (lambda other: w.array == other, (1,), {}),
    "Array.__lt__": lambda w: (lambda other: w.array < other, (1,), {}),
    "Array.astype": lambda w: (w.array.astype, ("f4",), {}),
    "Array.clip": lambda w: (w.array.clip, (0, 1), {}),
    "Array.round": lambda w: (w.floats.round, (1,), {}),
    "Array.__getitem__": lambda w: (lambda key: w.array[key], (0,), {}),
    "Array.__setitem__": lambda w: (w.array.__setitem__, (0, 1), {}),
    "Array.oindex": lambda w: (lambda key: w.array.oindex[key], (0,), {}),
    "Array.vindex": lambda w: (lambda key: w.array.vindex[key], (([0], [1]),), {}),
    "Array.blocks": lambda w: (lambda key: w.array.blocks[key], (0,), {}),
    "Array.oindex set": lambda w: (lambda key, value: w.array.oindex.__setitem__(key, value), (([0, 1], [1]), 1), {}),
    "Array.vindex set": lambda w: (lambda key, value: w.array.vindex.__setitem__(key, value), (([0], [1]), 1), {}),
    "Array.blocks set": lambda w: (lambda key, value: w.array.blocks.__setitem__(key, value), (0, 1), {}),
    "text.__setitem__": lambda w: (w.text.__setitem__, (0, "b"), {}),
    "Array.getitem": lambda w: (w.array.getitem, (0,), {"prototype": None, "progress": None}),
    "Array.setitem": lambda w: (w.array.setitem, (0, 1), {"prototype": None, "progress": None}),
    "Array.read": lambda w: (w.array.read, (0,), {"out": None, "dtype": "f4", "prototype": None, "device": None}),
    "Array.read to several": lambda w: (w.array.read, (slice(None),), {"device": ["cpu", "cpu"], "dtype": "f4"}),
    "Array.read_many": lambda w: (w.array.read_many, ([0, 1],), {"out": None, "dtype": "f4", "prototype": None}),
    "Array.get_basic_selection": lambda w: (w.array.get_basic_selection, (0,), {"out": None, "prototype": None, "fields": None}),
    "Array.set_basic_selection": lambda w: (w.array.set_basic_selection, (0, 1), {"fields": None, "prototype": None}),
    "Array.get_orthogonal_selection": lambda w: (w.array.get_orthogonal_selection, (([0], [1]),), {"out": None, "prototype": None, "fields": None}),
    "Array.get_coordinate_selection": lambda w: (w.array.get_coordinate_selection, (([0], [1]),), {"out": None, "prototype": None, "fields": None}),
    "Array.get_mask_selection": lambda w: (w.array.get_mask_selection, (VALUES > 3,), {"out": None, "prototype": None, "fields": None}),
    "Array.set_mask_selection": lambda w: (w.array.set_mask_selection, (VALUES > 3, 1), {"fields": None, "prototype": None}),
    "Array.get_block_selection": lambda w: (w.array.get_block_selection, (0,), {"out": None, "prototype": None, "fields": None}),
    "Array.resize": lambda w: (w.array.resize, ((2, 2),), {}),
    "Array.append": lambda w: (w.array.append, (VALUES,), {"axis": 0}),
    "Array.explain": lambda w: (w.array.explain, (0,), {"writing": False}),
    "Array.with_config": lambda w: (w.array.with_config, ({"order": "F"},), {}),
    "Array.with_device": lambda w: (lambda device: w.array.with_device(device)[0], ("cpu",), {}),
    "Array.update_attributes": lambda w: (w.array.update_attributes, ({"a": 1},), {}),
    "Array.attrs": lambda w: (lambda name, value: w.array.attrs.__setitem__(name, value), ("a", 1), {}),
    "Array.attrs.put": lambda w: (w.array.attrs.put, ({"a": 1},), {}),
    "Array.same_as": lambda w: (w.array.same_as, (w.array,), {}),
    "Array.__contains__": lambda w: (w.array.__contains__, (1,), {}),
    "Array.from_dict": lambda w: (cuzarr.Array.from_dict, (w.array.store_path, w.array.metadata.to_dict()), {}),
    "Array.open": lambda w: (cuzarr.Array.open, (w.array.store_path,), {"config": None}),
    "Array": lambda w: (cuzarr.Array, (w.array.store_path, w.array.metadata), {"config": None, "device": None}),
    "Expression.compute": lambda w: (w.plan.compute, (), {"device": "cpu", "memory_limit": "1 MiB", "progress": None}),
    "Expression.store": lambda w: (w.plan.store, (cuzarr.zeros((4, 6)),), {"device": "cpu", "memory_limit": "1 MiB", "progress": None, "resume": False}),
    "Expression.__getitem__": lambda w: (lambda key: w.plan[key], (0,), {}),
    "Expression.astype": lambda w: (w.plan.astype, ("f4",), {}),
    "Group.__getitem__": lambda w: (w.group.__getitem__, ("x",), {}),
    "Group.__setitem__": lambda w: (w.group.__setitem__, ("y", VALUES), {}),
    "Group.__delitem__": lambda w: (w.group.__delitem__, ("x",), {}),
    "Group.__contains__": lambda w: (w.group.__contains__, ("x",), {}),
    "Group.get": lambda w: (w.group.get, ("x", None), {}),
    "Group.get_array": lambda w: (w.group.get_array, ("x",), {}),
    "Group.create_array": lambda w: (w.group.create_array, ("n",), {"shape": (4, 6), "dtype": "i2", "chunks": (2, 3), "compressors": None, "fill_value": 0}),
    "Group.require_array": lambda w: (w.group.require_array, ("x",), {"shape": (4, 6), "dtype": "i2", "exact": True}),
    "Group.create_group": lambda w: (w.group.create_group, ("n",), {"overwrite": True, "attributes": {"a": 1}}),
    "Group.require_group": lambda w: (w.group.require_group, ("n",), {"overwrite": True}),
    "Group.require_groups": lambda w: (w.group.require_groups, ("n", "m"), {}),
    "Group.create_hierarchy": lambda w: (lambda *given, **named: list(w.group.create_hierarchy(*given, **named)), ({"a": cuzarr.GroupMetadata()},), {"overwrite": False}),
    "Group.members": lambda w: (lambda **given: list(w.group.members(**given)), (), {"max_depth": 1}),
    "Group.nmembers": lambda w: (w.group.nmembers, (), {"max_depth": 1}),
    "Group.tree": lambda w: (lambda **given: str(w.group.tree(**given)), (), {"expand": None, "level": 1}),
    "Group.zeros": lambda w: (w.group.zeros, (), {"name": "n", "shape": (4, 6), "dtype": "i2"}),
    "Group.full": lambda w: (w.group.full, (), {"name": "n", "shape": (4, 6), "fill_value": 1}),
    "Group.empty_like": lambda w: (w.group.empty_like, (), {"name": "n", "data": w.array}),
    "Group.update_attributes": lambda w: (w.group.update_attributes, ({"a": 1},), {}),
    "Group.from_store": lambda w: (cuzarr.Group.from_store, ({},), {"attributes": {"a": 1}, "zarr_format": 3, "overwrite": False}),
    "Group.open": lambda w: (cuzarr.Group.open, (w.store,), {"zarr_format": 3}),
    "Group": lambda w: (cuzarr.Group, (w.group.store_path, w.group.metadata), {"device": None}),
    "GroupMetadata": lambda w: (lambda **given: cuzarr.GroupMetadata(**given).documents(), (), {"attributes": {"a": 1}, "zarr_format": 3}),
    "GroupMetadata.from_dict": lambda w: (cuzarr.GroupMetadata.from_dict, ({"zarr_format": 3, "node_type": "group", "attributes": {}},), {}),
    "ArrayV3Metadata.from_dict": lambda w: (cuzarr.ArrayV3Metadata.from_dict, (w.array.metadata.to_dict(),), {}),
    "ArrayConfig": lambda w: (cuzarr.ArrayConfig, (), {"order": "C", "write_empty_chunks": False}),
    "config.set": lambda w: (cuzarr.config.local, ({"array.order": "C"},), {}),
    "config.get": lambda w: (cuzarr.config.get, ("array.order",), {}),
    "config memory_limit": lambda w: (lambda value: cuzarr.config.local({"memory_limit": value}), (1000,), {}),
    "config device": lambda w: (lambda value: cuzarr.config.local({"device": value}), ("cpu",), {}),
    "config array.order": lambda w: (lambda value: cuzarr.config.local({"array.order": value}), ("C",), {}),
    "config threading": lambda w: (lambda value: cuzarr.config.local({"threading.max_workers": value}), (1,), {}),
    "xp.zeros": lambda w: (xp.zeros, ((2, 3),), {"dtype": "f4", "device": "cpu"}),
    "xp.empty": lambda w: (xp.empty, ((2, 3),), {"dtype": "f4", "device": "cpu"}),
    "xp.full": lambda w: (xp.full, ((2, 3), 1), {"dtype": "f4", "device": "cpu"}),
    "xp.full_like": lambda w: (xp.full_like, (VALUES, 1), {"dtype": "f4", "device": "cpu"}),
    "xp.arange": lambda w: (xp.arange, (1, 5), {"step": 1, "dtype": "f4", "device": "cpu"}),
    "xp.linspace": lambda w: (xp.linspace, (0, 1), {"num": 5, "dtype": "f4", "endpoint": True, "device": "cpu"}),
    "xp.asarray": lambda w: (xp.asarray, (VALUES,), {"dtype": "f4", "device": "cpu"}),
    "xp.asnumpy": lambda w: (xp.asnumpy, (VALUES,), {}),
    "LocalStore": lambda w: (storage.LocalStore, (Path("local"),), {"read_only": False}),
    "MemoryStore": lambda w: (storage.MemoryStore, ({},), {"read_only": False}),
    "ZipStore": lambda w: (storage.ZipStore, ("z.zip",), {"mode": "w", "compression": 0}),
    "SplitStore": lambda w: (storage.SplitStore, (storage.MemoryStore(), storage.MemoryStore()), {}),
    "StorePath": lambda w: (storage.StorePath, (w.memory, "a"), {}),
    "make_store": lambda w: (storage.make_store, (w.store,), {"read_only": False, "storage_options": None, "mode": "a"}),
    "make_store_path": lambda w: (storage.make_store_path, (w.store,), {"path": "a", "mode": "a", "storage_options": None, "metadata_store": None}),
    "normalize_path": lambda w: (storage.normalize_path, ("a/b",), {}),
    "Store.get": lambda w: (w.memory.get, ("a",), {}),
    "Store.set": lambda w: (w.memory.set, ("a", b"b"), {}),
    "Store.delete": lambda w: (w.memory.delete, ("a",), {}),
    "Store.exists": lambda w: (w.memory.exists, ("a",), {}),
    "Store.list_prefix": lambda w: (lambda prefix: list(w.memory.list_prefix(prefix)), ("a",), {}),
    "Store.list_dir": lambda w: (lambda prefix: list(w.memory.list_dir(prefix)), ("a",), {}),
    "Store.delete_dir": lambda w: (w.memory.delete_dir, ("a",), {}),
    "parse_dtype": lambda w: (dtype.parse_dtype, ("i4",), {"zarr_format": 3}),
    "FixedLengthUTF32": lambda w: (dtype.FixedLengthUTF32, (), {"length": 3}),
    "RawBytes": lambda w: (dtype.RawBytes, (), {"length": 3}),
    "DateTime64": lambda w: (dtype.DateTime64, (), {"unit": "s", "scale_factor": 1}),
    "Struct": lambda w: (dtype.Struct, (), {"fields": [("a", "i4")]}),
    "Int32": lambda w: (dtype.Int32, (), {"endianness": "little"}),
    "BloscCodec": lambda w: (codecs.BloscCodec, (), {"typesize": 4, "cname": "zstd", "clevel": 5, "shuffle": "shuffle", "blocksize": 0}),
    "GzipCodec": lambda w: (codecs.GzipCodec, (), {"level": 5}),
    "ZstdCodec": lambda w: (codecs.ZstdCodec, (), {"level": 5, "checksum": False}),
    "BytesCodec": lambda w: (codecs.BytesCodec, (), {"endian": "little"}),
    "TransposeCodec": lambda w: (codecs.TransposeCodec, (), {"order": (1, 0)}),
    "ShardingCodec": lambda w: (codecs.ShardingCodec, (), {"chunk_shape": (2, 3), "codecs": (codecs.BytesCodec(),), "index_codecs": (codecs.BytesCodec(),), "index_location": "end"}),
    "CastValue": lambda w: (codecs.CastValue, (), {"data_type": "int8", "rounding": "nearest-even", "out_of_range": "clamp", "scalar_map": None}),
    "ScaleOffset": lambda w: (codecs.ScaleOffset, (), {"offset": 1, "scale": 2}),
    "ExtensionCodec": lambda w: (codecs.ExtensionCodec, ({"name": "a"},), {}),
    "numcodecs.Zstd": lambda w: (codecs.numcodecs.Zstd, (), {"level": 3}),
    "numcodecs.Delta": lambda w: (codecs.numcodecs.Delta, (), {"dtype": "i2"}),
    "numcodecs.Blosc": lambda w: (codecs.numcodecs.Blosc, (), {"cname": "lz4", "clevel": 5, "shuffle": 1}),
    "Decoder": lambda w: (codecs.Decoder, (codecs.ZstdCodec(),), {"device": "cpu"}),
    "Encoder": lambda w: (codecs.Encoder, (codecs.ZstdCodec(),), {"device": "cpu"}),
    "memory.limit": lambda w: (lambda size: memory.limit(size).__exit__(), ("1 MiB",), {}),
    "memory.info": lambda w: (memory.info, (), {"device": "cpu"}),
    "memory.use_allocator": lambda w: (memory.use_allocator, ("cuzarr",), {}),
    "Module": lambda w: (cuzarr.kernels.Module, ("",), {"device": "cpu", "options": (), "name": "a"}),
    "ElementwiseKernel": lambda w: (cuzarr.kernels.ElementwiseKernel, ("T x", "T y", "y = x"), {"name": "a", "preamble": "", "options": ()}),
    "Buffer": lambda w: (cuzarr.buffer.cpu.Buffer, (np.zeros(3, "u1"),), {}),
    "Buffer.from_bytes": lambda w: (cuzarr.buffer.cpu.Buffer.from_bytes, (b"a",), {}),
    "NDBuffer": lambda w: (cuzarr.buffer.cpu.NDBuffer, (VALUES,), {}),
    "NDBuffer.create": lambda w: (cuzarr.buffer.cpu.NDBuffer.create, (), {"shape": (2, 3), "dtype": "i4", "order": "C", "fill_value": 0}),
}  # fmt: skip


GOOD_ON_DEVICE: dict[str, Good] = {
    "DeviceArray.empty": lambda w: (cuzarr.DeviceArray.empty, ((2, 3), "f4", w.device), {"order": "C"}),
    "DeviceArray.from_host": lambda w: (cuzarr.DeviceArray.from_host, (VALUES, w.device), {}),
    "DeviceArray.reshape": lambda w: (w.there.reshape, ((6, 4),), {"order": "C", "copy": None}),
    "DeviceArray.transpose": lambda w: (w.there.transpose, ((1, 0),), {}),
    "DeviceArray.view": lambda w: (w.there.view, ("u1",), {}),
    "DeviceArray.astype": lambda w: (w.there.astype, ("f4",), {"order": "C"}),
    "DeviceArray.copy": lambda w: (w.there.copy, (), {"order": "C"}),
    "DeviceArray.fill": lambda w: (w.there.fill, (1,), {}),
    "DeviceArray.to": lambda w: (w.there.to, (), {"device": "cpu"}),
    "DeviceArray.__getitem__": lambda w: (lambda key: w.there[key], (0,), {}),
    "DeviceArray.__setitem__": lambda w: (w.there.__setitem__, (0, 1), {}),
    "DeviceArray.__add__": lambda w: (lambda other: w.there + other, (1,), {}),
    "DeviceArray.__iadd__": lambda w: (w.there.__iadd__, (1,), {}),
    "DeviceArray.__eq__": lambda w: (lambda other: w.there == other, (1,), {}),
    "DeviceArray.mean": lambda w: (w.there.mean, (0,), {}),
    "DeviceArray.round": lambda w: (w.there.round, (0,), {}),
    "xp.zeros on a device": lambda w: (xp.zeros, ((2, 3),), {"dtype": "f4"}),
    "xp.full on a device": lambda w: (xp.full, ((2, 3), 1), {"dtype": "f4"}),
    "xp.asarray on a device": lambda w: (xp.asarray, (VALUES,), {"dtype": "f4"}),
    "quantile on a device": lambda w: (cuzarr.xp.quantile, (w.there, 0.5), {"axis": 0}),
    "Array.__setitem__ on a device": lambda w: (w.array.with_device(w.device).__setitem__, (0, 1), {}),
    "Array.oindex on a device": lambda w: (lambda key: w.array.with_device(w.device).oindex[key], ([0],), {}),
    "map_blocks on a device": lambda w: (cuzarr.map_blocks, (_double, w.array), {"dtype": "i2", "overlap": 0, "device": w.device}),
}  # fmt: skip
"""Calls on a GPU, to which :data:`GOOD` adds all that need none."""


def calls_of(name: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls with one argument each that is wrong, and what is. What is wrong for one argument may be right for another."""
    good = (GOOD | GOOD_ON_DEVICE)[name]
    _, args, kwargs = good(World())
    for argument in (*range(len(args)), *kwargs):
        for kind, value in WRONG.items():
            if kind == "long" and name.removesuffix(" on a device") in MAKES_MEMORY:
                continue
            if argument not in NEVER_ARRAYS or not isinstance(value, np.ndarray):
                yield f"{argument} is {kind}", lambda argument=argument, value=value: _call(good, argument, value)  # type: ignore[misc]


def _call(good: Good, argument: int | str, value: Any) -> Any:
    function, args, kwargs = good(World())
    if isinstance(argument, int):
        return function(*args[:argument], value, *args[argument + 1 :], **kwargs)
    return function(*args, **kwargs | {argument: value})


def problem(call: Callable[[], Any]) -> str | None:
    """What is wrong with the error that a call raises: it is none of the package's own, and none that a statement of ours raises."""
    try:
        call()
    except CuzarrError:
        return None
    except Exception as error:  # noqa: BLE001, any other is what is looked for
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        assert frame is not None
        file, line = (
            frame.tb_frame.f_code.co_filename,
            linecache.getline(frame.tb_frame.f_code.co_filename, frame.tb_lineno).strip(),
        )
        if getattr(error, "__notes__", None) and error.__notes__[0].startswith("in "):
            return None  # of the function that the caller gave
        if isinstance(error, KeyError) and line == "raise error":
            return None  # as of a dictionary: there is no such member
        if isinstance(error, TypeError) and (
            line.startswith("raise ") or file == __file__ or str(error).startswith("argument '")
        ):
            return None
        return f"{type(error).__name__}: {str(error)[:100]!r} in {Path(file).name}:{frame.tb_lineno} {line[:80]}"
    return None
