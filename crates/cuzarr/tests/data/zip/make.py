"""Makes the ZIP files of this folder, by Python's zipfile and by Info-ZIP's zip."""

import io
import os
import subprocess
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
MEMBERS = {
    "zarr.json": b'{"zarr_format": 3, "node_type": "group", "attributes": {"title": "packed"}}',
    "a/c/0/1": bytes(range(256)) * 4,
    "a/empty": b"",
    "a/long": b"the same over and over. " * 500,
}


class Unseekable(io.RawIOBase):
    """Makes zipfile write data descriptors behind the members."""

    def __init__(self) -> None:
        self.parts = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self.parts += bytes(data)
        return len(data)


def write(target, zip64: bool) -> None:
    with zipfile.ZipFile(target, "w") as archive:
        archive.comment = b"a comment with PK\x05\x06 in it"
        for number, (name, data) in enumerate(MEMBERS.items()):
            info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED
            with archive.open(info, "w", force_zip64=zip64) as member:
                member.write(data)


if __name__ == "__main__":
    write(HERE / "seekable.zip", zip64=True)
    streamed = Unseekable()
    write(streamed, zip64=False)
    (HERE / "streamed.zip").write_bytes(b"#!/bin/sh a program before the archive\n" + streamed.parts)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in MEMBERS.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (1_767_225_600, 1_767_225_600))
        for name, level in (("stored.zip", "-0"), ("deflated.zip", "-9")):
            (HERE / name).unlink(missing_ok=True)
            subprocess.run(["zip", "-q", "-X", level, "-r", HERE / name, "."], cwd=folder, check=True)
        # `-fz` has zip write ZIP64 records everywhere.
        (HERE / "zip64.zip").unlink(missing_ok=True)
        subprocess.run(["zip", "-q", "-X", "-fz", "-r", HERE / "zip64.zip", "."], cwd=folder, check=True)
