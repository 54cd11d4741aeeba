"""The configuration: keys, origins, scopes, environment."""

from __future__ import annotations

import asyncio
import base64
import io
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import cuzarr
from cuzarr._config import DEFAULTS, Config, resolve_class
from cuzarr._node.array_config import ArrayConfig
from cuzarr.buffer import cpu, gpu
from cuzarr.errors import ConfigInvalidError, CuzarrRuntimeWarning


def test_scoped_values_end_with_their_block() -> None:
    config = Config({})
    assert repr(config.set({"array.order": "F"})) == "<settings changed: array.order>"
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


def test_variables_of_zarr_python_count_less_than_ours_and_more_than_defaults() -> None:
    environ = {"ZARR_ARRAY__ORDER": "F", "ZARR_JSON_INDENT": "4", "CUZARR_JSON_INDENT": "8", "ZARR_V3_EXPERIMENTAL_API": "1"}
    config = Config(environ)
    assert (config.get("array.order"), config.origin("array.order")) == ("F", "environment ZARR_ARRAY__ORDER")
    assert (config.get("json_indent"), config.origin("json_indent")) == (8, "environment CUZARR_JSON_INDENT")
    assert Config({"ZARR_DEVICE": "cuda:0"}).get("device") == "cpu"  # no key of zarr-python


def test_a_buffer_of_zarr_pythons_variable_chooses_the_device_unless_ours_says_otherwise() -> None:
    environ = {"ZARR_BUFFER": "zarr.buffer.gpu.Buffer", "ZARR_NDBUFFER": "zarr.buffer.gpu.NDBuffer"}
    assert Config(environ).get("device") == "cuda:0"
    config = Config({**environ, "CUZARR_DEVICE": "cpu"})
    assert (config.get("device"), resolve_class(config.get("buffer"))) == ("cpu", cpu.Buffer)


@pytest.mark.parametrize(("priority", "order", "indent"), [("new", "C", 4), ("old", "F", 2), ("new-defaults", "F", 4)])
def test_update_changes_for_good_what_its_priority_says(priority: Any, order: str, indent: int) -> None:
    config = Config({})
    config.set({"array.order": "F"})
    config.update({"array": {"order": "C"}, "json_indent": 4}, priority=priority)
    assert (config["array.order"], config["json_indent"]) == (order, indent)


def test_update_refuses_an_unknown_priority_and_changes_nothing() -> None:
    config = Config({})
    with pytest.raises(ConfigInvalidError, match="priority is 'newest'"):
        config.update({"json_indent": 4}, priority="newest")  # type: ignore[arg-type]
    assert config["json_indent"] == 2


def test_the_last_of_merged_dictionaries_counts() -> None:
    config = Config({})
    config.merge({"array.order": "F", "json_indent": 4}, {"json_indent": 8})
    assert (config["array.order"], config["json_indent"]) == ("F", 8)


def test_clear_leaves_defaults_and_refresh_reads_the_environment_again() -> None:
    config = Config({"CUZARR_ARRAY__ORDER": "F"})
    config.set({"json_indent": 4})
    config.clear()
    assert (config["array.order"], config["json_indent"]) == ("C", 2)
    config.refresh()
    assert config["array.order"] == "F"
    config.refresh(env={})
    assert config["array.order"] == "C"


def test_collect_tells_what_the_environment_says_and_changes_nothing() -> None:
    config = Config({"CUZARR_ARRAY__ORDER": "F"})
    assert config.collect() == {"array": {"order": "F"}}
    assert config.collect(env={"ZARR_ARRAY__WRITE_EMPTY_CHUNKS": "True"}) == {"array": {"write_empty_chunks": True}}
    assert config["array.write_empty_chunks"] is False
    with pytest.raises(ConfigInvalidError, match="reads no configuration files"):
        config.collect(paths=["somewhere.yaml"])


def test_a_serialized_configuration_is_inherited_through_the_environment() -> None:
    config = Config({})
    config.set({"array.order": "F", "buffer": gpu.Buffer, "memory_limit": "1 GiB"})
    child = Config({"CUZARR_INTERNAL_INHERIT_CONFIG": config.serialize(), "CUZARR_MEMORY_LIMIT": "2 GiB"})
    assert (child["array.order"], child["device"], child["memory_limit"]) == ("F", "cuda:0", 2 << 30)
    assert child.origin("array.order") == "environment CUZARR_INTERNAL_INHERIT_CONFIG"
    for damaged in ("%", "bm90IGpzb24=", "WzFd"):
        with pytest.raises(ConfigInvalidError, match="CUZARR_INTERNAL_INHERIT_CONFIG is not what"):
            Config({"CUZARR_INTERNAL_INHERIT_CONFIG": damaged}).get("device")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("async.timeout", 30),
        ("codec_pipeline.batch_size", 8),
        ("codec_pipeline.max_workers", 2),
        ("codec_pipeline.path", "mine.Pipeline"),
        ("codecs.zstd", "mine.Zstd"),
        ("codecs.numcodecs.lz4", "mine.LZ4"),
        ("codecs.own", "mine.Own"),
    ],
)
def test_a_key_that_changes_nothing_says_so_when_it_is_set(key: str, value: Any) -> None:
    with pytest.warns(CuzarrRuntimeWarning, match=f"'{key}' has no effect here: "):
        Config({}).set({key: value})


