"""Checks archives of the C interface before they are published, and prints a line for each.

    python scripts/check_c_archive.py ARCHIVE ...

The shared library must need no glibc after 2.28 and no library that a system may lack, must be found by its version, and must offer
the functions of the header, each with a version of its own, and nothing else. All that is installed beside it must be there.
"""

import io
import re
import sys
import tarfile

import check_wheels
from elftools.elf.elffile import ELFFile

FILES = (
    "include/cuzarr.h",
    "lib/libcuzarr.a",
    "lib/libcuzarr.so",
    "lib/pkgconfig/cuzarr.pc",
    "lib/cmake/cuzarr/cuzarr-config.cmake",
    "lib/cmake/cuzarr/cuzarr-config-version.cmake",
    "share/cuzarr/fortran/cuzarr.f90",
    "share/cuzarr/cubins/MANIFEST.sha256",
    "share/doc/cuzarr/LICENSE-MIT",
    "share/doc/cuzarr/LICENSE-APACHE",
)


def offered(library):
    """The functions that a library offers, with the version of each."""
    versions, definitions = library.get_section_by_name(".gnu.version"), library.get_section_by_name(".gnu.version_d")
    names = {entry["vd_ndx"]: next(iter(auxiliary)).name for entry, auxiliary in definitions.iter_versions()}
    found = {}
    for number, symbol in enumerate(library.get_section_by_name(".dynsym").iter_symbols()):
        if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["type"] == "STT_FUNC":
            found[symbol.name] = names.get(versions.get_symbol(number)["ndx"], "no version")
    return found


def check(path):
    """What is wrong with an archive."""
    machine = path.name.removesuffix(".tar.gz").partition("manylinux_2_28_")[2]
    folder, version = path.name.removesuffix(".tar.gz"), path.name.split("-")[2]
    with tarfile.open(path) as archive:
        names = set(archive.getnames())
        for name in FILES:
            if f"{folder}/{name}" not in names:
                yield f"{name} is missing"
        header = archive.extractfile(f"{folder}/include/cuzarr.h").read().decode()
        data = archive.extractfile(f"{folder}/lib/libcuzarr.so.{version}").read()
    yield from check_wheels.check_library(data, machine)
    functions = set(re.findall(r"^(?!//).*?\b(cuzarr_\w+)\(", header, re.MULTILINE))
    found = offered(ELFFile(io.BytesIO(data)))
    if wrong := sorted(functions ^ set(found)):
        yield f"functions that the header and the library do not share: {', '.join(wrong)}"
    if unversioned := sorted(name for name, node in found.items() if not node.startswith("CUZARR_")):
        yield f"functions without a version: {', '.join(unversioned)}"


if __name__ == "__main__":
    sys.exit(check_wheels.report(check))
