"""How signatures differ from zarr-python 3.4's, each difference looked at and meant.

``ADDED`` are parameters of ours; ``OTHER`` are signatures of another shape; ``ABSENT`` are names we have not.
"""

DEVICE = "where arrays are read to"

ADDED: dict[str, dict[str, str]] = {
    "open": {"device": DEVICE},
    "open_array": {"device": DEVICE},
    "open_group": {"device": DEVICE},
    "create": {"device": DEVICE},
    "create_array": {"device": DEVICE},
    "from_array": {"device": DEVICE},
}

OTHER: dict[str, str] = {
    "Array.__init__": "zarr-python wraps an asynchronous array; ours is the array",
    "Group.__init__": "zarr-python wraps an asynchronous group; ours is the group",
}

ABSENT: dict[str, str] = {
    "AsyncArray": "there is no asynchronous face yet",
    "AsyncGroup": "there is no asynchronous face yet",
    "Array.async_array": "there is no asynchronous face yet",
    "Group.update_attributes_async": "there is no asynchronous face yet",
}
