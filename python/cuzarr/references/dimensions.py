"""Finds the dimensions of an HDF5 file's datasets, as netCDF-4 defines them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Any

import h5py
import numpy as np

from cuzarr.references.names import H5PY_ERRORS, plain_name, unicode_text


class Dimensions:
    """The dimensions of an HDF5 file's datasets, by netCDF-4's rules: their names, and the lengths of unlimited dimensions.

    Parameters
    ----------
    datasets : iterable of (str, h5py.Dataset)
        All datasets of the file, with their paths in it.
    """

    def __init__(self, datasets: Iterable[tuple[str, h5py.Dataset]]) -> None:
        listed = [(path, dataset) for path, dataset in datasets if _has_shape(dataset)]
        # Paths by dataset, for attributes that refer to datasets. HDF5 would search the whole file for each object's name.
        self._paths = {dataset.id: path for path, dataset in reversed(listed)}
        # Paths of dimension scales, by netCDF's numbers of dimensions.
        self._by_number: dict[int, str] = {}
        for path, dataset in listed:
            number = _attribute(dataset, "_Netcdf4Dimid")
            if number is not None and np.size(number) == 1 and _is_scale(dataset) and dataset.ndim:
                self._by_number[int(np.reshape(number, -1)[0])] = path
        self._scales = {path: self._find_scales(path, dataset) for path, dataset in listed}
        self._lengths: dict[str, int] = {}
        for path, dataset in listed:
            if dataset.ndim and _is_scale(dataset) and dataset.maxshape[0] is None:
                self._lengths[path] = dataset.shape[0]
        for path, dataset in listed:
            for axis, scale in enumerate(self._scales[path]):
                if scale in self._lengths and dataset.maxshape[axis] is None:
                    self._lengths[scale] = max(self._lengths[scale], dataset.shape[axis])
        # For each group, lengths of dimensions by name.
        self._known: dict[str, dict[str, int]] = {}
        for path, dataset in listed:
            known = self._known.setdefault(posixpath.dirname(path), {})
            for name, extent in zip(self._given(path, dataset), self.shape(path, dataset), strict=True):
                if name:
                    known.setdefault(name, extent)

    def __contains__(self, path: str) -> bool:
        return path in self._scales

    def _find_scales(self, path: str, dataset: h5py.Dataset) -> list[str]:
        """For each dimension of a dataset, the path of the HDF5 dataset that is its dimension scale; empty if there is none."""
        numbers = _attribute(dataset, "_Netcdf4Coordinates")
        if numbers is not None and np.size(numbers) == dataset.ndim:
            found = [self._by_number.get(int(number), "") for number in np.reshape(numbers, -1)]
            if all(found):
                return found
        if _is_scale(dataset):
            # A coordinate variable of several dimensions is the scale of its own first dimension.
            return [path, *[""] * (dataset.ndim - 1)] if dataset.ndim else []
        listed = _attribute(dataset, "DIMENSION_LIST")
        if listed is None or np.size(listed) != dataset.ndim:
            return [""] * dataset.ndim
        return [self._first_scale(dataset, scales) for scales in listed]

    def _first_scale(self, dataset: h5py.Dataset, scales: Any) -> str:
        try:
            return self._paths.get(dataset.file[scales[0]].id, "") if len(scales) else ""
        except H5PY_ERRORS:
            return ""

    def _given(self, path: str, dataset: h5py.Dataset) -> list[str]:
        names = [plain_name(posixpath.basename(scale)) for scale in self._scales[path]]
        return [name or _label(dataset, axis) for axis, name in enumerate(names)]

    def shape(self, path: str, dataset: h5py.Dataset) -> tuple[int, ...]:
        """The lengths of an HDF5 dataset's dimensions, by netCDF-4's rules. An unlimited dimension has its length in the longest
        dataset."""
        grows = zip(self._scales[path], dataset.shape, dataset.maxshape, strict=True)
        return tuple(self._lengths.get(scale, extent) if most is None else extent for scale, extent, most in grows)

    def names(self, path: str, dataset: h5py.Dataset) -> list[str]:
        """The names of an HDF5 dataset's dimensions, by netCDF-4's rules. A dimension without a name becomes ``phony_dim_N``.

        Within a group, dimensions with the same name of this form have the same length.
        """
        names = self._given(path, dataset)
        known = self._known.setdefault(posixpath.dirname(path), {})
        for axis, extent in enumerate(self.shape(path, dataset)):
            number = axis
            while not names[axis]:
                name = f"phony_dim_{number}"
                if known.setdefault(name, extent) == extent and name not in names:
                    names[axis] = name
                number += 1
        return names


def _attribute(node: h5py.Dataset, name: str) -> Any:
    try:
        return node.attrs.get(name)
    except H5PY_ERRORS:
        return None


def _has_shape(dataset: h5py.Dataset) -> bool:
    try:
        return dataset.shape is not None and dataset.maxshape is not None
    except H5PY_ERRORS:
        return False


def _is_scale(dataset: h5py.Dataset) -> bool:
    try:
        return bool(dataset.is_scale)
    except H5PY_ERRORS:
        return False


def _label(dataset: h5py.Dataset, axis: int) -> str:
    try:
        return unicode_text(dataset.dims[axis].label)
    except H5PY_ERRORS:
        return ""
