"""Makes tables of references, by which netCDF-4 and HDF5 files can be read as Zarr groups. The chunks stay in the files. This needs h5py.

:func:`make_references` makes a table, and ``reference::TABLE.json`` opens it as a store, without h5py. Data pass through the
modules of this package as follows:

============================  ==============================================================================================
``source``                    a path or URL → the bytes of a file
``hdf5``                      the bytes → groups and datasets; links and what h5py cannot read are left out
``names``, ``dimensions``     a dataset → its attributes and dimensions, as netCDF-4 means them
``element_types``             HDF5's type → NumPy's type, if the bytes of an element are the same
``filters``                   HDF5's filters → numcodecs' codecs
``layout``                    a dataset → its chunks: ranges of the file, or bytes for the table
``chunk``                     one chunk → its elements, decoded as readers of the table will
``check``                     the elements → compared with those that h5py reads
``fill``                      HDF5's and netCDF's fill values → one of Zarr's format 2
``variable``                  all of these → an array of the table, with its documents
``joined``, ``times``         variables of several files → one array along a dimension, with times since one date
``entries``, ``table``        arrays and groups → the keys of a table
============================  ==============================================================================================

``choice`` records the variables that are left out, and the reasons. ``make`` has the functions that Python programs and the command
``cuzarr references make`` call.
"""

from cuzarr import _names
from cuzarr.references.make import make_references

__all__ = ["make_references"]

_names.publish(globals())
