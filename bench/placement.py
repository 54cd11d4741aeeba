"""Where should frames be decoded? Codec by size of frame by number of frames: the GPU, the CPU's threads, and what is picked.

    python bench/placement.py [--device cuda:0] [--codecs blosc-lz4 lz4 zstd gzip zlib] [--kib 64 256 1024 8192 65536]
                              [--counts 1 16 512] [--most-mib 512] [--repeat 3] [--json FILE]

GB/s of decoded bytes that arrive in the GPU's memory, the best of `repeat`, every byte compared outside the clock. The GPU
decodes frames that are in its memory; the time that they take over the bus, at 50 GB/s, is added where it is longer. The CPU
decodes by all its threads; what is decoded crosses the same bus. `expected` are the figures that the pick was made by.
Frames are few different ones over and over; beyond `--most-mib` there are fewer than `--counts` says, and the line tells.
"""

import argparse
import itertools
import json
import time

import arrays
import cuzarr
import numpy as np
from cuzarr.codecs import BloscCodec, Decoder, GzipCodec, ZstdCodec

CODECS = {
    "blosc-lz4": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4),
    "lz4": {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}},
    "zstd": ZstdCodec(level=3),
    "gzip": GzipCodec(level=5),
    "zlib": {"name": "numcodecs.zlib", "configuration": {"level": 5}},
}
BUS_GB_S = 50
DISTINCT_BYTES = 16 << 20


def frames_of(codec, plain, frame_bytes):
    """What an array with chunks of this size stores."""
    store = {}
    array = cuzarr.create_array(store=store, shape=plain.shape, chunks=(frame_bytes // 4,), dtype="f4", compressors=codec)
    array[:] = plain
    stored = {int(key.split("/")[-1]): value for key, value in store.items() if "c/" in key}
    return [bytes(stored[number]) for number in range(len(stored))]


def best(run, repeat):
    times = []
    for _ in range(repeat):
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


def pick(codec, frame_bytes, count, device):
    """Where a read of so many chunks would decode them, and the speeds it expects."""
    array = cuzarr.create_array(
        store={}, shape=(count * frame_bytes // 4,), chunks=(frame_bytes // 4,), dtype="f4", compressors=codec, device=device
    )
    explanation = array.explain(...).to_dict()
    decoding = (explanation.get("decoding") or [{}])[0]
    where = "CPU" if any(stage["placement"] != "native" for stage in explanation["codecs"]) else "GPU"
    return where, decoding.get("device_gb_s"), decoding.get("host_gb_s")


def measure(name, codec, frame_bytes, counts, options):
    distinct = max(1, min(DISTINCT_BYTES // frame_bytes, max(counts)))
    elements = distinct * frame_bytes // 4
    plain = arrays.temperature((-(-elements // (1 << 18)), 512, 512), 1).reshape(-1)[:elements]
    frames = frames_of(codec, plain, frame_bytes)
    plains = plain.reshape(distinct, -1)
    for wanted in counts:
        count = max(1, min(wanted, (options.most_mib << 20) // frame_bytes))
        chosen = [frames[number % distinct] for number in range(count)]
        gigabytes, stored = count * frame_bytes / 1e9, sum(map(len, chosen)) / 1e9
        gpu = gpu_seconds(codec, chosen, plains, options.device, options.repeat)
        gpu_gb_s = None if gpu is None else gigabytes / max(gpu, stored / BUS_GB_S)
        cpu_gb_s = gigabytes / max(cpu_seconds(codec, chosen, plains, options.repeat), gigabytes / BUS_GB_S)
        where, *expected = pick(codec, frame_bytes, count, options.device)
        picked = cpu_gb_s if where == "CPU" or gpu_gb_s is None else gpu_gb_s
        yield {
            "codec": name, "kib": frame_bytes >> 10, "frames": count, "gpu_gb_s": gpu_gb_s, "cpu_gb_s": cpu_gb_s,
            "expected_gpu_gb_s": expected[0], "expected_cpu_gb_s": expected[1], "picked": where,
            "of_the_better": picked / max(gpu_gb_s or 0, cpu_gb_s),
        }  # fmt: skip


def shown(number):
    return "–" if number is None else f"{number:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--codecs", nargs="+", default=list(CODECS))
    parser.add_argument("--kib", nargs="+", type=int, default=[64, 256, 1024, 8192, 65536])
    parser.add_argument("--counts", nargs="+", type=int, default=[1, 16, 512])
    parser.add_argument("--most-mib", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    print("| codec | KiB | frames | GPU | CPU | expected GPU | expected CPU | picked | of the better |")
    print("|---|---|---|---|---|---|---|---|---|")
    records = []
    for name, kib in itertools.product(options.codecs, options.kib):
        for record in measure(name, CODECS[name], kib << 10, options.counts, options):
            records.append(record)
            cells = [record["codec"], record["kib"], record["frames"]]
            cells += [shown(record[key]) for key in ("gpu_gb_s", "cpu_gb_s", "expected_gpu_gb_s", "expected_cpu_gb_s")]
            print("|", " | ".join(map(str, [*cells, record["picked"], shown(record["of_the_better"])])), "|", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(records, file, indent=1)


if __name__ == "__main__":
    main()
