"""How signatures differ from zarr-python 3.4's, each difference looked at and meant.

``ADDED`` are parameters of ours; ``OTHER`` are signatures of another shape; ``ABSENT`` are names we have not.
"""

DEVICE = "where arrays are read to"
PROGRESS = "tells of objects read or written"

ADDED: dict[str, dict[str, str]] = {
    "open": {"device": DEVICE},
    "open_array": {"device": DEVICE},
    "open_group": {"device": DEVICE},
    "create": {"device": DEVICE},
    "create_array": {"device": DEVICE},
    "from_array": {"device": DEVICE},
    "AsyncArray.getitem": {"progress": PROGRESS},
    "AsyncArray.setitem": {"progress": PROGRESS},
    "asynchronous.open": {"device": DEVICE},
    "asynchronous.open_array": {"device": DEVICE},
    "asynchronous.open_group": {"device": DEVICE},
    "asynchronous.create": {"device": DEVICE},
    "asynchronous.create_array": {"device": DEVICE},
    "asynchronous.from_array": {"device": DEVICE},
}

POSITION = "the parameters are those of the synchronous function, which takes the store by position too"

OTHER: dict[str, str] = {
    "Array.__init__": "zarr-python wraps an asynchronous array; ours is the array",
    "Group.__init__": "zarr-python wraps an asynchronous group; ours is the group",
    "asynchronous.group": POSITION,
    "asynchronous.load": POSITION,
    "asynchronous.open": POSITION,
    "asynchronous.open_array": POSITION,
}

ABSENT: dict[str, str] = {}
