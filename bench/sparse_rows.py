"""Rows of a sparse matrix of single-cell data: `cuzarr.sparse` beside anndata with SciPy, and an upload where results are on a GPU.

    python bench/sparse_rows.py [--device cuda:0] [--jobs whole random blocks columns epoch] [--small] [--repeat 7] [--folder DIR] [--record DIR]

The matrix has 200,000 rows, 20,000 columns and 10⁸ elements of float32 with indices of int32; with `--small`, 10,000 rows, 2,000 columns and 10⁶
elements. Lengths of rows are log-normal, one row in a hundred is empty, and columns ascend. Chunks have 262,144 elements (1 MiB), zstd 3, in files that are
in the page cache. `whole` reads everything, `random` 4,096 random rows, `blocks` 4,096 rows in 64 blocks, and `columns` 16 columns of 4,096 rows in 64 blocks.
`epoch` takes all rows once in batches of 4,096 shuffled rows: `SparseRows`, beside annbatch with its own defaults (chunks of 512 rows, 32 read
ahead) and the zarrs pipeline. `ranges` is the floor: the same ranges of `data` and `indices` without checks and pointer. `new data set` reads
the index pointer, too. anndata and annbatch read once, after one read that does not count, where they are installed. Times are milliseconds, medians of the repeats; every answer is compared with the truth. `--record DIR` writes a
record.
"""

import argparse
import pathlib
import tempfile

import numpy as np
from datasets import measured
from read import Place, write_record

import cuzarr
from cuzarr import sparse
from cuzarr.codecs import ZstdCodec
from cuzarr.loader import SparseRows
from cuzarr.sparse._places import places_of, ranges_of

CHUNK = 1 << 18
ROWS = 4096
BLOCKS = 64


