"""How fast does it read here?

Which compressor pays depends on the data and on the machine. This program writes one field with several of them, lets
`cuzarr bench read` measure each (on a GPU with `--device cuda:0`), and draws what it says: bytes saved against speed.
"""

import argparse
import json
import subprocess
import sys
import tempfile

import numpy as np

import cuzarr

CODECS = {
    "none": None,
    "zstd 3": cuzarr.codecs.ZstdCodec(level=3),
    "gzip 5": cuzarr.codecs.GzipCodec(level=5),
    "Blosc LZ4": cuzarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle", typesize=4),
    "Blosc zstd": cuzarr.codecs.BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle", typesize=4),
}


def main(arguments):
    rng = np.random.default_rng(2)
    side, times = 512, arguments.mib
    y, x = np.mgrid[:side, :side] / 60
    field = 285 + 8 * np.sin(x + np.arange(times)[:, None, None] / 9) * np.cos(y) + rng.normal(0, 0.05, (times, side, side))
    field = np.round(field * 100).astype("float32") / 100

    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for name, codec in CODECS.items():
            path = f"{folder}/{name}.zarr"
            array = cuzarr.create_array(path, data=field, chunks=(1, side, side), compressors=codec)
            command = [sys.executable, "-m", "cuzarr", "bench", "read", path, "--json", "--device", arguments.device]
            answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            found[name] = (field.nbytes / array.nbytes_stored(), field.nbytes / min(answer["seconds"]) / 1e9)
            print(f"{name:10}  ratio {found[name][0]:.2f}")
    draw(arguments.picture, found, arguments.device)


def draw(path, found, device):
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for name, (ratio, speed) in found.items():
        axis.scatter(ratio, speed, s=90, label=name)
    axis.legend()
    axis.set(
        xlabel="ratio of compression", ylabel=f"GB/s of array, read to {device}", ylim=(0, None), title="right and up is better"
    )
    axis.margins(x=0.2, y=0.15)
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64, help="size of the field")
    parser.add_argument("--device", default="cpu", help='"cpu" or "cuda:0"')
    parser.add_argument("--picture", default="codecs.png")
    arguments = parser.parse_args()
    if arguments.mib < 1:
        parser.error("--mib must be 1 or more")
    try:
        cuzarr.DeviceArray.empty(1, "u1", arguments.device)
    except cuzarr.errors.CuzarrError as error:
        parser.error(f"--device: {error}")
    main(arguments)
