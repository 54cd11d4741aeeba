"""Is one wheel as fast as another? Two builds of cuzarr read the same stores in turns, each turn in a process of its own.

    python bench/turns.py OLD.whl NEW.whl [--device cpu cuda:0] [--turns 5] [--shape 64,1024,2048] [--codecs none zstd3 ...] [--json FILE]

GB/s of decoded array, the median of six reads of a turn, every answer compared outside the clock; microseconds of a warm read of one
chunk of 64 KiB. Printed are the medians over turns, their ratio (above 1 the new wheel is faster), and how far the old wheel's turns
lie apart. A row is marked when the new wheel is more than 3 % slower and slower than the old wheel's slowest turn.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import zipfile

import arrays
import numpy as np
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

CODECS = {
    "none": None,
    "zstd3": ZstdCodec(level=3),
    "blosc-lz4-shuffle": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"),
    "blosc-zstd-bitshuffle": BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle"),
    "gzip5": GzipCodec(level=5),
}
CHUNKS = {
    "cpu": [(1, 64, 64), (1, 128, 128), (1, 512, 512)],
    "cuda:0": [(1, 512, 512), (4, 512, 1024), (16, 1024, 1024)],
}
READS = 6
SMALL = 64 * 1024 // 4

# What a turn runs: it knows the stores and the truth by a file.
TURN = f"""
import json, statistics, sys, time
import numpy as np, cuzarr
case = json.load(open(sys.argv[1]))
truths = [np.load(path) for path in case["truths"]]
found = {{}}
def host(values):
    if isinstance(values, np.ndarray):
        return values
    return values.cpu() if isinstance(values, cuzarr.DeviceArray) else values.get()
for name, device, paths in case["stores"]:
    opened, seconds = [cuzarr.open_array(path, mode="r", device=device) for path in paths], []
    for turn in range({READS} + 1):
        begun = time.perf_counter()
        values = opened[turn % 2][...]
        seconds.append(time.perf_counter() - begun)
        assert np.array_equal(host(values), truths[turn % 2]), "wrong data"
        del values
    found[name] = truths[0].nbytes / statistics.median(seconds[1:]) / 1e9
for device in case["devices"]:
    array, seconds = cuzarr.open_array(case["small"], mode="r", device=device), []
    for turn in range(8000):
        at = turn * 37 % (array.shape[0] // {SMALL}) * {SMALL}
        begun = time.perf_counter()
        array[at : at + {SMALL}]
        seconds.append(time.perf_counter() - begun)
    found[f"{{device}} 64 KiB, warm, us"] = 1e6 * statistics.median(seconds[500:])
print(json.dumps(found))
"""


def write(folder, devices, shape, codecs):
    """Two arrays in every codec and chunk shape, and what a turn needs to know of them."""
    truths = [arrays.temperature(shape, seed) for seed in (1, 2)]
    case = {
        "devices": devices,
        "truths": [],
        "stores": [],
        "small": str(folder / "small.zarr"),
    }
    for number, truth in enumerate(truths):
        np.save(folder / f"{number}.npy", truth)
        case["truths"].append(str(folder / f"{number}.npy"))
    for device in devices:
        for codec in codecs:
            for chunks in CHUNKS[device]:
                name = f"{device} {codec} {4 * int(np.prod(chunks)) >> 10} KiB"
                paths = [str(folder / f"{name.replace(' ', '-')}-{number}.zarr") for number in range(2)]
                for path, truth in zip(paths, truths, strict=True):
                    zarr.create_array(
                        path,
                        shape=truth.shape,
                        chunks=chunks,
                        dtype="f4",
                        compressors=CODECS[codec],
                    )[...] = truth
                case["stores"].append((name, device, paths))
    flat = truths[0].reshape(-1)[: 64 * SMALL]
    zarr.create_array(
        case["small"],
        shape=flat.shape,
        chunks=(SMALL,),
        dtype="f4",
        compressors=CODECS["blosc-lz4-shuffle"],
    )[...] = flat
    (folder / "case.json").write_text(json.dumps(case))
    return folder / "case.json"


def turn(site, case):
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        [sys.executable, "-c", TURN, str(case)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs=2, metavar=("OLD", "NEW"))
    parser.add_argument("--device", nargs="+", default=["cpu"], choices=CHUNKS)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument(
        "--shape",
        type=lambda text: tuple(map(int, text.split(","))),
        default=(64, 1024, 2048),
    )
    parser.add_argument("--codecs", nargs="*", default=list(CODECS), choices=CODECS)
    parser.add_argument("--json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sites = [folder / "old", folder / "new"]
        for site, wheel in zip(sites, args.wheels, strict=True):
            zipfile.ZipFile(wheel).extractall(site)
        case = write(folder, args.device, args.shape, args.codecs)
        found = {site.name: [] for site in sites}
        for number in range(args.turns):
            for site in sites if number % 2 == 0 else reversed(sites):
                found[site.name].append(turn(site, case))
    print(f"{'':42}{'old':>8}{'new':>8}{'ratio':>8}  old's turns")
    for row in found["old"][0]:
        old, new = ([turned[row] for turned in found[which]] for which in ("old", "new"))
        middle = statistics.median(old)
        ratio = statistics.median(new) / middle
        slowest = min(old) if not row.endswith(" us") else max(old)
        if row.endswith(" us"):
            ratio = 1 / ratio
        behind = statistics.median(new) < slowest if not row.endswith(" us") else statistics.median(new) > slowest
        mark = "  slower" if ratio < 0.97 and behind else ""
        print(f"{row:42}{middle:8.1f}{statistics.median(new):8.1f}{ratio:8.3f}  {min(old):.1f} to {max(old):.1f}{mark}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
