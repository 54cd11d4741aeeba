"""How signatures differ from zarr-python 3.4's, each difference looked at and meant.

``ADDED`` are parameters of ours; ``OTHER`` are signatures of another shape; ``ABSENT`` are names we have not.
"""

DEVICE = "where arrays are read to"
ACCELERATOR = "a GPU may decode for host memory"
CACHE = "decoded chunks can be kept in memory of the device"
METADATA = "another store for metadata"
MODE = "zarr-python's takes it too, unnamed among the others"
PROGRESS = "tells of objects read or written"
STRICT = "whether a member that cannot be used is an error"

ADDED: dict[str, dict[str, str]] = {
    "open": {"device": DEVICE, "chunk_cache": CACHE, "metadata_store": METADATA},
    "open_array": {"mode": MODE, "device": DEVICE, "accelerator": ACCELERATOR, "chunk_cache": CACHE, "metadata_store": METADATA},
    "open_group": {"device": DEVICE, "chunk_cache": CACHE, "metadata_store": METADATA},
    "create": {"device": DEVICE, "metadata_store": METADATA},
    "create_array": {"device": DEVICE, "metadata_store": METADATA},
    "from_array": {"device": DEVICE, "metadata_store": METADATA},
    "create_group": {"metadata_store": METADATA},
    "Group.members": {"strict": STRICT},
    "AsyncGroup.members": {"strict": STRICT},
    "AsyncArray.getitem": {"progress": PROGRESS},
    "AsyncArray.setitem": {"progress": PROGRESS},
    "asynchronous.open": {"device": DEVICE, "chunk_cache": CACHE, "metadata_store": METADATA},
    "asynchronous.open_array": {
        "mode": MODE,
        "device": DEVICE,
        "accelerator": ACCELERATOR,
        "chunk_cache": CACHE,
        "metadata_store": METADATA,
    },
    "asynchronous.open_group": {"device": DEVICE, "chunk_cache": CACHE, "metadata_store": METADATA},
    "asynchronous.create": {"device": DEVICE, "metadata_store": METADATA},
    "asynchronous.create_array": {"device": DEVICE, "metadata_store": METADATA},
    "asynchronous.from_array": {"device": DEVICE, "metadata_store": METADATA},
}

POSITION = "the parameters are those of the synchronous function, which takes the store by position too"

COPIES = "zarr-python's refuses; ours copies"

OTHER: dict[str, str] = {
    "Array.__init__": "zarr-python wraps an asynchronous array; ours is the array",
    "Group.__init__": "zarr-python wraps an asynchronous group; ours is the group",
    "copy": COPIES,
    "asynchronous.copy": COPIES,
    "asynchronous.group": POSITION,
    "asynchronous.load": POSITION,
    "asynchronous.open": POSITION,
    "asynchronous.open_array": POSITION,
}

ABSENT: dict[str, str] = {}
