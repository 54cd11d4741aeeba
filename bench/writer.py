"""Rows of a running program: does it wait for its output? Steps that a kernel makes on a GPU, and how long the loop takes with each writer.

    python bench/writer.py [--device cuda:0] [--steps 64] [--mib 128] [--work 100] [--slots 2] [--no-peers] [--repeat 3] [--folder DIR] [--record DIR]

A step is a map of float32 (`--mib`), made by a stencil that runs `--work` times. It goes to an array chunked by one step and 8 MiB (`one`), or by
8 steps and 8 MiB (`eight`), with zstd 3 or Blosc-LZ4, in files that are in memory. Milliseconds of the whole loop, the best of the repeats:
without output (`loop`), the output alone by one write of each 8 steps (`writes`), the loop with `array[step] = state` (`assigned`), with
`Array.writer` (`writer`), and where they are installed, with zarr-python (fused pipeline, from host memory) and with tensorstore, whose
futures are awaited a step later. `append` is what one call of the writer takes of the loop, in microseconds, and `encoder` how long kernels
encoded. `forecast` is 24 arrays by 40 steps of 4 MiB, by `Group.writer` and by assignments. Every array is compared with the steps at its end.
`--record DIR` writes a record.
"""

import argparse
import importlib.util
import pathlib
import shutil
import statistics
import tempfile
import time

import arrays
import numpy as np
from read import Place, write_record

import cuzarr
from cuzarr.codecs import BloscCodec, ZstdCodec

CODECS = {"zstd": ZstdCodec(level=3), "blosc-lz4": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4)}
CHUNK = (1024, 2048)
STENCIL = """
extern "C" __global__ void diffuse(const float* from, float* to, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (column >= columns) return;
    long long at = (long long)row * columns + column;
    bool inside = row > 0 && row + 1 < rows && column > 0 && column + 1 < columns;
    float own = from[at];
    to[at] = inside ? own + 0.05f * (from[at - 1] + from[at + 1] + from[at - columns] + from[at + columns] - 4 * own) : own + 0.01f;
}
"""


