"""For `scripts/zarr-python-tests`: a pytest plug-in that prints what ran natively, and the comparison of two runs."""

import os
import re
import sys
from collections import Counter
from xml.etree import ElementTree

LEAST_SHARE = 0.95

# Tests that say what the default pipeline does and need not, with why.
EXPECTED = {
    "test_config_codec_pipeline_class": "says that the pipeline is the default one, although the environment chose another",
    "test_codecs_use_of_gpu_prototype": "wants a warning of slow copies, which are not made",
    "test_sharding_use_of_gpu_prototype": "wants a warning of slow copies, which are not made",
    "test_create_array_with_data_num_gets": "wants a request for every shard that is replaced, and says that none is needed",
}

# Why calls are left to zarr-python's own code, as CORRECTNESS.md has it ("Inside zarr-python").
LISTED = (
    r"codec '.*' is not built in",
    r"codec class .* is a program's own",
    r"codec 'scale_offset' on integers: .*",
    r"a program changed zarr-python's code for shards",
    r"some elements of large shards: .*",
    r"index arrays on a GPU need CuPy",
)


def pytest_configure(config):
    if os.environ.get("TESTS_WITH_REPAIRS") == "1":
        import cuzarr.zarr

        print("repairs:", *cuzarr.zarr.enable().patches, sep="\n  ")


def pytest_terminal_summary(terminalreporter):
    import cuzarr.zarr

    native, fallen = cuzarr.zarr.calls(), cuzarr.zarr.fallbacks()
    total, left = sum(native.values()), sum(fallen.values())
    if total + left:
        terminalreporter.write_line(
            f"cuzarr: {total} calls native {native}, {left} left to zarr-python: share {total / (total + left):.4f}"
        )
        for reason, count in sorted(fallen.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"  {count:6}  {reason}")


def failures(path):
    """The tests that failed in a run, and what each said."""
    found = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        ends = [end for end in case if end.tag in ("failure", "error")]
        if ends:
            found[f"{case.get('classname')}::{case.get('name')}"] = "".join(f"{end.get('message')}{end.text}" for end in ends)
    return found


def is_listed(reason):
    """Whether a reason is one of those that CORRECTNESS.md has."""
    return any(re.fullmatch(pattern, reason) for pattern in LISTED)


def compare_strict(ours, strict):
    """Says what `strict` refused; gives the tests that it broke for any other reason than a listed one."""
    refused, other = Counter(), []
    for test in sorted(failures(strict).keys() - failures(ours).keys()):
        said = re.search(r"this would be left to zarr-python's own code: ([^\n]*)", failures(strict)[test])
        if said and is_listed(said[1]):
            refused[said[1]] += 1
        else:
            other.append(test)
    for reason, count in refused.most_common():
        print(f"  strict refuses what {count} tests do: {reason}")
    for test in other:
        print(f"  fails under strict, for no listed reason: {test}")
    return other


def main(default, ours, log, strict=None):
    new = sorted(failures(ours).keys() - failures(default).keys())
    other = [] if strict is None else compare_strict(ours, strict)
    reasons = re.findall(r"^ {2,}\d+  (.*)$", open(log).read(), re.M)
    other += [f"not listed: {reason}" for reason in reasons if not is_listed(reason)]
    for test, reason in EXPECTED.items():
        count = len(new)
        new = [name for name in new if not re.search(rf"::{test}(\[|$)", name)]
        if count > len(new):
            print(f"  expected, {count - len(new)} times: {test} {reason}")
    share = float(re.findall(r"share ([0-9.]+)", open(log).read())[-1])
    for name in new:
        print(f"  fails with cuzarr's pipeline only: {name}")
    print(f"{len(new)} failures that the default pipeline has not; native share {share:.4f}, at least {LEAST_SHARE} wanted")
    print(f"{len(other)} refusals or reasons that are not listed")
    return 1 if new or other or share < LEAST_SHARE else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
