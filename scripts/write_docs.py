"""Writes the reference from docstrings and signatures, and docs/support.md from the cases that the conformance matrix runs:

    .venv/bin/python scripts/write_docs.py [DIRECTORY]

The reference goes to DIRECTORY (target/doc/python unless given), a page for each public module.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pathlib
import sys
import warnings
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
# The public modules, each a page; those that need another library are left as they are where it is missing.
MODULES = (
    "cuzarr", "cuzarr.api.asynchronous", "cuzarr.buffer", "cuzarr.buffer.cpu", "cuzarr.buffer.gpu", "cuzarr.codecs",
    "cuzarr.codecs.numcodecs", "cuzarr.dask", "cuzarr.dtype", "cuzarr.errors", "cuzarr.kernels", "cuzarr.kvikio",
    "cuzarr.storage", "cuzarr.torch", "cuzarr.xarray", "cuzarr.zarr",
)  # fmt: skip
NEEDS = {"cuzarr.dask": "dask", "cuzarr.torch": "torch", "cuzarr.xarray": "xarray", "cuzarr.zarr": "zarr"}
NOTE = "<!-- Written by scripts/write_docs.py: change the docstrings instead. -->\n"


def names_of(module: Any) -> list[str]:
    """The public names of a module, in its own order."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        listed = [name for name in own if not name.startswith("_")]
    return [name for name in listed if name != "__version__" and not inspect.ismodule(getattr(module, name))]