class Model:
    """A stencil on a map in GPU memory."""

    def __init__(self, shape, work):
        import cupy

        self.kernel, self.work, self.shape = cupy.RawKernel(STENCIL, "diffuse"), work, shape
        self.begin = cupy.asarray(np.resize(arrays.temperature((1, 4096, 8192), 1)[0], shape))
        self.maps = [cupy.empty_like(self.begin) for _ in range(2)]

    def steps(self, count):
        rows, columns = self.shape
        self.maps[0][...] = self.begin
        for _ in range(count):
            for _ in range(self.work):
                self.kernel(((columns + 255) // 256, rows), (256,), (*self.maps, np.int32(rows), np.int32(columns)))
                self.maps.reverse()
            yield self.maps[0]


def timed(place, repeat, prepare, work):
    """Milliseconds of some work, the best of the repeats, and its last result."""
    best, result = float("inf"), None
    for _ in range(repeat):
        given = prepare()
        place.wait()
        begun = time.perf_counter()
        result = work(given)
        place.wait()
        best = min(best, (time.perf_counter() - begun) * 1e3)
    return best, result


def created(path, shape, deep, codec, device):
    shutil.rmtree(path, ignore_errors=True)
    return cuzarr.create_array(
        path, shape=shape, chunks=(deep, *CHUNK) if deep == 1 else (deep, 512, 512), dtype="f4", compressors=codec
    ).with_device(device)


def check(path, model, count):
    found = cuzarr.open_array(path)
    assert found.shape[0] == count
    for number, state in enumerate(model.steps(count)):
        if number in (0, count // 2, count - 1):
            np.testing.assert_array_equal(found[number], state.get())


def assigned(array, states):
    for number, state in enumerate(states):
        array[number] = state


def by_writer(array, states, slots):
    spent = []
    with array.writer(slots=slots) as writer:
        for state in states:
            begun = time.perf_counter()
            writer.append(state)
            spent.append(time.perf_counter() - begun)
    return statistics.median(spent) * 1e6, writer.waited


def by_tensorstore(path, shape, deep, codec):
    import tensorstore

    created(path, shape, deep, codec, "cpu")
    return tensorstore.open({"driver": "zarr3", "kvstore": f"file://{path}"}, open=True).result()


def tensorstores(array, states):
    waiting = None
    for number, state in enumerate(states):
        values = state.get()
        if waiting is not None:
            waiting.result()
        waiting = array[number].write(values)
    waiting.result()


def zarrs(path, shape, deep, codec):
    import zarr

    created(path, shape, deep, codec, "cpu")
    zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"})
    return zarr.open_array(path, mode="r+")


def run(folder, place, given):
    rows = []
    columns = 8192
    model = Model((given.mib * (1 << 18) // columns, columns), given.work)
    whole = (given.steps, *model.shape)
    loop, _ = timed(place, given.repeat, lambda: None, lambda _: [None for _ in model.steps(given.steps)] and None)
    for codec_name, codec in CODECS.items():
        for deep, chunks in ((1, "one"), (8, "eight")):
            path = folder / "a"
            row = {"codec": codec_name, "chunks": chunks, "loop": round(loop, 1)}

            def fresh(shape=whole, deep=deep, codec=codec, path=path):
                return created(path, shape, deep, codec, place.device)

            def writes(array):
                import cupy

                block = cupy.stack([state.copy() for state in model.steps(8)])
                place.wait()
                begun, encoded = time.perf_counter(), 0.0
                for start in range(0, given.steps, 8):
                    array[start : start + 8] = block
                    stages = array.last_report()["stages"]
                    encoded += sum(stage["busy_seconds"] for stage in stages if stage["stage"] == "encode")
                return (time.perf_counter() - begun) * 1e3, encoded * 1e3

            found = [timed(place, 1, fresh, writes)[1] for _ in range(given.repeat)]
            row["writes"], row["encoder"] = (round(min(one), 1) for one in zip(*found, strict=True))
            if deep == 1:
                row["assigned"] = round(
                    timed(place, given.repeat, fresh, lambda array: assigned(array, model.steps(given.steps)))[0], 1
                )
            empty = (0, *model.shape)
            took, (append, waited) = timed(
                place, given.repeat, lambda: fresh(empty), lambda array: by_writer(array, model.steps(given.steps), given.slots)
            )
            check(path, model, given.steps)
            row |= {"writer": round(took, 1), "append": round(append, 1), "waited": round(waited * 1e3, 1)}
            row["bound"] = round(max(loop + row["encoder"], row["writes"]), 1)
            if deep == 1:
                for name, module, make, work in (
                    ("tensorstore", "tensorstore", by_tensorstore, tensorstores),
                    ("zarr-python", "zarr", zarrs, lambda array, states: assigned(array, (state.get() for state in states))),
                ):
                    if given.peers and importlib.util.find_spec(module):
                        peers = timed(
                            place,
                            1,
                            lambda make=make: make(path, whole, 1, codec),
                            lambda array, work=work: work(array, model.steps(given.steps)),
                        )
                        row[name] = round(peers[0], 1)
                        check(path, model, given.steps)
            rows.append(row)
            print(row, flush=True)
    return rows


def forecast(folder, place, given):
    """24 arrays by 40 steps of 4 MiB."""
    import cupy

    fields = [cupy.asarray(field) for field in arrays.temperature((24, 1024, 1024), 1)]

    def fresh():
        shutil.rmtree(folder / "f", ignore_errors=True)
        group = cuzarr.create_group(folder / "f")
        for number in range(24):
            group.create_array(
                f"v{number:02}",
                shape=(0, 1024, 1024),
                chunks=(4, 512, 512),
                dtype="f4",
                compressors=CODECS["zstd"],
                dimension_names=("time", "y", "x"),
            )
        return cuzarr.open_group(folder / "f", mode="r+", device=place.device)

    def by_group(group):
        with group.writer() as writer:
            for step in range(40):
                writer.append({f"v{number:02}": field + step for number, field in enumerate(fields)})

    def by_append(group):
        members = [group[f"v{number:02}"] for number in range(24)]
        for step in range(0, 40, 4):
            for array, field in zip(members, fields, strict=True):
                array.append(cupy.stack([field + later for later in range(step, step + 4)]))

    row = {"codec": "zstd", "chunks": "forecast"}
    for name, work in (("writer", by_group), ("assigned", by_append)):
        row[name] = round(timed(place, given.repeat, fresh, work)[0], 1)
        found = cuzarr.open_group(folder / "f")
        np.testing.assert_array_equal(found["v07"][39], (fields[7] + 39).get())
        assert found["v23"].shape[0] == 40
    print(row, flush=True)
    return [row]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--work", type=int, default=100)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder")
    parser.add_argument("--record", type=pathlib.Path)
    given = parser.parse_args()
    place = Place(given.device)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        rows = run(pathlib.Path(folder), place, given) + forecast(pathlib.Path(folder), place, given)
    if given.record:
        unit = "milliseconds of the loop, the best of the repeats (append: microseconds); every array compared with its steps"
        write_record(given.record, place, rows, "writer", unit)


if __name__ == "__main__":
    main()
