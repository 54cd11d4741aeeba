"""Writes casts.txt: what NumPy's astype gives for special values, on x86-64.

    pip install numpy==2.5.5 ml_dtypes==0.6.0
    python casts.py > casts.txt

A line `from <dtype> <hex>` holds little-endian source elements; the lines `to <dtype> <hex>` below it what they become.
Elements are converted one at a time: NumPy's vector loops give other values than its scalar ones for uint32 out of range.
"""

import warnings

import ml_dtypes
import numpy as np

DTYPES = {
    "bool": np.bool_,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "bfloat16": ml_dtypes.bfloat16,
    "complex64": np.complex64,
    "complex128": np.complex128,
}

FLOATS = [
    0.0,
    1.0,
    0.5,
    1.5,
    2.5,
    0.1,
    127.9,
    128.0,
    255.5,
    256.0,
    300.7,
    2047.5,
    2049.0,
    2051.0,
    4099.0,
    32767.9,
    32768.0,
    65503.9,
    65519.99,
    65520.0,
    65536.0,
    70000.0,
    2.0**31 - 1,
    2.0**31,
    2.0**31 + 300,
    2.0**32 - 1,
    2.0**32,
    5e9,
    2.0**33 + 7,
    2.0**53 - 1,
    2.0**62,
    2.0**63 - 1024,
    2.0**63,
    2.0**63 + 2.0**20,
    1.5e19,
    2.0**64,
    1e30,
    1e39,
    1e300,
    6.1e-5,
    6.0e-8,
    2.98e-8,
    2.9802323e-8,
    5.0e-8,
    1e-40,
    1e-45,
    1e-320,
    1 + 2.0**-8,
    1 + 3 * 2.0**-8,
    1 + 2.0**-9,
    1 + 2.0**-11,
    1 + 2.0**-11 + 2.0**-40,
    1 + 3 * 2.0**-11,
    1 + 2.0**-24,
    3.3895e38,
    np.inf,
]
INTS = [
    0,
    1,
    2,
    127,
    128,
    200,
    255,
    256,
    2047,
    2049,
    2051,
    4099,
    32767,
    32768,
    65504,
    65519,
    65520,
    65535,
    65536,
    2**24 + 1,
    2**24 + 3,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32 + 5,
    2**53 + 1,
    2**62 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    16778240,
    2**40 + 2**16 + 1,
    2049 * 2**29 + 1,
]


def patterns(name: str) -> np.ndarray:
    """NaNs with payloads, signalling ones too."""
    words, bits = {
        "float16": ([0x7C01, 0x7E00, 0xFE01, 0x7DFF, 0xFC00 + 0x155], np.uint16),
        "bfloat16": ([0x7F81, 0x7FC0, 0xFFC1, 0x7FBF, 0xFF80 + 0x55], np.uint16),
        "float32": ([0x7F800001, 0x7FC00000, 0xFFC01234, 0x7F8FFFFF, 0xFFA55555, 0x7FC02000], np.uint32),
        "float64": (
            [
                0x7FF0000000000001,
                0x7FF8000000000000,
                0xFFF8000012345678,
                0x7FF00FFFFFFFFFFF,
                0xFFF5555555555555,
                0x7FF8040000000000,
            ],
            np.uint64,
        ),
    }[name]
    return np.array(words, dtype=bits).view(DTYPES[name])


def sources(name: str) -> np.ndarray:
    dtype = DTYPES[name]
    if name == "bool":
        return np.array([False, True])
    if name.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        values = sorted({v for n in INTS for v in (n, -n) if info.min <= v <= info.max} | {info.min, info.max})
        return np.array(values, dtype=dtype)
    if name.startswith("complex"):
        part = "float32" if name == "complex64" else "float64"
        parts = sources(part)
        return np.stack([parts, np.roll(parts, 1)], axis=-1).reshape(-1).view(dtype)
    signed = np.array(FLOATS + [-value for value in FLOATS], dtype=np.float64)
    return np.concatenate([signed.astype(dtype), patterns(name)])


def main() -> None:
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for source_name in DTYPES:
        elements = sources(source_name)
        print("from", source_name, elements.tobytes().hex())
        for target_name, target in DTYPES.items():
            converted = b"".join(elements[i : i + 1].astype(target).tobytes() for i in range(len(elements)))
            print("to", target_name, converted.hex())


if __name__ == "__main__":
    main()
