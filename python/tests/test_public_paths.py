"""Public things say the paths that users import them from, in pickles too, and each name has one home."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pickletools
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cuzarr
import cuzarr.kvikio
from cuzarr import codecs, storage
from cuzarr.buffer import cpu, default_buffer_prototype

PUBLIC = [
    "cuzarr", "cuzarr.api.asynchronous", "cuzarr.api.synchronous", "cuzarr.buffer", "cuzarr.buffer.cpu", "cuzarr.buffer.gpu",
    "cuzarr.codecs", "cuzarr.codecs.numcodecs", "cuzarr.dtype", "cuzarr.errors", "cuzarr.kernels", "cuzarr.kvikio",
    "cuzarr.loader", "cuzarr.memory", "cuzarr.ome", "cuzarr.references", "cuzarr.sparse", "cuzarr.stacks.earth2studio", "cuzarr.storage", "cuzarr.typing", "cuzarr.xp", "cuzarr.zarr",
]  # fmt: skip


def public_things(name: str) -> Iterator[tuple[str, Any]]:
    module = importlib.import_module(name)
    names = getattr(
        module, "__all__", [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    )
    for one in names:
        value = getattr(module, one)
        if not one.startswith("_") and callable(value) and getattr(value, "__module__", None) is not None:
            yield one, value


@pytest.mark.parametrize("name", PUBLIC)
def test_public_things_name_a_path_from_which_they_are_imported(name: str) -> None:
    for one, value in public_things(name):
        home = value.__module__
        assert home in (*PUBLIC, "enum", "typing") or not home.startswith("cuzarr"), f"{name}.{one} says {home}"
        if inspect.isclass(value) and home.startswith("cuzarr"):
            assert getattr(importlib.import_module(home), value.__qualname__) is value


def arrays() -> tuple[cuzarr.Array, cuzarr.Group]:
    group = cuzarr.create_group({}, attributes={"a": 1})
    array = group.create_array("x", data=np.arange(6, dtype="i4"), chunks=(2,), shards=(4,))
    return array, group


def plugin() -> Any:
    return pytest.importorskip("cuzarr.zarr", reason="skipped: zarr-python is not installed")


PICKLED: dict[str, Callable[[Any], Any]] = {
    "array": lambda path: arrays()[0],
    "group": lambda path: arrays()[1],
    "asynchronous array": lambda path: arrays()[0].async_array,
    "asynchronous group": lambda path: arrays()[1].async_group,
    "settings": lambda path: cuzarr.ArrayConfig(order="F"),
    "metadata": lambda path: arrays()[0].metadata,
    "metadata of format 2": lambda path: cuzarr.zeros((2,), store={}, zarr_format=2).metadata,
    "group's metadata": lambda path: cuzarr.consolidate_metadata(arrays()[1].store).metadata,
    "data type": lambda path: cuzarr.dtype.Struct(fields=[("a", "int8")]),
    "codecs": lambda path: (codecs.BloscCodec(), codecs.ShardingCodec(chunk_shape=(2,)), codecs.numcodecs.LZ4(), codecs.CastValue(data_type="int8")),
    "place": lambda path: arrays()[0].store_path,
    "directory": lambda path: storage.LocalStore(path / "local"),
    "directory for cuFile": lambda path: storage.GDSStore(path / "gds"),
    "memory": lambda path: storage.MemoryStore(),
    "memory of a mapping": lambda path: storage.MemoryStore({"a": b"b"}),
    "device memory": lambda path: storage.GpuMemoryStore(device="cpu"),
    "zip file": lambda path: storage.ZipStore(path / "a.zip", mode="w"),
    "two stores": lambda path: storage.SplitStore(storage.MemoryStore(), storage.MemoryStore()),
    "foreign store": lambda path: storage.ForeignStore({"a": b"b"}),
    "buffers": lambda path: (cpu.Buffer.from_bytes(b"ab"), cpu.NDBuffer.from_numpy_array(np.arange(3)), default_buffer_prototype()),
    "functions": lambda path: (cuzarr.xp.sin, cuzarr.xp.sum, cuzarr.open_array, cuzarr.xp.zeros, cuzarr.map_blocks),
    "error": lambda path: cuzarr.errors.ChunkCorruptError("broken", hint="mend it"),
    "codecs of KvikIO": lambda path: cuzarr.kvikio.CompatCompressor(codecs.numcodecs.LZ4(), codecs.numcodecs.LZ4()),
    "store of KvikIO": lambda path: cuzarr.kvikio.GDSStore(path / "kvikio"),
    "zarr-python's stores": lambda path: (plugin().LocalStore(path / "zarr"), plugin().MemoryStore(), plugin().GDSStore(path / "zarr gds")),
    "another store in zarr-python's form": lambda path: plugin() and storage.SplitStore(storage.MemoryStore(), storage.MemoryStore()).zarr_store,
}  # fmt: skip


def named(data: bytes) -> set[str]:
    """The modules that a pickle names."""
    texts: list[str] = []
    found = set()
    for code, argument, _ in pickletools.genops(data):
        if code.name == "GLOBAL":
            found.add(str(argument).partition(" ")[0])
        elif code.name == "STACK_GLOBAL":
            found.add(texts[-2])
        elif isinstance(argument, str):
            texts.append(argument)
    return found


@pytest.mark.parametrize("what", PICKLED)
def test_pickles_name_public_paths(tmp_path: Any, what: str) -> None:
    value = PICKLED[what](tmp_path)
    # Each text is written once for each object, so that every name is beside its module.
    for one in value if type(value) is tuple else (value,):
        data = pickle.dumps(one)
        assert {module for module in named(data) if module.startswith("cuzarr")} <= set(PUBLIC)
        assert type(pickle.loads(data)) is type(one)


@pytest.mark.parametrize("what", ["array", "group", "directory", "codecs", "data type", "settings", "metadata"])
def test_what_was_pickled_is_equal(tmp_path: Any, what: str) -> None:
    value = PICKLED[what](tmp_path)
    again = pickle.loads(pickle.dumps(value))
    if what in ("array", "group"):
        assert again.metadata == value.metadata and again.path == value.path
    else:
        assert again == value


# zarr-python has these functions in two places, and its programs use both.
TWICE = {("cuzarr", "cuzarr.api.synchronous")}


def test_each_name_has_one_home() -> None:
    homes: dict[int, tuple[str, str]] = {}
    for name in PUBLIC:
        for one, value in public_things(name):
            if not value.__module__.startswith("cuzarr"):
                continue
            first, _ = homes.setdefault(id(value), (name, one))
            assert first == name or (first, name) in TWICE, f"{name}.{one} is also in {first}"


def test_the_package_has_zarrs_names_and_few_others() -> None:
    numpys = {name for name in cuzarr.xp.__all__ if hasattr(np, name)}
    stored = {f"{name}{end}" for name in ("empty", "full", "ones", "zeros") for end in ("", "_like")}
    assert numpys & set(cuzarr.__all__) == stored and len(cuzarr.__all__) <= 62
    for name in stored:
        stores, allocates = (inspect.getdoc(getattr(module, name)) or "" for module in (cuzarr, cuzarr.xp))
        assert stores.startswith("Store an array") and f"`cuzarr.xp.{name}`" in stores.partition("\n")[0]
        assert allocates.startswith("Allocate memory") and f"`cuzarr.{name}`" in allocates.partition("\n")[0]


@pytest.mark.parametrize(
    "path", ["functions", "reductions", "selections", "expression", "device_array", "sqrt", "sum", "CuzarrError", "Module"]
)
def test_names_have_no_other_home(path: str) -> None:
    assert not hasattr(cuzarr, path)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"cuzarr.{path}")


NEIGHBOURS = ["dask", "jax", "kvikio", "torch", "xarray", "zarr"]


def in_new_process(program: str) -> str:
    """What a program of a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_for_other_libraries_are_imported_when_they_are_used() -> None:
    program = f"""
import sys, cuzarr
for name in {NEIGHBOURS}:
    assert f"cuzarr.{{name}}" not in sys.modules and name not in dir(cuzarr)
    try:
        module = getattr(cuzarr, name)
    except AttributeError as error:
        assert f"cuzarr.{{name}} needs" in str(error) and f"pip install 'cuzarr[{{name}}]'" in str(error), error
        continue
    assert sys.modules[f"cuzarr.{{name}}"] is module and name in dir(cuzarr) and name not in cuzarr.__all__
"""
    assert in_new_process(program) == ""


