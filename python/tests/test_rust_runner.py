"""`scripts/test_rust.py`, which runs the Rust tests: no failure is taken for a success, and no test program is left out."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
if not (SCRIPTS / "test_rust.py").exists():
    pytest.skip("skipped: the script lies where the sources are", allow_module_level=True)
sys.path.insert(0, str(SCRIPTS))
import test_rust  # noqa: E402

PASSED = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out"
FAILED = "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"


def outcome(folder: pathlib.Path, printed: str, status: int = 0) -> test_rust.Outcome:
    program = f"import sys; print({printed!r}); sys.exit({status})"
    return test_rust.run(test_rust.Program("one", [sys.executable, "-c", program], folder, {}))


def test_counts_of_all_results_are_added(tmp_path: pathlib.Path) -> None:
    done = outcome(tmp_path, f"{PASSED}\nDoc-tests\n{PASSED}")
    assert done.is_good and (done.passed, done.failed, done.ignored) == (6, 0, 2)
    assert done.line().endswith("6 passed, 2 ignored")


@pytest.mark.parametrize(
    ("printed", "status"),
    [(FAILED, 101), (FAILED, 0), (PASSED, 134), ("", 0), ("Segmentation fault", -11)],
    ids=["failed", "failed without a status", "aborted behind the result", "no result", "crashed"],
)
def test_what_did_not_succeed_is_a_failure(tmp_path: pathlib.Path, printed: str, status: int) -> None:
    done = outcome(tmp_path, printed, status if status >= 0 else 139)
    assert not done.is_good
    assert "failed" in done.line() or "status" in done.line()


def test_programs_of_cargo_run_in_their_packages_and_others_do_not() -> None:
    def built(kind: str, name: str, executable: str | None, is_test: bool = True) -> str:
        target = {"kind": [kind], "name": name}
        document = {
            "reason": "compiler-artifact", "profile": {"test": is_test}, "executable": executable,
            "manifest_path": "/w/crates/a/Cargo.toml", "target": target,
        }  # fmt: skip
        return json.dumps(document)

    messages = [
        built("lib", "a", "/t/a-1"), built("test", "read", "/t/read-2"), built("bin", "a", "/t/a-3"),
        built("example", "tour", "/t/tour", is_test=False), built("lib", "a", None, is_test=False),
        json.dumps({"reason": "build-finished", "success": True}),
    ]  # fmt: skip
    programs = test_rust.test_programs("\n".join(messages))
    assert [program.name for program in programs] == ["a/src", "a/tests/read", "a/bin/a"]
    assert [program.command[1] for program in programs] == ["/t/a-1", "/t/read-2", "/t/a-3"]
    assert {program.folder for program in programs} == {pathlib.Path("/w/crates/a")}
