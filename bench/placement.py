"""Where should frames be decoded? Codec by size of frame by number of frames: the GPU, the CPU's threads, and what is picked.

    python bench/placement.py [--device cuda:0] [--codecs blosc-lz4 blosc-zstd lz4 zstd gzip zlib]
                              [--kib 64 256 1024 8192 65536] [--counts 1 16 512] [--most-mib 256] [--repeat 3] [--json FILE]

GB/s of decoded bytes that arrive in the GPU's memory, the best of at least `repeat`, every byte compared outside the clock.
The GPU decodes frames that are in its memory; the time that they take over the bus, at 50 GB/s, counts where it is longer. The
CPU decodes by all its threads; what is decoded crosses the same bus. `expected` are the figures that the pick was made by.
`read` is an array of such chunks read from files in memory as it is picked, `kernels` the same with `strict`, which leaves
nothing to the host. Frames are few different ones over and over; beyond `--most-mib` there are fewer than `--counts` says, and
the line tells.
"""

import argparse
import itertools
import json
import os
import tempfile
import time
from pathlib import Path

import arrays
import numpy as np

import cuzarr
from cuzarr.codecs import BloscCodec, Decoder, GzipCodec, ZstdCodec

CODECS = {
    "blosc-lz4": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4),
    "blosc-zstd": BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle", typesize=4),
    "lz4": {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}},
    "zstd": ZstdCodec(level=3),
    "gzip": GzipCodec(level=5),
    "zlib": {"name": "numcodecs.zlib", "configuration": {"level": 5}},
}
BUS_GB_S = 50
DISTINCT_BYTES = 16 << 20
# Short runs are repeated for so long.
LEAST_S = 0.02
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None