def signature_of(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    parameters = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values()]
    text = str(found.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return "(…)" if " at 0x" in text else text


def text_of(value: Any) -> str:
    return (inspect.getdoc(value) or "").strip()


def fenced(text: str) -> str:
    """A docstring as Markdown: NumPy's headings in bold, examples in blocks."""
    out: list[str] = []
    lines = text.splitlines()
    at, in_block = 0, False
    while at < len(lines):
        line = lines[at]
        is_heading = at + 1 < len(lines) and lines[at + 1].strip() and set(lines[at + 1].strip()) == {"-"}
        if line.startswith(">>>") and not in_block:
            out.append("```pycon")
            in_block = True
        elif in_block and not line.strip():
            out.append("```")
            in_block = False
        if is_heading:
            out += [f"**{line.strip()}**", ""]
            at += 2
            continue
        out.append(line if in_block else parameter(line, lines, at))
        at += 1
    if in_block:
        out.append("```")
    return "\n".join(out)


def parameter(line: str, lines: list[str], at: int) -> str:
    """A name of NumPy's lists of parameters, which has what it says indented below."""
    below = lines[at + 1] if at + 1 < len(lines) else ""
    if line and not line.startswith(" ") and below.startswith("    "):
        return f"- `{line.strip()}`"
    return f"  {line.strip()}" if line.startswith("    ") else line


def members_of(cls: type) -> list[tuple[str, Any]]:
    """What a class defines itself or takes from cuzarr's own bases, and says something of."""
    found = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("cuzarr"):
            found.update({name: value for name, value in vars(base).items() if not name.startswith("_")})
    return [(name, value) for name, value in sorted(found.items()) if text_of(getattr(value, "__func__", value))]


def describe_class(name: str, cls: type) -> list[str]:
    bases = ", ".join(f"`{base.__name__}`" for base in cls.__bases__ if base is not object)
    out = [f"## `{name}`", ""] if issubclass(cls, BaseException) else [f"## `{name}{signature_of(cls)}`", ""]
    out += [f"Bases: {bases}", ""] if bases else []
    out += [fenced(text_of(cls)), ""]
    if issubclass(cls, BaseException):
        return out
    for member, value in members_of(cls):
        plain = getattr(value, "__func__", value)
        if isinstance(value, property) or not callable(plain):
            out += [f"### `{name}.{member}`", "", fenced(text_of(value)), ""]
        else:
            out += [f"### `{name}.{member}{signature_of(plain)}`", "", fenced(text_of(plain)), ""]
    return out


def reference(module_name: str) -> str:
    """A module's page."""
    module = importlib.import_module(module_name)
    out = [NOTE, f"# `{module_name}`", "", fenced(text_of(module)), ""]
    for name in names_of(module):
        value = getattr(module, name)
        if inspect.isclass(value):
            out += describe_class(name, value)
        elif inspect.isroutine(value):
            out += [f"## `{name}{signature_of(value)}`", "", fenced(text_of(value)), ""]
        else:
            out += [f"## `{name}`", "", f"A `{type(value).__name__}`. " + fenced(text_of(type(value))), ""]
    return "\n".join(out).rstrip() + "\n"


def support() -> str:
    """The page of what the conformance matrix runs."""
    sys.path.insert(0, str(ROOT / "python" / "tests"))
    from conformance import cases, engines

    found = cases.all_cases()
    out = [
        NOTE, "# What is supported", "",
        f"Every line stands for arrays that the tests write with cuzarr and read with zarr-python, and the other way round:\n"
        f"{len(found)} cases, of which tensorstore reads {sum(engines.tensorstore_reader(case) is not None for case in found)} and zarrs "
        f"{sum(engines.zarrs_reader(case) is not None for case in found)} as well. What is refused, and why, is in\n"
        "[CORRECTNESS.md](../CORRECTNESS.md).", "",
        "## Data types", "", "| data type | Zarr v2 | Zarr v3 | chains of codecs |", "|---|---|---|---|",
    ]  # fmt: skip
    for name in dict.fromkeys(case.data_type.name for case in found):
        own = [case for case in found if case.data_type.name == name]
        formats = {case.zarr_format for case in own}
        out.append(f"| `{name}` | {mark(2 in formats)} | {mark(3 in formats)} | {len({case.chain.name for case in own})} |")
    out += [
        "",
        "## Codecs",
        "",
        "On a GPU *native* codecs are decoded by kernels, where that is faster or `strict` asks for it.",
        "",
    ]
    out += ["| codec | Zarr v2 | Zarr v3 | reading on a GPU | data types |", "|---|---|---|---|---|"]
    places = placements(found)
    names: dict[str, list[Any]] = {}
    for case in found:
        for recipe in flat(case.recipes):
            names.setdefault(recipe[0], []).append((case, recipe))
    for name, uses in sorted(names.items(), key=lambda item: item[0].removeprefix("numcodecs.")):
        formats = {case.zarr_format for case, _ in uses}
        types = {case.data_type.name.removesuffix("be") for case, _ in uses}
        place = where(places.get(name.removeprefix("numcodecs."), set()))
        out.append(f"| `{name}` | {mark(2 in formats)} | {mark(3 in formats)} | {place} | {len(types)} |")
    sharded = [case for case in found if case.shards or "sharding_indexed" in {name for name, _ in case.recipes}]
    out += ["", f"Shards, also inside shards and with their index at either end: {len(sharded)} cases. Fortran order: "]
    out[-1] += f"{sum(case.order == 'F' for case in found)}. Arrays with an empty dimension, or none: "
    out[-1] += f"{sum(0 in case.shape or not case.shape for case in found)}."
    return "\n".join(out) + "\n"


def flat(recipes: Any) -> Any:
    """The codecs of a chain, those inside shards included."""
    for name, configuration in recipes:
        yield name, configuration
        yield from flat([*configuration.get("codecs", ()), *configuration.get("index_codecs", ())])


def mark(has: bool) -> str:
    return "yes" if has else "–"


def placements(found: list[Any]) -> dict[str, set[str]]:
    """By codec, where reading to a GPU runs it under `strict` in the cases, as the library says without one."""
    from conformance import engines

    import cuzarr

    places: dict[str, set[str]] = {}
    with warnings.catch_warnings(), cuzarr.config.set({"strict": True}):
        warnings.simplefilter("ignore")
        for case in found:
            if not case.data_type.is_variable:
                array = cuzarr.create_array({}, **engines.arguments(case, cuzarr.codecs))
                for name, place in array.with_device("cuda:0").placements():
                    places.setdefault(name.removeprefix("numcodecs."), set()).add(place)
    return places


def where(places: set[str]) -> str:
    """Those places in words; that a neighbour in the chain runs on the host says nothing of a codec."""
    reasons = sorted(place.removeprefix("via host: ") for place in places if place.startswith("via host"))
    reasons = [reason for reason in reasons if not reason.startswith("feeds ")]
    if "native" not in places:
        return f"via host: {'; '.join(reasons)}" if reasons else "via host"
    return f"native; via host where: {'; '.join(reasons)}" if reasons else "native"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=pathlib.Path, default=ROOT / "target" / "doc" / "python")
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for name in MODULES:
        try:
            importlib.import_module(NEEDS.get(name, "cuzarr"))
        except ImportError:
            print(f"{name} is left out: {NEEDS[name]} is not installed")
            continue
        (directory / f"{name}.md").write_text(reference(name))
        made.append(name)
    listed = "".join(f"- [`{name}`]({name}.md)\n" for name in made)
    (directory / "README.md").write_text(f"{NOTE}\n# Reference\n\n{listed}")
    (ROOT / "docs" / "support.md").write_text(support())
    return 0


if __name__ == "__main__":
    sys.exit(main())