def test_every_other_key_is_looked_up_by_the_package() -> None:
    package = Path(cuzarr.__file__).parent
    code = "".join(path.read_text() for path in package.rglob("*.py") if path.parent.name != "_config")
    named = {key for key in DEFAULTS if f'"{key}"' in code}
    settings = {f"array.{name}" for name in ArrayConfig.__dataclass_fields__ if name != "accelerator"}
    without_effect = {key for key in DEFAULTS if key.split(".")[0] in ("codecs", "codec_pipeline")} | {"async.timeout"}
    assert set(DEFAULTS) == named | settings | without_effect


def test_pprint_writes_to_a_stream_in_the_width_that_was_asked_for() -> None:
    stream = io.StringIO()
    config = Config({})
    config.set({"codecs.numcodecs.lz4": "zarr." + " ".join(["long"] * 20)})
    config.pprint(stream=stream, width=90)
    lines = stream.getvalue().splitlines()
    assert max(len(line) for line in lines if "long" in line) <= 90 + len("  (config.set)")
    assert sum("long" in line for line in lines) > 1


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
    names = ("REQUIRE_GPU", "CUBIN_DIR", "CACHE_DIR", "TEST_DEVICE", "TEST_SERVERS", "NVRTC_LIBRARY", "SIMT_LIBRARY")
    assert Config({f"CUZARR_{name}": "x" for name in names}).get("device") == "cpu"


def test_variables_that_the_sources_read_or_set_can_be_set() -> None:
    root = Path(__file__).parents[2]
    if not (root / ".ci").is_dir():
        pytest.skip("skipped: the sources are not here")
    files = [root / "Makefile", *(root / ".ci").iterdir(), *(root / "scripts").iterdir()]
    files += [*(root / "crates").rglob("*.rs"), *(root / "crates").rglob("*.cpp"), *(root / "python" / "tests").rglob("*.py")]
    text = "\n".join(file.read_text("utf8") for file in files if file.is_file())
    found = set(re.findall(r"(?:\b(?:getenv|var|var_os|get)\(\"|\bexport )(CUZARR_[A-Z_]+)\b", text))
    # Set by a test for a process of its own alone.
    variables = {name for name in found if not name.endswith("_CHILD") and not name.startswith("CUZARR_FAKE_")}
    assert {"CUZARR_TEST_SERVERS", "CUZARR_REQUIRE_GPU", "CUZARR_DAMAGE_ROUNDS", "CUZARR_SIMT_SEED"} <= variables
    Config(dict.fromkeys(sorted(variables), "1")).get("device")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512 MiB", 512 << 20),
        ("0.5GB", 500_000_000),
        ("64k", 64_000),
        ("1.5 kib", 1536),
        ("7", 7),
        (9, 9),
        (None, None),
        ("1B", 1),
    ],
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


def test_options_of_remote_stores_have_a_section_and_their_secrets_are_not_shown() -> None:
    values = {"storage": {"timeout": 5, "s3": {"anon": True}}, "storage.key": "hidden-value"}
    with cuzarr.config.set(values):
        section = cuzarr.config.get("storage")
        assert section["timeout"] == 5 and section["s3"] == {"anon": True} and section["key"] == "hidden-value"
        assert "hidden-value" not in repr(cuzarr.config)
        assert "hidden-value" not in str(Config({}).collect(env={"CUZARR_INTERNAL_INHERIT_CONFIG": cuzarr.config.serialize()}))
    assert cuzarr.config.get("storage", {}) == {}
    with cuzarr.config.set({"storage": {"s3": {"secret": "hidden-value"}, "http": {"headers": {"A-B": "hidden-value"}}}}):
        assert cuzarr.config.get("storage")["s3"] == {"secret": "hidden-value"}
        assert "hidden-value" not in repr(cuzarr.config)
        assert b"hidden-value" not in base64.urlsafe_b64decode(cuzarr.config.serialize())


def test_a_store_takes_the_options_of_the_configuration() -> None:
    with cuzarr.config.set({"storage.http.no_such_option": 1}), pytest.raises(cuzarr.errors.CuzarrError, match="no_such_option"):
        cuzarr.open_array("http://127.0.0.1:9/a.zarr", mode="r")


@pytest.mark.parametrize(
    ("environ", "what"),
    [
        ({"CUZARR_ARRAY__ORDER": "sideways"}, r"array.order.*'sideways' \(environment CUZARR_ARRAY__ORDER\)"),
        ({"CUZARR_NOTHING": "1"}, "nothing"),
        ({"CUZARR_DEVICE": "cpu", "CUZARR_BUFFER": "cuzarr.buffer.gpu.Buffer"}, "contradict each other"),
        ({"CUZARR_INTERNAL_INHERIT_CONFIG": "?"}, r"not what config.serialize\(\) gives"),
    ],
)
def test_a_configuration_shows_itself_beside_a_variable_that_it_refuses(environ: dict[str, str], what: str) -> None:
    config = Config({"CUZARR_JSON_INDENT": "8", **environ})
    text = repr(config)
    assert re.search(f"invalid: .*{what}", text)
    assert re.search(r"json_indent +\= 8  \(environment CUZARR_JSON_INDENT\)", text) and re.search(
        r"array.order +\= 'C'  \(default\)", text
    )
    printed = io.StringIO()
    config.pprint(printed)
    assert printed.getvalue() == text + "\n"
    with pytest.raises(ConfigInvalidError, match=what):
        config.get("json_indent")


def test_a_refresh_that_is_refused_changes_nothing() -> None:
    config = Config({})
    config.set({"array.order": "F"})
    with pytest.raises(ConfigInvalidError):
        config.refresh(env={"CUZARR_ARRAY__ORDER": "sideways"})
    assert (config.get("array.order"), config.origin("array.order")) == ("F", "config.set")
    config.reset()
    assert config.origin("array.order") == "default"
