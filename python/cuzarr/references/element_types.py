"""Comparison of HDF5's and NumPy's types: whether the stored bytes of an element are those of NumPy's element."""

from __future__ import annotations

import sys
from typing import Any

import h5py
import numpy as np

from cuzarr.errors import UnsupportedError

# Layout of IEEE floats by their size in bytes: first bits of sign, exponent and mantissa, lengths of the exponent and of the
# mantissa, and the exponent's bias.
_IEEE = {2: (15, 10, 5, 0, 10, 15), 4: (31, 23, 8, 0, 23, 127), 8: (63, 52, 11, 0, 52, 1023)}


def plain_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Converts h5py's dtype to the type of elements in Zarr: fields without gaps, and without h5py's metadata.

    Raises
    ------
    UnsupportedError
        Zarr has no such type.
    """
    if dtype.names:
        return np.dtype([(name, plain_type(dtype[name])) for name in dtype.names])
    if dtype.kind in "biufcSV" and not dtype.hasobject and dtype.subdtype is None and dtype.itemsize:
        return np.dtype(dtype.str)
    # h5py keeps the types of objects in the dtype's metadata.
    noted = {kind: getattr(what, "__name__", what) for kind, what in (dtype.metadata or {}).items()}
    name = f"sequence of {noted['vlen']}" if "vlen" in noted else noted.get("ref", dtype)
    raise UnsupportedError(f"elements of type {name} have no type in Zarr")


def v2_type(dtype: np.dtype[Any]) -> Any:
    """Converts a NumPy dtype to the form that the member ``dtype`` has in ``.zarray``."""
    return [[name, v2_type(dtype[name])] for name in dtype.names] if dtype.names else dtype.str


def difference(stored: h5py.h5t.TypeID, dtype: np.dtype[Any]) -> str | None:
    """The difference between elements of an HDF5 type and of a NumPy type, as text; ``None`` if their bytes are the same.

    Parameters
    ----------
    stored : h5py.h5t.TypeID
        The type in the file.
    dtype : numpy.dtype
        The NumPy type to compare with.
    """
    h5t, kind = h5py.h5t, stored.get_class()
    if kind == h5t.ENUM:
        base = stored.get_super()
        # Booleans, which h5py stores as enumerations of FALSE and TRUE.
        is_signed = base.get_class() == h5t.INTEGER and base.get_sign() == h5t.SGN_2
        return difference(base, np.dtype("i1" if is_signed else "u1") if dtype.kind == "b" else dtype)
    if stored.get_size() != dtype.itemsize:
        return f"its elements have {stored.get_size()} bytes, and {dtype} has {dtype.itemsize}"
    if kind == h5t.COMPOUND:
        return _difference_of_fields(stored, dtype)
    if kind == h5t.STRING and dtype.kind == "S":
        return "its text is padded by spaces, and Zarr's by NULs" if stored.get_strpad() == h5t.STR_SPACEPAD else None
    if kind == h5t.OPAQUE and dtype.kind == "V":
        return None
    if kind == h5t.BITFIELD and dtype.kind == "u":
        bits = 8 * dtype.itemsize
        known = [getattr(h5t, f"STD_B{bits}{order}", None) for order in _orders(dtype)]
        return None if any(one is not None and stored.equal(one) for one in known) else "its bits are not those of an integer"
    if kind == h5t.INTEGER and dtype.kind in "iu":
        is_signed = stored.get_sign() == h5t.SGN_2
        return _difference_of_bits(stored, dtype) if is_signed == (dtype.kind == "i") else "its sign is another one"
    if kind == h5t.FLOAT and dtype.kind == "f" and dtype.itemsize in _IEEE:
        is_ieee = (*stored.get_fields(), stored.get_ebias()) == _IEEE[dtype.itemsize] and stored.get_norm() == h5t.NORM_IMPLIED
        return _difference_of_bits(stored, dtype) if is_ieee else f"its floats of {dtype.itemsize} bytes are not IEEE's"
    return f"its elements are of HDF5's class {_class_name(kind)}, and would be read as {dtype}"


def _orders(dtype: np.dtype[Any]) -> tuple[str, ...]:
    if dtype.itemsize == 1:
        return "LE", "BE"
    is_little = dtype.byteorder == "<" or (dtype.byteorder == "=" and sys.byteorder == "little")
    return ("LE",) if is_little else ("BE",)


def _difference_of_bits(stored: h5py.h5t.TypeID, dtype: np.dtype[Any]) -> str | None:
    """Compares an HDF5 type with a NumPy type: which bits of an element are used, and in which byte order. Returns the difference as text,
    or ``None``."""
    precision, offset, bits = stored.get_precision(), stored.get_offset(), 8 * stored.get_size()
    if precision != bits or offset:
        return f"its elements have {precision} bits from bit {offset} on, in {bits // 8} bytes"
    if bits > 8 and stored.get_order() not in {getattr(h5py.h5t, f"ORDER_{order}") for order in _orders(dtype)}:
        return f"the order of its bytes is not that of {dtype.str}"
    return None


def _difference_of_fields(stored: h5py.h5t.TypeID, dtype: np.dtype[Any]) -> str | None:
    fields: list[tuple[str, np.dtype[Any]]]
    if dtype.kind == "c":
        half = np.dtype(f"{dtype.str[0]}f{dtype.itemsize // 2}")
        fields = [("", half), ("", half)]
    else:
        fields = [(name, dtype[name]) for name in dtype.names or ()]
    if stored.get_nmembers() != len(fields):
        return f"it has {stored.get_nmembers()} fields, and {dtype} has {len(fields)}"
    got = [stored.get_member_offset(number) for number in range(len(fields))]
    sizes = [field.itemsize for _, field in fields]
    expected = [sum(sizes[:number]) for number in range(len(sizes))]
    if got != expected:
        return f"its fields begin at the bytes {got} of an element, and Zarr's without gaps in the same order at {expected}"
    if sum(sizes) != stored.get_size():
        return f"its elements have {stored.get_size()} bytes, and their fields {sum(sizes)}"
    for number, (name, field) in enumerate(fields):
        if found := difference(stored.get_member_type(number), field):
            return f"field '{name}': {found}" if name else found
    return None


def _class_name(kind: int) -> str:
    names = "INTEGER FLOAT TIME STRING BITFIELD OPAQUE COMPOUND REFERENCE ENUM VLEN ARRAY COMPLEX".split()
    return next((name.lower() for name in names if getattr(h5py.h5t, name, None) == kind), str(kind))


def ends_at_nul(stored: h5py.h5t.TypeID) -> bool:
    """Whether elements of an HDF5 type contain text that ends at its first NUL. Only a read shows if bytes follow the NUL."""
    kind = stored.get_class()
    if kind == h5py.h5t.COMPOUND:
        return any(ends_at_nul(stored.get_member_type(number)) for number in range(stored.get_nmembers()))
    is_fixed_text = kind == h5py.h5t.STRING and not stored.is_variable_str()
    return is_fixed_text and stored.get_size() > 1 and stored.get_strpad() == h5py.h5t.STR_NULLTERM
