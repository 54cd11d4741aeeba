"""Checks wheels before they are published, and prints a line for each.

    python scripts/check_wheels.py WHEEL ...

A wheel must be tagged manylinux_2_28, and auditwheel must agree. No symbol may need a glibc after 2.28, no library may be
needed that is not on every such system. It must carry every kernel of the sources as machine code for every GPU architecture, a
bill of materials, both licences, and a description whose links work outside the repository, in at most 25 MiB.
"""

import email
import hashlib
import io
import pathlib
import re
import subprocess
import sys
import zipfile

import compile_kernels
from elftools.elf.elffile import ELFFile

GLIBC = (2, 28)
LIMIT_BYTES = 25 << 20
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")
LIBRARIES = re.compile(r"lib(c|m|dl|rt|pthread|gcc_s)\.so\.\d+|ld-linux-[a-z0-9_-]+\.so\.\d+")
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}


def too_new(library):
    """The symbols of a library that need a glibc after 2.28, as ``name@GLIBC_x.y``."""
    versions, symbols = library.get_section_by_name(".gnu.version"), library.get_section_by_name(".dynsym")
    needs = library.get_section_by_name(".gnu.version_r")
    names = {entry["vna_other"]: entry.name for _, entries in needs.iter_versions() for entry in entries}
    found = []
    for number, symbol in enumerate(symbols.iter_symbols()):
        name = names.get(versions.get_symbol(number)["ndx"], "")
        if name.startswith("GLIBC_2.") and tuple(map(int, name.removeprefix("GLIBC_").split("."))) > GLIBC:
            found.append(f"{symbol.name}@{name}")
    return sorted(found)


def check_library(data, machine):
    """What is wrong with the extension module."""
    library = ELFFile(io.BytesIO(data))
    if library["e_machine"] != MACHINES[machine]:
        yield f"the extension module is for {library['e_machine']}, expected {MACHINES[machine]}"
    if new := too_new(library):
        yield f"symbols after glibc {'.'.join(map(str, GLIBC))}: {', '.join(new)}"
    needed = [tag.needed for tag in library.get_section_by_name(".dynamic").iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
    if foreign := [name for name in needed if not LIBRARIES.fullmatch(name)]:
        yield f"libraries that a system may lack: {', '.join(foreign)}"


def check_kernels(wheel):
    """What is wrong with the machine code of the kernels."""
    folder = "cuzarr/cubins"
    names = {name.removeprefix(f"{folder}/") for name in wheel.namelist() if name.startswith(f"{folder}/")}
    wanted = {
        f"{path.stem}-{compile_kernels.key(path)}.{arch}.cubin" for path in compile_kernels.sources([]) for arch in ARCHITECTURES
    }
    if missing := sorted(wanted - names):
        yield f"no machine code of {len(missing)} of {len(wanted)} kernels, {missing[0]} the first"
    listed = wheel.read(f"{folder}/MANIFEST.sha256").decode().split() if "MANIFEST.sha256" in names else []
    for digest, name in zip(listed[::2], listed[1::2], strict=True):
        if name not in names or hashlib.sha256(wheel.read(f"{folder}/{name}")).hexdigest() != digest:
            yield f"{name} is not the file that MANIFEST.sha256 lists"
    if set(listed[1::2]) != names - {"MANIFEST.sha256"}:
        yield "MANIFEST.sha256 does not list the compiled kernels"


def check_metadata(wheel):
    """What is wrong with the documents beside the code."""
    (about,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    folder = about.rpartition("/")[0]
    metadata = email.message_from_bytes(wheel.read(about))
    for field in ("Author-email", "Project-URL", "License-Expression", "Classifier", "Summary"):
        if not (metadata[field] or (field == "Author-email" and metadata["Author"])):
            yield f"METADATA has no {field}"
    links = re.findall(r"\]\(([^)]*)\)|^\[[^\]]+\]: *(\S+)", metadata.get_payload(), re.MULTILINE)
    if relative := [link for pair in links for link in pair if link and not link.startswith(("https://", "#"))]:
        yield f"links of the description that lead nowhere outside the repository: {', '.join(relative)}"
    for name in ("licenses/LICENSE-MIT", "licenses/LICENSE-APACHE", "sboms/cuzarr-python.cyclonedx.json"):
        if f"{folder}/{name}" not in wheel.namelist():
            yield f"{name} is missing"


def check(path):
    """What is wrong with a wheel."""
    machine = path.stem.partition("manylinux_2_28_")[2]
    if machine not in MACHINES:
        yield "the tag is not manylinux_2_28 of a known machine"
        return
    if path.stat().st_size > LIMIT_BYTES:
        yield f"{path.stat().st_size} bytes, at most {LIMIT_BYTES}"
    shown = subprocess.run([sys.executable, "-m", "auditwheel", "show", path], capture_output=True, text=True)
    tag = re.search(r'"manylinux_(\d+)_(\d+)_\w+"', shown.stdout)
    if not tag or (int(tag[1]), int(tag[2])) > GLIBC:
        yield f"auditwheel says: {tag[0] if tag else shown.stderr.strip()[-400:]}"
    with zipfile.ZipFile(path) as wheel:
        yield from check_library(wheel.read("cuzarr/_core.abi3.so"), machine)
        yield from check_kernels(wheel)
        yield from check_metadata(wheel)


def report(check):
    """Prints what `check` finds in each file of the command line. Returns the exit status."""
    failed = 0
    for path in map(pathlib.Path, sys.argv[1:]):
        faults = list(check(path))
        failed += bool(faults)
        print(f"{path.name}: {path.stat().st_size / (1 << 20):.1f} MiB, {'FAILED' if faults else 'ok'}")
        for fault in faults:
            print(f"  {fault}")
    return 1 if failed or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(report(check))
