"""The configuration: keys, origins, scopes, environment."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest

import cuzarr
from cuzarr._config import DEFAULTS, Config, resolve_class
from cuzarr.buffer import cpu, gpu
from cuzarr.errors import ConfigInvalidError


def test_scoped_values_end_with_their_block() -> None:
    config = Config({})
    config.set({"array.order": "F"})
    with config.set({"array": {"order": "C", "write_empty_chunks": True}}):
        assert config.get("array.order") == "C"
        assert config.get("array.write_empty_chunks") is True
    assert config.get("array.order") == "F"
    assert config.get("array.write_empty_chunks") is False


def test_keywords_name_keys_with_underscores() -> None:
    config = Config({})
    with config.set(array__order="F"):
        assert config.get("array")["order"] == "F"


def test_environment_comes_between_defaults_and_set_values() -> None:
    config = Config({"CUZARR_ARRAY__ORDER": "F", "CUZARR_STRICT": "true", "CUZARR_REQUIRE_GPU": "1"})
    assert (config.get("array.order"), config.origin("array.order")) == ("F", "environment CUZARR_ARRAY__ORDER")
    assert config.get("strict") is True
    with config.set({"array.order": "C"}):
        assert (config.get("array.order"), config.origin("array.order")) == ("C", "config.set")
    assert config.origin("device") == "default"


def test_unknown_keys_are_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigInvalidError, match=r"(?s)array.ordr.*did you mean 'array.order'"):
        Config({}).set({"array.ordr": "F"})
    with pytest.raises(ConfigInvalidError, match="CUZARR_DEVISE"):
        Config({"CUZARR_DEVISE": "cuda"}).get("device")


@pytest.mark.parametrize(
    ("key", "value"),
    [("array.order", "K"), ("device", "tpu"), ("strict", 1), ("array_type", "numpy"), ("threading.max_workers", -1)],
)
def test_values_without_meaning_are_refused(key: str, value: object) -> None:
    config = Config({})
    with pytest.raises(ConfigInvalidError, match=key):
        config.set({key: value})
    assert config.get(key) == DEFAULTS[key]


@pytest.mark.parametrize("name", ["reset", "refresh"])
def test_reset_forgets_and_reads_the_environment_again(name: str) -> None:
    environ = {"CUZARR_DEVICE": "cuda:1"}
    config = Config(environ)
    config.set({"array.order": "F", "device": "cpu"})
    environ["CUZARR_DEVICE"] = "cuda:2"
    getattr(config, name)()
    assert (config.get("array.order"), config.get("device")) == ("C", "cuda:2")


def _dotted(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def test_every_key_of_zarr_python_is_known_with_its_default() -> None:
    zarr = pytest.importorskip("zarr", minversion="3.4")
    theirs = dict(_dotted(zarr.config.config))
    assert set(theirs) <= set(DEFAULTS)
    classes = {key for key in theirs if key.startswith("codecs.") or key in ("buffer", "ndbuffer", "codec_pipeline.path")}
    assert {key: DEFAULTS[key] for key in theirs.keys() - classes} == {key: theirs[key] for key in theirs.keys() - classes}
    assert all(str(DEFAULTS[key]).startswith("cuzarr.") for key in classes)


def test_zarr_pythons_dictionaries_serve_here_too() -> None:
    zarr = pytest.importorskip("zarr")
    with cuzarr.config.set(zarr.config.config):
        assert cuzarr.buffer.default_buffer_prototype() == cpu.buffer_prototype
        assert cuzarr.ones((2,), store={})[:].tolist() == [1, 1]


def test_a_buffer_selects_its_ndbuffer_and_its_device() -> None:
    config = Config({})
    for value in (gpu.Buffer, "cuzarr.buffer.gpu.Buffer", "zarr.buffer.gpu.Buffer"):
        with config.set({"buffer": value}):
            assert resolve_class(config.get("ndbuffer")) is gpu.NDBuffer
            assert (config.get("device"), config.origin("device")) == ("cuda:0", "config.set")
            with config.local({"buffer": cpu.Buffer}):
                assert (config.get("device"), resolve_class(config.get("ndbuffer"))) == ("cpu", cpu.NDBuffer)
    with config.enable_gpu(1):
        assert resolve_class(config.get("buffer")) is gpu.Buffer
        with config.set({"buffer": gpu.Buffer}):
            assert config.get("device") == "cuda:1"
    assert (config.get("device"), config.get("buffer")) == ("cpu", DEFAULTS["buffer"])


def test_a_class_of_ones_own_selects_what_is_beside_it_or_of_its_kind() -> None:
    class Own(gpu.Buffer):
        pass

    config = Config({})
    with config.set({"buffer": Own}):
        assert config.get("buffer") is Own
        assert (config.get("device"), resolve_class(config.get("ndbuffer"))) == ("cuda:0", gpu.NDBuffer)


@pytest.mark.parametrize(
    "values",
    [
        {"buffer": gpu.Buffer, "device": "cpu"},
        {"buffer": cpu.Buffer, "ndbuffer": gpu.NDBuffer},
        {"buffer": 3},
        {"buffer": "not a class"},
        {"buffer": "numpy.no_such_class"},
    ],
)
def test_contradicting_places_are_refused(values: dict[str, Any]) -> None:
    config = Config({})
    with pytest.raises(ConfigInvalidError, match="buffer|class"):
        config.set(values)
    assert (config.get("device"), config.get("buffer")) == ("cpu", DEFAULTS["buffer"])


def test_the_environment_selects_buffers_too() -> None:
    config = Config({"CUZARR_BUFFER": "cuzarr.buffer.gpu.Buffer"})
    assert (config.get("device"), config.origin("device")) == ("cuda:0", "environment CUZARR_BUFFER")
    with config.set({"device": "cpu"}):
        assert resolve_class(config.get("buffer")) is cpu.Buffer


def test_set_is_seen_by_every_thread_and_local_by_none_but_its_own() -> None:
    def seen() -> tuple[str, int]:
        return cuzarr.config.get("array.order"), cuzarr.config.get("json_indent")

    with (
        ThreadPoolExecutor(1) as pool,
        cuzarr.config.set({"array.order": "F"}),
        cuzarr.config.local({"json_indent": 7}),
    ):
        assert seen() == ("F", 7)
        assert pool.submit(seen).result() == ("F", 2)
        assert cuzarr.config.origin("json_indent") == "config.local"
    assert seen() == ("C", 2)


def test_local_values_belong_to_one_asynchronous_task() -> None:
    async def look(order: str) -> list[str]:
        with cuzarr.config.local({"array.order": order}):
            await asyncio.sleep(0)
            return [order, cuzarr.config.get("array.order")]

    async def both() -> list[list[str]]:
        return await asyncio.gather(look("F"), look("C"))

    assert asyncio.run(both()) == [["F", "F"], ["C", "C"]]


def test_a_prototype_counts_more_than_a_device_and_a_device_more_than_the_configuration() -> None:
    array = cuzarr.ones((2,), chunks=(1,), store={})
    assert array.device == "cpu"
    with cuzarr.config.enable_gpu():
        assert array.device == "cuda:0"  # the configuration counts when elements are read
        assert array.with_device("cpu").device == "cpu"
        assert isinstance(array.with_device("cpu")[:], np.ndarray)
        assert isinstance(array.getitem(slice(None), prototype=cpu.buffer_prototype), np.ndarray)
        with cuzarr.config.local({"buffer": cpu.Buffer}):
            assert isinstance(array[:], np.ndarray)


def test_classes_of_ones_own_carry_the_results() -> None:
    class Own(cpu.NDBuffer):
        seen: ClassVar[list[tuple[int, ...]]] = []

        def __init__(self, array: Any) -> None:
            super().__init__(array)
            self.seen.append(array.shape)

    array = cuzarr.ones((4, 4), chunks=(2, 2), store={})
    with cuzarr.config.set({"ndbuffer": Own}):
        array[1:3]
    array.getitem(0, prototype=cuzarr.buffer.BufferPrototype(cpu.Buffer, Own))
    array[:]
    assert Own.seen == [(2, 4), (4,)]


def test_every_value_is_shown_with_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    cuzarr.config.pprint()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= len(DEFAULTS)
    assert any(line.startswith("device") and "'cpu'" in line and "(default)" in line for line in lines)


def test_variables_of_tests_and_of_the_rust_side_are_no_keys() -> None:
    names = ("REQUIRE_GPU", "CUBIN_DIR", "CACHE_DIR", "TEST_DEVICE", "NVRTC_LIBRARY", "SIMT_LIBRARY")
    assert Config({f"CUZARR_{name}": "x" for name in names}).get("device") == "cpu"


@pytest.mark.parametrize(
    ("text", "size"),
    [("512 MiB", 512 << 20), ("0.5GB", 500_000_000), ("64k", 64_000), ("1.5 kib", 1536), ("7", 7), (9, 9), (None, None), ("1B", 1)],
)
def test_a_memory_limit_is_written_as_people_write_sizes(text: Any, size: int | None) -> None:
    config = Config({})
    config.set({"memory_limit": text})
    assert config.get("memory_limit") == size


@pytest.mark.parametrize("text", ["much", "-1", -1, True, "1.5", "1 iB", "5 MiBs"])
def test_what_is_no_size_is_refused(text: Any) -> None:
    with pytest.raises(ConfigInvalidError, match=re.escape(f"cannot be {text!r} ")):
        Config({}).set({"memory_limit": text})


def test_a_limit_counts_for_an_array_that_was_read_before() -> None:
    array = cuzarr.create_array({}, shape=(1 << 12,), chunks=(1 << 12,), dtype="f8")
    array[:] = 1
    array[:]
    before = array._handle()
    with cuzarr.config.set({"memory_limit": "1 MiB"}):
        assert array._handle() is not before
        array[:]
