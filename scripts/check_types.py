"""Checks that type checkers know what the package exports, by pyright's `--verifytypes`, and prints what they do not know.

python scripts/check_types.py
"""

import json
import os
import pathlib
import subprocess
import sys

PYTHON = pathlib.Path(__file__).resolve().parent.parent / "python"
LEAST = 0.95


def main():
    command = [pathlib.Path(sys.executable).with_name("basedpyright"), "--pythonpath", sys.executable]
    run = subprocess.run(
        [*command, "--verifytypes", "cuzarr", "--ignoreexternal", "--outputjson"],
        cwd=PYTHON,
        env={**os.environ, "PYTHONPATH": os.fspath(PYTHON)},
        capture_output=True,
        text=True,
    )
    report = json.loads(run.stdout)["typeCompleteness"]
    unknown = [one for one in report["symbols"] if one["isExported"] and (not one["isTypeKnown"] or one["isTypeAmbiguous"])]
    for symbol in unknown:
        print(
            f"{symbol['category']} {symbol['name']}: {' '.join(symbol['diagnostics'][0]['message'].split()) if symbol['diagnostics'] else 'its base'}"
        )
    total, share = sum(report["exportedSymbolCounts"].values()), report["completenessScore"]
    print(f"{total - len(unknown)} of {total} exported symbols have known types: {share:.1%}, at least {LEAST:.0%}")
    return 0 if share >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
