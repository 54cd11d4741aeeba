"""The configuration: keys, origins, scopes, environment."""

from __future__ import annotations

import pytest

import cuzarr
from cuzarr._config import DEFAULTS, Config
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


def test_reset_forgets_and_reads_the_environment_again() -> None:
    environ = {"CUZARR_DEVICE": "cuda:1"}
    config = Config(environ)
    config.set({"array.order": "F", "device": "cpu"})
    environ["CUZARR_DEVICE"] = "cuda:2"
    config.reset()
    assert (config.get("array.order"), config.get("device")) == ("C", "cuda:2")


def test_zarr_pythons_dictionaries_serve_here_too() -> None:
    zarr = pytest.importorskip("zarr")
    config = Config({})
    config.set(zarr.config.to_dict() if hasattr(zarr.config, "to_dict") else zarr.config.config)
    for key in DEFAULTS:
        theirs = zarr.config.get(key, "absent")
        if theirs != "absent":
            assert theirs == DEFAULTS[key], key


def test_every_value_is_shown_with_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    cuzarr.config.pprint()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= len(DEFAULTS)
    assert any(line.startswith("device") and "'cpu'" in line and "(default)" in line for line in lines)


def test_variables_of_tests_and_of_the_rust_side_are_no_keys() -> None:
    names = ("REQUIRE_GPU", "CUBIN_DIR", "CACHE_DIR", "TEST_DEVICE", "NVRTC_LIBRARY", "SIMT_LIBRARY")
    assert Config({f"CUZARR_{name}": "x" for name in names}).get("device") == "cpu"