def test_a_module_without_its_library_says_how_to_install_it() -> None:
    program = """
import sys
sys.modules["xarray"] = None
import cuzarr
assert not hasattr(cuzarr, "xarray") and "xarray" not in dir(cuzarr)
cuzarr.xarray
"""
    with pytest.raises(AssertionError, match=r"AttributeError: cuzarr.xarray needs xarray, .*: pip install 'cuzarr\[xarray\]'"):
        in_new_process(program)


@pytest.mark.parametrize("name", [*PUBLIC, "cuzarr.api", "cuzarr.dask", "cuzarr.xp", "cuzarr.xp", "cuzarr.xp", "cuzarr.xarray"])
def test_dir_lists_public_names_alone(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"skipped: {error}")
    imported = {
        "Any",
        "Callable",
        "ClassVar",
        "Iterable",
        "Literal",
        "Mapping",
        "Self",
        "Sequence",
        "TYPE_CHECKING",
        "annotations",
        "np",
        "os",
        "sys",
    }
    listed = dir(module)
    assert set(module.__all__) <= set(listed)
    assert not imported & set(listed)
    assert [one for one in listed if one.startswith("_") and one != "__version__"] == []
    assert [one for one in listed if not hasattr(module, one)] == []
    # What is listed is this package's, or a constant of it.
    foreign = [
        one
        for one in listed
        if not (getattr(getattr(module, one), "__module__", None) or "cuzarr").startswith(
            ("cuzarr", "enum", "typing", "types", "builtins", "zarr")
        )
    ]
    assert foreign == []