def frames_of(codec, plain, frame_bytes):
    """What an array with chunks of this size stores."""
    store = {}
    array = cuzarr.create_array(
        store=store,
        shape=plain.shape,
        chunks=(frame_bytes // 4,),
        dtype="f4",
        compressors=codec,
    )
    array[:] = plain
    stored = {int(key.split("/")[-1]): value for key, value in store.items() if "c/" in key}
    return [bytes(stored[number]) for number in range(len(stored))]


def best(run, repeat):
    times = []
    while len(times) < repeat or sum(times) < LEAST_S:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def gpu_seconds(codec, frames, plains, device, repeat):
    out = cuzarr.DeviceArray.empty((len(frames), plains[0].size), "f4", device)
    batch = Decoder(codec, device=device).prepare(frames, out)
    if batch.via_host is not None:
        return None

    def run():
        batch.run()
        for error in batch.check():
            if error is not None:
                raise error

    run()
    got = out.cpu()
    assert all(np.array_equal(row, plains[number % len(plains)]) for number, row in enumerate(got)), "wrong elements"
    return best(run, repeat)


def cpu_seconds(codec, frames, plains, repeat):
    out = np.empty((len(frames), plains[0].size), "f4")
    batch = Decoder(codec, device="cpu").prepare(frames, out)

    def run():
        batch.run()
        assert not any(batch.check())

    run()
    assert all(np.array_equal(row, plains[number % len(plains)]) for number, row in enumerate(out)), "wrong elements"
    return best(run, repeat)


def stored_array(folder, codec, frames, count, frame_bytes, device):
    """An array of so many chunks in files, each a link to one of the few different frames."""
    array = cuzarr.create_array(
        store=folder,
        shape=(count * frame_bytes // 4,),
        chunks=(frame_bytes // 4,),
        dtype="f4",
        compressors=codec,
        device=device,
    )
    chunks = Path(folder, "c")
    chunks.mkdir()
    for number in range(count):
        if number < len(frames):
            (chunks / str(number)).write_bytes(frames[number])
        else:
            os.link(chunks / str(number % len(frames)), chunks / str(number))
    return array


def read_seconds(array, plains, repeat, device):
    out = cuzarr.DeviceArray.empty(array.shape, "f4", device)
    array.read(out=out)
    got = out.cpu().reshape(-1, plains[0].size)
    assert all(np.array_equal(row, plains[number % len(plains)]) for number, row in enumerate(got)), "wrong elements"
    return best(lambda: array.read(out=out), repeat)


def measure_reads(codec, frames, plains, count, options):
    """Where a read decodes so many chunks, the speeds it expects, and its time; and its time by kernels alone."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        array = stored_array(folder, codec, frames, count, plains[0].nbytes, options.device)
        explanation = array.explain(...).to_dict()
        decoding = (explanation.get("decoding") or [{}])[0]
        where = "CPU" if any(stage["placement"] != "native" for stage in explanation["codecs"]) else "GPU"
        seconds = read_seconds(array, plains, options.repeat, options.device)
        kernels = seconds
        if where == "CPU":
            with cuzarr.config.set({"strict": True}):
                strict = cuzarr.open_array(folder, device=options.device)
                kernels = read_seconds(strict, plains, options.repeat, options.device)
    return (
        where,
        decoding.get("device_gb_s"),
        decoding.get("host_gb_s"),
        seconds,
        kernels,
    )


def measure(name, codec, frame_bytes, options):
    counts = sorted({max(1, min(wanted, (options.most_mib << 20) // frame_bytes)) for wanted in options.counts})
    distinct = max(1, min(DISTINCT_BYTES // frame_bytes, counts[-1]))
    elements = distinct * frame_bytes // 4
    plain = arrays.temperature((-(-elements // (1 << 18)), 512, 512), 1).reshape(-1)[:elements]
    frames = frames_of(codec, plain, frame_bytes)
    plains = plain.reshape(distinct, -1)
    for count in counts:
        chosen = [frames[number % distinct] for number in range(count)]
        gigabytes, stored = count * frame_bytes / 1e9, sum(map(len, chosen)) / 1e9
        gpu = gpu_seconds(codec, chosen, plains, options.device, options.repeat)
        gpu_gb_s = None if gpu is None else gigabytes / max(gpu, stored / BUS_GB_S)
        cpu_gb_s = gigabytes / max(cpu_seconds(codec, chosen, plains, options.repeat), gigabytes / BUS_GB_S)
        where, expected_gpu, expected_cpu, read, kernels = measure_reads(codec, frames, plains, count, options)
        picked = cpu_gb_s if where == "CPU" or gpu_gb_s is None else gpu_gb_s
        yield {
            "codec": name, "kib": frame_bytes >> 10, "frames": count, "gpu_gb_s": gpu_gb_s, "cpu_gb_s": cpu_gb_s,
            "expected_gpu_gb_s": expected_gpu, "expected_cpu_gb_s": expected_cpu, "picked": where,
            "of_the_better": picked / max(gpu_gb_s or 0, cpu_gb_s),
            "read_gb_s": gigabytes / read, "kernels_gb_s": gigabytes / kernels,
        }  # fmt: skip


def shown(number):
    return "–" if number is None else f"{number:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--codecs", nargs="+", default=list(CODECS))
    parser.add_argument("--kib", nargs="+", type=int, default=[64, 256, 1024, 8192, 65536])
    parser.add_argument("--counts", nargs="+", type=int, default=[1, 16, 512])
    parser.add_argument("--most-mib", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    print("| codec | KiB | frames | GPU | CPU | expected GPU | expected CPU | picked | of the better | read | kernels |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    records = []
    for name, kib in itertools.product(options.codecs, options.kib):
        for record in measure(name, CODECS[name], kib << 10, options):
            records.append(record)
            cells = [record["codec"], record["kib"], record["frames"]]
            cells += [
                shown(record[key])
                for key in (
                    "gpu_gb_s",
                    "cpu_gb_s",
                    "expected_gpu_gb_s",
                    "expected_cpu_gb_s",
                )
            ]
            cells += [
                record["picked"],
                *(shown(record[key]) for key in ("of_the_better", "read_gb_s", "kernels_gb_s")),
            ]
            print("|", " | ".join(map(str, cells)), "|", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(records, file, indent=1)


if __name__ == "__main__":
    main()
