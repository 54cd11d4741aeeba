"""The arrays that scenarios read: like what people keep in Zarr, the same on every machine for a given seed."""

import numpy as np


def temperature(shape, seed):
    """float32: planetary waves drifting with time, fine noise, rounded to a hundredth. zstd 3 halves it."""
    times, rows, columns = shape
    latitude = np.linspace(-np.pi / 2, np.pi / 2, rows, dtype="f4")[:, None]
    longitude = np.linspace(-np.pi, np.pi, columns, dtype="f4")[None, :]
    climate = 288 - 45 * np.sin(latitude) ** 2 + 4 * np.cos(3 * longitude) * np.cos(latitude)
    generator = np.random.default_rng(seed)
    result = np.empty(shape, "f4")
    for time in range(times):
        weather = 5 * np.sin(6 * longitude + 0.2 * time) * np.cos(2 * latitude)
        noise = generator.standard_normal((rows, columns), dtype="f4")
        np.round(climate + weather + np.float32(0.15) * noise, 2, out=result[time])
    return result


def counts(shape, seed):
    """uint16: photon counts, a dim background with bright spots on a lattice that wanders with depth."""
    depth, rows, columns = shape
    y, x = np.ogrid[:rows, :columns]
    generator = np.random.default_rng(seed)
    result = np.empty(shape, "u2")
    for z in range(depth):
        spots = np.sin(y / 23 + z / 7) ** 8 * np.sin(x / 31 - z / 11) ** 8
        result[z] = generator.poisson(90 + 2500 * spots)
    return result


def labels(shape, seed):
    """uint32: connected blocks of one number each, as a segmentation has."""
    depth, rows, columns = shape
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 1 << 20, (-(-depth // 8), -(-rows // 32), -(-columns // 32)), dtype="u4")
    for axis, times in enumerate((8, 32, 32)):
        coarse = coarse.repeat(times, axis)
    return np.ascontiguousarray(coarse[:depth, :rows, :columns])


ARRAYS = {"temperature": temperature, "counts": counts, "labels": labels}
