"""For `scripts/zarr-python-tests`: a pytest plug-in that prints what ran natively, and the comparison of two runs."""

import re
import sys
from xml.etree import ElementTree

LEAST_SHARE = 0.95

# Tests that say what the default pipeline does and need not, with why.
EXPECTED = {
    "test_config_codec_pipeline_class": "says that the pipeline is the default one, although the environment chose another",
    "test_codecs_use_of_gpu_prototype": "wants a warning of slow copies, which are not made",
    "test_sharding_use_of_gpu_prototype": "wants a warning of slow copies, which are not made",
    "test_create_array_with_data_num_gets": "wants a request for every shard that is replaced, and says that none is needed",
}


def pytest_terminal_summary(terminalreporter):
    import cuzarr.zarr

    native, fallen = cuzarr.zarr.calls(), cuzarr.zarr.fallbacks()
    total, left = sum(native.values()), sum(fallen.values())
    if total + left:
        terminalreporter.write_line(f"cuzarr: {total} calls native {native}, {left} left to zarr-python: share {total / (total + left):.4f}")
        for reason, count in sorted(fallen.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"  {count:6}  {reason}")


def failures(path):
    """The tests that failed in a run."""
    cases = ElementTree.parse(path).getroot().iter("testcase")
    return {f"{case.get('classname')}::{case.get('name')}" for case in cases if case.find("failure") is not None or case.find("error") is not None}


def main(default, ours, log):
    new = sorted(failures(ours) - failures(default))
    for test, reason in EXPECTED.items():
        count = len(new)
        new = [name for name in new if not re.search(rf"::{test}(\[|$)", name)]
        if count > len(new):
            print(f"  expected, {count - len(new)} times: {test} {reason}")
    share = float(re.findall(r"share ([0-9.]+)", open(log).read())[-1])
    for name in new:
        print(f"  fails with cuzarr's pipeline only: {name}")
    print(f"{len(new)} failures that the default pipeline has not; native share {share:.4f}, at least {LEAST_SHARE} wanted")
    return 1 if new or share < LEAST_SHARE else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
