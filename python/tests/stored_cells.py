"""Sparse matrices and data frames in anndata's format, as tests write them."""

import numpy as np

import cuzarr

ARRAY = {"encoding-type": "array", "encoding-version": "0.2.0"}
TEXT = {"encoding-type": "string-array", "encoding-version": "0.2.0"}


def stored_matrix(rng, major, minor, dtype="f4", is_sorted=False):
    """Data, indices and pointer of a matrix whose rows have very different lengths. Some are empty; columns come in any order, and several times."""
    lengths = (rng.pareto(0.7, major) * 2).astype(int).clip(0, 3 * minor + 3)
    lengths[rng.random(major) < 0.3] = 0
    if not minor:
        lengths[:] = 0
    indptr = np.concatenate(([0], np.cumsum(lengths))).astype("i8")
    indices = rng.integers(0, max(minor, 1), indptr[-1])
    if is_sorted:
        for low, high in zip(indptr, indptr[1:]):
            indices[low:high].sort()
    return {"data": (rng.random(indptr[-1]) * 100 + 1).astype(dtype), "indices": indices.astype("i4"), "indptr": indptr}


def write(store, form, extents, arrays, zarr_format=3, chunks=7, shards=None, **attributes):
    own = {"encoding-type": f"{form}_matrix", "encoding-version": "0.1.0", "shape": list(extents)}
    group = cuzarr.create_group(store, zarr_format=zarr_format, attributes=own | attributes)
    for name, values in arrays.items():
        group.create_array(name, data=values, chunks=(chunks,), shards=shards and (shards,))
    return group


def rows_of(arrays, rows):
    """Data, indices and pointer of some rows, one after the other."""
    data, indices, indptr = [], [], [0]
    for row in rows:
        part = slice(int(arrays["indptr"][row]), int(arrays["indptr"][row + 1]))
        data.extend(arrays["data"][part])
        indices.extend(arrays["indices"][part].tolist())
        indptr.append(len(data))
    return np.array(data, arrays["data"].dtype), np.array(indices, "i4"), np.array(indptr, "i4")


def text(values):
    return np.array(values, object)


def put(group, name, values, attributes=ARRAY):
    if values.dtype == object:
        array = group.create_array(name, shape=values.shape, dtype=str, chunks=(2,), attributes=attributes)
        array[...] = values
        return array
    return group.create_array(name, data=values, chunks=(3,) * values.ndim, attributes=attributes)


def put_group(frame, name, encoding, version="0.1.0", **attributes):
    return frame.create_group(name, attributes={"encoding-type": encoding, "encoding-version": version, **attributes})
