"""What a read is busy with

`cuzarr bench read --plot` draws the stages of a read over time: fetching, decoding, moving elements to their places. Where bars lie above
each other, the stages overlap. `--roofline` measures what each stage could do alone, so the picture shows which one bounds the read.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

import cuzarr


def main(arguments):
    rng = np.random.default_rng(2)
    side = 512
    y, x = np.mgrid[:side, :side] / 60
    wave = 285 + 8 * np.sin(x + np.arange(arguments.mib)[:, None, None] / 9) * np.cos(y)
    field = (np.round((wave + rng.normal(0, 0.05, wave.shape)) * 100) / 100).astype("float32")
    with tempfile.TemporaryDirectory() as folder:
        cuzarr.create_array(
            f"{folder}/field.zarr", data=field, chunks=(1, side, side), compressors=cuzarr.codecs.ZstdCodec(level=3)
        )
        command = [
            sys.executable,
            "-m",
            "cuzarr",
            "bench",
            "read",
            "field.zarr",
            "--device",
            arguments.device,
            "--plot",
            os.path.abspath(arguments.picture),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    print(f"{arguments.mib} MiB of zstd, read to {arguments.device}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=128, help="size of the field")
    parser.add_argument("--device", default="cpu", help='"cpu" or "cuda:0"')
    parser.add_argument("--picture", default="stages.png")
    arguments = parser.parse_args()
    if arguments.mib < 1:
        parser.error("--mib must be 1 or more")
    try:
        cuzarr.DeviceArray.empty(1, "u1", arguments.device)
    except cuzarr.errors.CuzarrError as error:
        parser.error(f"--device: {error}")
    main(arguments)
