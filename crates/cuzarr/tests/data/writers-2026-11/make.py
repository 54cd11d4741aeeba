"""Makes frames.bin: frames of programs and libraries other than those that cuzarr is built with.

    apt-get install zstd pigz tabix libdeflate-tools isal zopfli gzip       # Debian 12: see the names in frames.bin
    pip install blosc==1.11.4 tensorstore==0.1.86 zarrs==0.2.3 zarr==3.1.6 numpy
    python make.py > frames.bin

Each frame follows a line `format decoded_bytes crc32 encoded_bytes name`.
"""

import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import blosc
import numpy as np
import tensorstore
import zarr
import zarrs  # noqa: F401  (its pipeline is chosen below)

random = np.random.default_rng(20261121)


def field(size):
    """A smooth field with noise in its low bits, some constant rows."""
    values = np.cumsum(random.normal(size=size // 4 + 1)).round(1).astype("f4")
    values[: len(values) // 5] = 1.5
    return values.tobytes()[:size]


def rows(size):
    """Long rows that differ in few places: large, and small when compressed."""
    row = random.integers(0, 256, 700, dtype="u1")
    table = np.tile(row, (size // len(row) + 1, 1))
    places = random.integers(0, table.size, table.shape[0] // 2)
    table.ravel()[places] = random.integers(0, 256, len(places), dtype="u1")
    return table.tobytes()[:size]


small, large = field(1101), rows(300_000)


def emit(form, name, frame, plain):
    header = f"{form} {len(plain)} {zlib.crc32(plain)} {len(frame)} {name}\n"
    sys.stdout.buffer.write(header.encode() + frame)


def tool(form, command, plain, suffix=""):
    """What a program writes from its standard input to its standard output, or from a file when it has a suffix."""
    words = command.split()
    if suffix:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plain"
            path.write_bytes(plain)
            frame = subprocess.run([*words, str(path)], check=True, capture_output=True).stdout
            frame = frame or Path(f"{path}{suffix}").read_bytes()
    else:
        frame = subprocess.run(words, input=plain, check=True, capture_output=True).stdout
    emit(form, command, frame, plain)


for level in range(1, 20):
    tool("zstd", f"zstd -{level} -c", small)
for level in (20, 21, 22):
    tool("zstd", f"zstd --ultra -{level} -c", small)
for options in ("--fast=1", "--fast=7", "--fast=100", "--no-check -5", "-3 --no-content-size", "-19 --format=zstd"):
    tool("zstd", f"zstd {options} -c", small)
for options in (
    "-3",
    "-19",
    "-3 --long=27",
    "--ultra -22 --long=27",
    "-1 -T4 --rsyncable",
    "-3 --target-compressed-block-size=2000",
    "--fast=3",
    "-9 -T2 -B131072",
):
    tool("zstd", f"zstd {options} -c", large)
tool("zstd", "zstd -6", small, ".zst")

for program, levels in (("gzip", range(1, 10)), ("pigz", [1, 6, 9, 11]), ("libdeflate-gzip", range(1, 13)), ("igzip", range(4))):
    for level in levels:
        tool("gzip", f"{program} -{level} -c", small)
tool("gzip", "pigz -0 -c", small)
for command in (
    "pigz -p 4 -b 128 -6 -c",
    "pigz -p 4 -b 128 -i -c",
    "pigz -p 3 -R -c",
    "bgzip -c",
    "bgzip -l 9 -c",
    "igzip -3 -c",
    "libdeflate-gzip -12 -c",
    "gzip -6 -c",
):
    tool("gzip", command, large)
tool("gzip", "zopfli -c", small, ".gz")
tool("gzip", "gzip -5", small, ".gz")
tool("zlib", "zopfli --zlib -c", small, ".zlib")
for options in ("-1", "-6", "-9 -b 128 -p 3"):
    tool("zlib", f"pigz -z {options} -c", large)

names = blosc.compressor_list()
for cname in names:
    for shuffle, word in ((blosc.NOSHUFFLE, "none"), (blosc.SHUFFLE, "bytes"), (blosc.BITSHUFFLE, "bits")):
        for size in (1, 4, 7):
            frame = blosc.compress(small[: len(small) // size * size], typesize=size, clevel=5, shuffle=shuffle, cname=cname)
            emit(
                "blosc",
                f"c-blosc {blosc.blosclib_version.split()[0]} {cname} {word} {size}",
                frame,
                small[: len(small) // size * size],
            )
    for level in (1, 9):
        blosc.set_blocksize(65536 if level == 1 else 0)
        frame = blosc.compress(large, typesize=4, clevel=level, shuffle=blosc.SHUFFLE, cname=cname)
        emit("blosc", f"c-blosc {cname} level {level}", frame, large)

CODECS = [
    ("zstd", {"name": "zstd", "configuration": {"level": 3}}),
    ("zstd", {"name": "zstd", "configuration": {"level": 19}}),
    ("gzip", {"name": "gzip", "configuration": {"level": 5}}),
    ("gzip", {"name": "gzip", "configuration": {"level": 9}}),
] + [
    (
        "blosc",
        {"name": "blosc", "configuration": {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": 4, "blocksize": 0}},
    )
    for cname, shuffle in (("lz4", "shuffle"), ("zstd", "bitshuffle"), ("zlib", "shuffle"), ("lz4hc", "noshuffle"))
]


def chunk(folder):
    (path,) = (path for path in Path(folder).rglob("*") if path.is_file() and path.name != "zarr.json")
    return path.read_bytes()


for form, codec in CODECS:
    if form == "zstd":
        codec = {**codec, "configuration": {**codec["configuration"], "checksum": True}}
    for plain in (small[:1100], large):
        elements = np.frombuffer(plain, "f4")
        words = " ".join(str(value) for value in codec["configuration"].values())
        with tempfile.TemporaryDirectory() as folder:
            known = {**codec, "configuration": {k: v for k, v in codec["configuration"].items() if k != "checksum"}}
            array = tensorstore.open(
                {
                    "driver": "zarr3",
                    "kvstore": {"driver": "file", "path": folder},
                    "metadata": {
                        "shape": [len(elements)],
                        "data_type": "float32",
                        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, known],
                        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [len(elements)]}},
                    },
                },
                create=True,
            ).result()
            array.write(elements).result()
            emit(form, f"tensorstore {form} {words}", chunk(folder), plain)
        with tempfile.TemporaryDirectory() as folder, zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
            array = zarr.create_array(
                folder, shape=elements.shape, chunks=elements.shape, dtype="f4", filters=None, compressors=[codec], fill_value=-1
            )
            array[:] = elements
            emit(form, f"zarrs {form} {words}", chunk(folder), plain)
