"""Compiles every kernel of the tree with NVRTC for every architecture asked for: a check for CI, and with `--out` the
cubins that travel in the wheel.

    python scripts/compile_kernels.py [FILE.cu ...] --arch sm_80 sm_90 [--out DIR]
    python scripts/compile_kernels.py [FILE.cu ...] --keys

A cubin's name carries the key under which `cuzarr-device` looks for it (`src/driver/cubin.rs` computes the same), and
`MANIFEST.sha256` lists all of them as `sha256sum` writes it. Those that lie in DIR as its list says are not compiled again.
`--keys` prints the keys and needs no compiler.

NVRTC comes from its wheel (`nvidia-cuda-nvrtc-cu12`) in the running Python, or from the system's loader path. It has no
CUDA or standard headers, and neither have the kernels: they include headers of `crates/cuzarr-device/kernels/include`, and
of their own crate by the path from its folder `src`.
"""

import argparse
import concurrent.futures
import ctypes
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "crates/cuzarr-device/kernels/include"
KEY_FORMAT = "cuzarr-cubin-2"
# The flags that the package itself compiles with: without contraction, so that the GPU computes what the CPU computes.
FLAGS = ("--std=c++17", "--fmad=false")


class Nvrtc:
    """The few calls of NVRTC that turn a source into a cubin."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.check(self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = f"{major.value}.{minor.value}"

    def check(self, status):
        if status:
            raise RuntimeError(f"nvrtc: {self.library.nvrtcGetErrorString(status).decode()}")

    def compile(self, source, name, options):
        """The cubin and the compiler's log; the cubin is None when the source does not compile."""
        program = ctypes.c_void_p()
        self.check(
            self.library.nvrtcCreateProgram(ctypes.byref(program), source, name.encode(), 0, None, None),
        )
        try:
            array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
            status = self.library.nvrtcCompileProgram(program, len(options), array)
            log = self.output(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            return (None if status else self.output(program, "CUBIN")), log
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def output(self, program, what):
        size = ctypes.c_size_t()
        self.check(getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        data = ctypes.create_string_buffer(size.value)
        self.check(getattr(self.library, f"nvrtcGet{what}")(program, data))
        return data.raw


def find_nvrtc():
    """The newest library of the installed wheels, else the loader's."""
    found = []
    package = importlib.util.find_spec("nvidia")
    for place in package.submodule_search_locations if package else ():
        found += sorted(pathlib.Path(place).glob("*/lib/libnvrtc.so.*"))
    found = [path for path in found if "builtins" not in path.name and "alt" not in path.name]
    return os.fspath(found[-1]) if found else "libnvrtc.so.12"


def sources(named):
    """The kernels to compile: those named, or every `.cu` of the crates."""
    if named:
        return [pathlib.Path(name).resolve() for name in named]
    return sorted(path for path in ROOT.glob("crates/**/*.cu") if "target" not in path.relative_to(ROOT).parts)


def folders(path):
    """Where the headers of a kernel are: the shared ones, and those of its crate."""
    parts = path.parts
    crate = parts.index("crates") + 2 if "crates" in parts else len(parts) - 1
    return [INCLUDE, pathlib.Path(*parts[:crate], "src")]


def headers(path):
    """The headers that a kernel includes, itself or by another header, as (name, text), in the order of their names."""
    found, texts = {}, [path.read_text()]
    while texts:
        for name in re.findall(r'^#include "([^"]*)"', texts.pop(), re.MULTILINE):
            file = next((folder / name for folder in folders(path) if (folder / name).is_file()), None)
            if file and name not in found:
                found[name] = file.read_text()
                texts.append(found[name])
    return sorted(found.items())


def options(path, arch):
    """What NVRTC is asked for."""
    return [*FLAGS, f"--gpu-architecture={arch}", *(f"-I{folder}" for folder in folders(path))]


def key(path):
    """What decides a kernel's machine code, architecture and compiler aside."""
    digest = hashlib.sha256()
    parts = [KEY_FORMAT, " ".join(FLAGS), path.read_text()]
    for name, text in headers(path):
        parts += [name, text]
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def known(folder):
    """The cubins that lie in a folder as its list says, by their names."""
    manifest = folder / "MANIFEST.sha256"
    found = {}
    for line in manifest.read_text().splitlines() if manifest.is_file() else ():
        digest, name = line.split(maxsplit=1)
        data = (folder / name).read_bytes() if (folder / name).is_file() else b""
        if hashlib.sha256(data).hexdigest() == digest:
            found[name] = data
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--arch", nargs="+")
    wanted.add_argument("--keys", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()

    kernels = sources(args.files)
    if not kernels:
        print("no kernels found", file=sys.stderr)
        return 1
    stems = [path.stem for path in kernels]
    if len(stems) != len(set(stems)):
        print(f"kernels need names of their own: {sorted(stems)}", file=sys.stderr)
        return 1
    if args.keys:
        for path in kernels:
            print(path.stem, key(path))
        return 0
    nvrtc = Nvrtc(find_nvrtc())
    kept = known(args.out) if args.out else {}
    if args.out:
        shutil.rmtree(args.out, ignore_errors=True)
        args.out.mkdir(parents=True)

    def build(job):
        path, arch = job
        start = time.perf_counter()
        file = f"{path.stem}-{key(path)}.{arch}.cubin"
        cubin, log = kept.get(file), ""
        if cubin is None:
            cubin, log = nvrtc.compile(path.read_bytes(), path.name, options(path, arch))
        return path, arch, file, cubin, log, time.perf_counter() - start

    start, failed, manifest = time.perf_counter(), 0, []
    jobs = [(path, arch) for path in kernels for arch in args.arch]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for path, arch, file, cubin, log, seconds in pool.map(build, jobs):
            name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            failed += cubin is None
            size = "FAILED" if cubin is None else f"{len(cubin):>8} bytes"
            print(f"{arch:<7} {size}  {seconds:5.2f} s  {name}")
            if log:
                print(log)
            if args.out and cubin is not None:
                (args.out / file).write_bytes(cubin)
                manifest.append(f"{hashlib.sha256(cubin).hexdigest()}  {file}\n")
    if args.out and not failed:
        (args.out / "MANIFEST.sha256").write_text("".join(sorted(manifest)))
    print(
        f"nvrtc {nvrtc.version}: {len(kernels)} kernels x {len(args.arch)} architectures, {failed} failed, "
        f"{time.perf_counter() - start:.1f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
