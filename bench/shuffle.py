"""How well `BatchDataset` shuffles: the spread of batches' means on sorted labels, beside that of a full shuffle.

    python bench/shuffle.py [--rows N] [--chunk N] [--batch N] [--epochs N]

The labels are those of ten classes, one class after the other: the worst case for an order that mixes stretches of the array. A full
shuffle is NumPy's permutation of all rows. A line of JSON for each number of chunks that the memory limit holds: the standard
deviation of the means of batches, the same of the full shuffle, the classes of a batch, and reads per chunk.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

import cuzarr
from cuzarr.torch import BatchDataset

CLASSES = 10


def spread(batches: list[np.ndarray]) -> tuple[float, float]:
    """The standard deviation of the batches' means, and how many classes a batch has."""
    means = [float(batch.mean()) for batch in batches]
    return float(np.std(means)), float(np.mean([len(np.unique(batch)) for batch in batches]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32_768)
    parser.add_argument("--chunk", type=int, default=256, help="rows of a chunk")
    parser.add_argument("--batch", type=int, default=32, help="rows of a batch")
    parser.add_argument("--epochs", type=int, default=1)
    given = parser.parse_args()
    labels = np.arange(given.rows) * CLASSES // given.rows
    array = cuzarr.create_array({}, data=labels, chunks=(given.chunk,))
    chunks = -(-given.rows // given.chunk)
    full = []
    for epoch in range(given.epochs):
        order = np.random.default_rng(epoch).permutation(given.rows)
        full += [labels[order[at : at + given.batch]] for at in range(0, given.rows - given.batch + 1, given.batch)]
    full_spread, full_classes = spread(full)
    for held in (12, 24, 64, chunks):
        rows = BatchDataset(
            array,
            given.batch,
            shuffle=True,
            drop_last=True,
            memory_limit=held * given.chunk * labels.itemsize,
        )
        got: list[np.ndarray] = []
        reads = 0
        for epoch in range(given.epochs):
            rows.set_epoch(epoch)
            got += [batch.numpy() for batch in rows]
            reads += (rows.report() or {})["chunk_reads"]
        own_spread, classes = spread(got)
        line = {
            "chunks": chunks,
            "chunks_in_memory": held,
            "spread": round(own_spread, 3),
            "full_shuffle": round(full_spread, 3),
            "classes_of_a_batch": round(classes, 2),
            "classes_of_a_full_shuffle": round(full_classes, 2),
            "reads_per_chunk": round(reads / chunks / given.epochs, 3),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
