"""Train on batches of single cells

A single-cell study is a sparse matrix of counts, cells by genes, in anndata's Zarr format, with a table of the cells beside it.
`cuzarr.loader.SparseRows` gives shuffled batches of rows with columns of that table, read ahead by a thread. Rows are shuffled in blocks that lie
together, so each chunk is read about once an epoch. With `dense=True` the zeros are filled in on the device, after the sparse elements came
across.

Here a classifier learns the type of a cell from its counts by plain gradient descent. `cuzarr.torch.SparseRows` gives the same batches as
tensors. The program writes the format by hand, so that it needs neither anndata nor SciPy.
"""

import argparse
import tempfile

import numpy as np

import cuzarr

TYPES = ("B", "NK", "T", "monocyte")


def make_study(path, cells, genes):
    """Counts of four types of cells. Each type has 15 genes of its own that it expresses ten times as much as other cells."""
    rng = np.random.default_rng(19)
    codes = rng.integers(0, len(TYPES), cells)
    rates = np.full((len(TYPES), genes), 0.08)
    for number in range(len(TYPES)):
        rates[number, 15 * number : 15 * number + 15] *= 10
    counts = rng.poisson(rates[codes] * rng.lognormal(0, 0.4, (cells, 1)))
    rows, columns = np.nonzero(counts)

    study = cuzarr.create_group(path, attributes={"encoding-type": "anndata", "encoding-version": "0.1.0"})
    csr = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [cells, genes]}
    matrix = study.create_group("X", attributes=csr)
    matrix.create_array("data", data=counts[rows, columns].astype("float32"), chunks=(20_000,))
    matrix.create_array("indices", data=columns.astype("int32"), chunks=(20_000,))
    matrix.create_array("indptr", data=np.concatenate([[0], np.bincount(rows, minlength=cells).cumsum()]))

    frame = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index", "column-order": ["cell_type"]}
    obs = study.create_group("obs", attributes=frame)
    text = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
    names = np.array([f"cell{number}" for number in range(cells)], np.dtypes.StringDType())
    obs.create_array("_index", data=names, attributes=text)
    kind = {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}
    column = obs.create_group("cell_type", attributes=kind)
    array = {"encoding-type": "array", "encoding-version": "0.2.0"}
    column.create_array("codes", data=codes.astype("int8"), attributes=array)
    column.create_array("categories", data=np.array(TYPES, np.dtypes.StringDType()), attributes=text)
    return study


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        study = make_study(f"{folder}/study.zarr", arguments.cells, 400)
        labels = cuzarr.sparse.read_column(study["obs"], "cell_type").categories
        options = {"obs": study["obs"], "columns": ["cell_type"], "dense": True}
        training = cuzarr.loader.SparseRows(study["X"], 128, shuffle=True, memory_limit="64 MiB", **options)

        weights = np.zeros((400, len(labels)), "float32")
        losses = []
        for epoch in range(arguments.epochs):
            training.set_epoch(epoch)
            for counts, columns in training:
                features = np.log1p(cuzarr.xp.asnumpy(counts))
                wanted = np.eye(len(labels), dtype="float32")[cuzarr.xp.asnumpy(columns["cell_type"])]
                scores = np.exp(features @ weights)
                scores /= scores.sum(axis=1, keepdims=True)
                losses.append(float(-np.log((scores * wanted).sum(axis=1)).mean()))
                weights -= 0.5 * features.T @ (scores - wanted) / len(features)
        report = training.report()
        print(f"an epoch: {report['samples']} cells, each chunk read {report['reads_per_chunk']:.2f} times")

        confusion = np.zeros((len(labels), len(labels)), int)
        for counts, columns in cuzarr.loader.SparseRows(study["X"], 512, **options):
            guess = (np.log1p(cuzarr.xp.asnumpy(counts)) @ weights).argmax(axis=1)
            np.add.at(confusion, (cuzarr.xp.asnumpy(columns["cell_type"]), guess), 1)
        print(
            f"loss {losses[0]:.2f}, at the end {losses[-1]:.2f}; {confusion.trace() / confusion.sum():.1%} of the cells are right"
        )
        assert confusion.trace() > 0.9 * confusion.sum()
        draw(arguments.picture, losses, confusion, labels)


def draw(path, losses, confusion, labels):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(5.4, 6), layout="constrained", height_ratios=(2, 3))
    axes[0].plot(losses)
    axes[0].set(title="loss", xlabel="batch", yscale="log")
    axes[1].imshow(confusion, cmap="Greens")
    axes[1].set(xticks=range(len(labels)), yticks=range(len(labels)), xticklabels=labels, yticklabels=labels)
    axes[1].set(xlabel="said", ylabel="true", title="cells")
    for (row, column), number in np.ndenumerate(confusion):
        axes[1].text(column, row, number, ha="center", va="center", color="white" if row == column else "black")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--picture", default="cells.png")
    arguments = parser.parse_args()
    if min(arguments.cells, arguments.epochs) < 1:
        parser.error("--cells and --epochs must be 1 or more")
    main(arguments)