def make(rows, columns, count, seed=4):
    """Data, indices and pointer of a matrix."""
    rng = np.random.default_rng(seed)
    weights = rng.lognormal(0, 0.8, rows)
    weights[rng.random(rows) < 0.01] = 0
    lengths = np.minimum(np.round(weights * count / weights.sum()).astype("i8"), columns)
    # Rounding leaves a remainder: the rows that are neither empty nor full share it.
    free = np.flatnonzero((lengths > 0) & (lengths < columns // 2))
    short = count - int(lengths.sum())
    lengths[free] += np.diff(np.arange(len(free) + 1) * short // len(free))
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    indices, data = np.empty(count, "i4"), np.empty(count, "f4")
    step = max(rows // 200, 1)
    for row in range(0, rows, step):  # a part of the rows at a time: numbers of float64 for all would take gigabytes
        own = lengths[row : row + step]
        low, high = indptr[row], indptr[min(row + step, rows)]
        of = np.repeat(own, own)
        place = np.arange(low, high) - np.repeat(indptr[row : row + len(own)], own)
        # One column from each of as many equal parts as the row has elements, so that they ascend and differ.
        first, next_ = place * columns // of, (place + 1) * columns // of
        indices[low:high] = first + (rng.random(high - low) * (next_ - first)).astype("i8")
        data[low:high] = np.log1p(rng.geometric(0.4, high - low).astype("f4") * 10_000 / of.astype("f4"))
    return data, indices, indptr.astype("i8")


def write(path, shape, arrays):
    attributes = {
        "encoding-type": "csr_matrix",
        "encoding-version": "0.1.0",
        "shape": list(shape),
    }
    group = cuzarr.create_group(path, attributes=attributes)
    for name, values in zip(("data", "indices", "indptr"), arrays, strict=True):
        group.create_array(name, data=values, chunks=(CHUNK,), compressors=[ZstdCodec(level=3)])


def truth_of(arrays, rows):
    """Data, indices and pointer of some rows."""
    data, indices, indptr = arrays
    starts, lengths = indptr[rows], indptr[rows + 1] - indptr[rows]
    borders = np.concatenate(([0], np.cumsum(lengths)))
    elements = np.arange(borders[-1]) + np.repeat(starts - borders[:-1], lengths)
    return data[elements], indices[elements], borders


def of_columns(truth, columns):
    data, indices, indptr = truth
    places = np.full(indices.max(initial=0) + 1, -1)
    inside = columns[columns < len(places)]
    places[inside] = np.flatnonzero(columns < len(places))
    chosen = places[indices] >= 0
    return (
        data[chosen],
        places[indices][chosen],
        np.concatenate(([0], np.cumsum(chosen)))[indptr],
    )


def check(result, truth):
    for got, expected in zip((result.data, result.indices, result.indptr), truth, strict=True):
        np.testing.assert_array_equal(cuzarr.xp.asnumpy(got), expected)


def by_anndata(path, place):
    """A function that reads rows and columns by anndata, and takes them to the device."""
    try:
        import anndata
        import zarr
    except ImportError:
        return None
    dataset = anndata.io.sparse_dataset(zarr.open_group(path, mode="r"))
    dataset[:1]  # reads the index pointer
    if place.cupy:
        import cupyx.scipy.sparse

    def read(rows, columns):
        found = dataset.to_memory() if rows is None else dataset[rows]
        found = found if columns is None else found[:, columns]
        return cupyx.scipy.sparse.csr_matrix(found) if place.cupy else found

    return read


def by_annbatch(path, place):
    """A function that goes through all rows by annbatch, whose batches are on the device."""
    try:
        import annbatch
        import anndata
        import zarr
        import zarrs  # noqa: F401, its pipeline is what annbatch advises
    except ImportError:
        return None

    def batches():
        with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
            matrix = anndata.io.sparse_dataset(zarr.open_group(path, mode="r"))
            loader = annbatch.Loader(batch_size=ROWS, shuffle=True, preload_to_gpu=place.cupy is not None)
            for batch in loader.add_dataset(matrix):
                yield batch["X"]

    return batches


def epochs(path, place, repeat):
    """Milliseconds of an epoch of each way."""
    module = place.cupy or np
    matrix = sparse.sparse_dataset(path, device=place.device)
    ways = {"SparseRows": lambda: SparseRows(matrix, ROWS, shuffle=True), "annbatch": by_annbatch(path, place)}
    for name, batches in ways.items():
        if batches is None:
            continue

        def epoch(batches=batches):
            found = [(batch.shape[0], batch.data.size, module.asarray(batch.indices).sum(dtype="i8")) for batch in batches()]
            return [tuple(map(int, one)) for one in found]

        milliseconds, sums = measured(place, 1 if name == "annbatch" else repeat, epoch)
        yield name, milliseconds, np.sum(sums, axis=0)


def selections(jobs, shape, seed=5):
    """Rows and columns by job."""
    rng = np.random.default_rng(seed)
    in_blocks = np.sort(rng.choice(shape[0] // BLOCKS, ROWS // BLOCKS, replace=False))[:, None] * BLOCKS + np.arange(BLOCKS)
    found = {
        "whole": (None, None),
        "random": (rng.choice(shape[0], ROWS, replace=False), None),
        "blocks": (in_blocks.ravel(), None),
        "columns": (in_blocks.ravel(), rng.choice(shape[1], 16, replace=False)),
    }
    return {job: found[job] for job in jobs if job in found}


def ranges(dataset, rows):
    """The floor: the same ranges of both arrays."""
    own = ranges_of(dataset._pointer, places_of(rows, dataset.shape[0]))
    return lambda: [array.read_ragged(own.starts, own.lengths)[0] for array in (dataset._data, dataset._indices)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", nargs="+", default=["whole", "random", "blocks", "columns", "epoch"])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--record", type=pathlib.Path)
    given = parser.parse_args()
    shape, count = ((10_000, 2_000), 10**6) if given.small else ((200_000, 20_000), 10**8)
    place, records = Place(given.device), []
    arrays = make(*shape, count)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = pathlib.Path(folder) / "matrix"
        write(path, shape, arrays)
        dataset = sparse.sparse_dataset(path, device=place.device)
        peer = by_anndata(path, place)
        for job, (rows, columns) in selections(given.jobs, shape).items():
            truth = arrays if rows is None else truth_of(arrays, rows)
            truth = truth if columns is None else of_columns(truth, columns)
            ways = {
                "cuzarr.sparse": lambda rows=rows, columns=columns: sparse.read(dataset, rows, columns),
                "new data set": lambda rows=rows, columns=columns: sparse.read(path, rows, columns, device=place.device),
            }
            if columns is None:
                ways["ranges"] = ranges(dataset, rows)
            if peer is not None:
                ways["anndata"] = lambda rows=rows, columns=columns: peer(rows, columns)
            for name, work in ways.items():
                milliseconds, result = measured(place, 1 if name == "anndata" else given.repeat, work)
                if name != "ranges":
                    check(result, truth)
                del result
                print(
                    f"{job:10} {len(truth[0]):11,} elements  {name:14} {milliseconds:10.2f} ms",
                    flush=True,
                )
                records.append(
                    {
                        "job": job,
                        "elements": len(truth[0]),
                        "by": name,
                        "milliseconds": round(milliseconds, 3),
                    }
                )
        if "epoch" in given.jobs:
            for name, milliseconds, sums in epochs(path, place, given.repeat):
                assert list(sums) == [shape[0], count, int(arrays[1].astype("i8").sum())], f"{name}: wrong rows"
                print(f"epoch      {count:11,} elements  {name:14} {milliseconds:10.2f} ms", flush=True)
                records.append({"job": "epoch", "elements": count, "by": name, "milliseconds": round(milliseconds, 3)})
    if given.record:
        unit = "milliseconds, medians of the repeats; every answer compared with the truth"
        write_record(given.record, place, records, "sparse_rows", unit)


if __name__ == "__main__":
    main()
