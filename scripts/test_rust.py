#!/usr/bin/env python3
"""Runs all Rust tests, several test programs at a time, and says in a line for each program what was tested.

cargo runs test programs one after another, so a program with one slow test leaves the other cores idle. This script lets cargo build
the programs (`cargo test --no-run` with the arguments given) and runs them side by side, each in its package's folder as cargo does,
with the kernels that `scripts/with-simt` builds for the CPU. The tests in documentation run beside them. `cargo nextest` starts a
process for each test; with the sanitizers preloaded that costs more than it saves.

    scripts/test_rust.py --workspace --all-features --locked

The exit status is 1 when a test failed or a program ended in another way. What a failed program printed is shown at the end.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
WITH_SIMT = str(ROOT / "scripts" / "with-simt")
# Each program has a thread for each core already: more programs at a time would only take memory.
PROGRAMS_AT_A_TIME = min(os.cpu_count() or 1, 4)
SKIPPED = re.compile(r"^(?:test .* )?(skipped: .*)$", re.M)
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)


class Program(NamedTuple):
    """A command that runs tests."""

    name: str
    command: list[str]
    folder: pathlib.Path
    environment: dict[str, str]


class Outcome(NamedTuple):
    """What came of a program: `passed`, `failed` and `ignored` are numbers of tests."""

    program: Program
    seconds: float
    status: int
    passed: int
    failed: int
    ignored: int
    printed: str

    @property
    def is_good(self) -> bool:
        """A program whose result is not in its output has tested nothing."""
        return self.status == 0 and self.failed == 0 and RESULT.search(self.printed) is not None

    def line(self) -> str:
        ignored = f", {self.ignored} ignored" if self.ignored else ""
        failed = f", {self.failed} failed" if self.failed else ""
        ended = "" if self.is_good or self.failed else f", ended with status {self.status}"
        return f"{self.program.name:40} {self.seconds:7.1f} s  {self.passed} passed{failed}{ignored}{ended}"


def test_programs(messages: str) -> list[Program]:
    """The test programs that cargo built, from its messages in JSON, in its order."""
    programs = []
    for message in map(json.loads, messages.splitlines()):
        if message["reason"] != "compiler-artifact" or not message["profile"]["test"] or not message["executable"]:
            continue
        folder = pathlib.Path(message["manifest_path"]).parent
        kind, name = message["target"]["kind"][0], message["target"]["name"]
        where = {"test": f"tests/{name}", "bin": f"bin/{name}"}.get(kind, "src")
        environment = {"CARGO_MANIFEST_DIR": str(folder), "CARGO_PKG_NAME": folder.name}
        programs.append(Program(f"{folder.name}/{where}", [WITH_SIMT, message["executable"]], folder, environment))
    return programs


def documentation(arguments: list[str]) -> Program:
    """The tests in documentation, which cargo builds and runs at once."""
    host = re.search(r"^host: (.*)$", subprocess.check_output(["rustc", "-vV"], text=True), re.M)
    assert host is not None
    runner = f"CARGO_TARGET_{host[1].upper().replace('-', '_')}_RUNNER"
    return Program("documentation", ["cargo", "test", "--doc", "--no-fail-fast", *arguments], ROOT, {runner: WITH_SIMT})


def run(program: Program) -> Outcome:
    started = time.monotonic()
    done = subprocess.run(
        program.command,
        cwd=program.folder,
        env=os.environ | program.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    results = RESULT.findall(done.stdout)
    passed, failed, ignored = (sum(int(result[column]) for result in results) for column in range(3))
    return Outcome(program, time.monotonic() - started, done.returncode, passed, failed, ignored, done.stdout)


def main(arguments: list[str]) -> int:
    build = ["cargo", "test", "--no-run", "--message-format", "json-render-diagnostics", *arguments]
    programs = test_programs(subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout)
    subprocess.run([str(ROOT / "scripts" / "build_simt.sh")], check=True, stdout=subprocess.DEVNULL)
    started = time.monotonic()
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(PROGRAMS_AT_A_TIME) as pool:
        # The documentation first: it is one program for all crates, and takes the longest.
        for future in concurrent.futures.as_completed([pool.submit(run, one) for one in [documentation(arguments), *programs]]):
            outcomes.append(future.result())
            print(outcomes[-1].line(), flush=True)
            for reason in sorted(set(SKIPPED.findall(outcomes[-1].printed))):
                print(f"    {reason}", flush=True)
    bad = [outcome for outcome in outcomes if not outcome.is_good]
    for outcome in bad:
        print(f"\n== {outcome.program.name}\n{outcome.printed}")
    print(
        f"\n{len(outcomes)} programs, {sum(one.passed for one in outcomes)} tests passed, {sum(one.failed for one in outcomes)} failed, "
        f"{sum(one.ignored for one in outcomes)} ignored in {time.monotonic() - started:.0f} s"
    )
    if bad:
        print("failed: " + ", ".join(outcome.program.name for outcome in bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