def test_dir_lists_functions_that_hide_those_of_python() -> None:
    hidden = {"abs", "all", "any", "max", "min", "pow", "round", "sum"}
    assert hidden <= set(dir(cuzarr.xp)) and not hidden & set(dir(cuzarr))
    everything: dict[str, Any] = {}
    exec("from cuzarr import *", everything)
    assert everything["open_array"] is cuzarr.open_array and not (hidden | {"sqrt", "mean"}) & set(everything)


@pytest.mark.parametrize(
    ("function", "parameters"), [("sin", "(x, /)"), ("add", "(x1, x2, /)"), ("where", "(condition, x, y, /)")]
)
def test_functions_of_elements_tell_their_parameters(function: str, parameters: str) -> None:
    assert str(inspect.signature(getattr(cuzarr.xp, function))) == parameters


def test_data_types_are_classes_of_which_equal_ones_are_instances() -> None:
    made = cuzarr.dtype.Float32()
    assert (
        inspect.isclass(cuzarr.dtype.Float32)
        and isinstance(made, cuzarr.dtype.Float32)
        and isinstance(made, cuzarr.dtype.DataType)
    )
    stored = cuzarr.dtype.parse_dtype(">f4", zarr_format=2)
    assert isinstance(stored, cuzarr.dtype.Float32) and not isinstance(stored, cuzarr.dtype.Float64)
    assert cuzarr.dtype.parse_dtype("float32", zarr_format=3) == made
    with pytest.raises(TypeError):
        cuzarr.dtype.Float32("big")  # type: ignore[call-arg]


EXAMPLES = {
    "Bool": {}, "Complex64": {}, "Complex128": {}, "DateTime64": {"unit": "ms"}, "FixedLengthUTF32": {"length": 3}, "Float16": {}, "Float32": {},
    "Float64": {}, "Int8": {}, "Int16": {}, "Int32": {}, "Int64": {}, "NullTerminatedBytes": {"length": 3}, "RawBytes": {"length": 3},
    "Struct": {"fields": [("a", "int8")]}, "TimeDelta64": {"unit": "s"}, "UInt8": {}, "UInt16": {}, "UInt32": {}, "UInt64": {},
    "VariableLengthBytes": {}, "VariableLengthUTF8": {},
}  # fmt: skip


def test_each_data_type_is_an_instance_of_one_class() -> None:
    assert {*EXAMPLES, "DataType", "Structured", "parse_dtype"} == set(cuzarr.dtype.__all__)
    for name, arguments in EXAMPLES.items():
        made = getattr(cuzarr.dtype, name)(**arguments)
        assert [one for one in EXAMPLES if isinstance(made, getattr(cuzarr.dtype, one))] == [name]
