"""Writes docs/support.md from the cases that the conformance matrix runs, and from what the library says of its codecs:

.venv/bin/python scripts/write_docs.py
"""

from __future__ import annotations

import pathlib
import sys
import warnings
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
NOTE = "<!-- Written by scripts/write_docs.py from the tests. -->\n"


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
        "## Data types", "",
        "A name that ends in `be` is stored big-endian. `datetime` and `timedelta` have one unit for all elements, such as seconds or 10 ms.",
        "`unicode5` is text of at most 5 characters, `ascii7` of at most 7 bytes, and `raw6` is 6 bytes. `struct` has named fields, and",
        "`struct_mixed` fields of both byte orders. The last column counts the chains of codecs that the tests combine with the type.", "",
        "| data type | Zarr v2 | Zarr v3 | chains of codecs |", "|---|---|---|---|",
    ]  # fmt: skip
    for name in dict.fromkeys(case.data_type.name for case in found):
        own = [case for case in found if case.data_type.name == name]
        formats = {case.zarr_format for case in own}
        out.append(f"| `{name}` | {mark(2 in formats)} | {mark(3 in formats)} | {len({case.chain.name for case in own})} |")
    out += [
        "",
        "## Codecs",
        "",
        "On a GPU, kernels decode *native* codecs where that is faster, or where `strict` asks for it. The host decodes the others. The last",
        "column counts the data types that the tests combine with the codec.",
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
    out += registered_names()
    return "\n".join(out) + "\n"


def registered_names() -> list[str]:
    """A table of the extensions that are registered for Zarr v3."""
    from conformance import registered

    taken = registered.SNAPSHOT
    out = [
        "", "## Registered extensions", "",
        f"Every name that [zarr-extensions]({taken['source']}) registers, as of {taken['date']} (commit `{taken['commit'][:12]}`). A refused",
        "name is an error that says the name.", "",
        "| kind | name | supported |", "|---|---|---|",
    ]  # fmt: skip
    for kind in registered.KINDS:
        for name in taken[kind]:
            out.append(f"| {kind} | `{name}` | {'yes' if registered.refusal(kind, name) is None else 'refused'} |")
    return out


def flat(recipes: Any) -> Any:
    """The codecs of a chain, those inside shards included."""
    for name, configuration in recipes:
        yield name, configuration
        yield from flat([*configuration.get("codecs", ()), *configuration.get("index_codecs", ())])


def mark(has: bool) -> str:
    return "yes" if has else "–"


ON_HOST = "decoded on the host in this version"


def placements(found: list[Any]) -> dict[str, set[tuple[str, str]]]:
    """By codec, where reading to a GPU runs it under `strict` in the cases, as the library says without one, with the data type."""
    from conformance import engines

    import cuzarr

    places: dict[str, set[tuple[str, str]]] = {}
    with warnings.catch_warnings(), cuzarr.config.set({"strict": True}):
        warnings.simplefilter("ignore")
        for case in found:
            if not case.data_type.is_variable:
                array = cuzarr.create_array({}, **engines.arguments(case, cuzarr.codecs))
                for name, place in array.with_device("cuda:0").placements():
                    places.setdefault(name.removeprefix("numcodecs."), set()).add((place, case.data_type.name))
    return places


def where(places: set[tuple[str, str]]) -> str:
    """Those places in words; that a neighbour in the chain runs on the host says nothing of a codec."""
    found = {place.removeprefix("via host: ") for place, _ in places if place.startswith("via host")}
    reasons = sorted(reason for reason in found if reason != ON_HOST and not reason.startswith("feeds "))
    is_native = any(place == "native" for place, _ in places)
    if is_native and ON_HOST in found:
        reasons.append("for " + ", ".join(sorted(f"`{name}`" for place, name in places if place.endswith(ON_HOST))))
    if is_native:
        return f"native; via host {'; '.join(_condition(reason) for reason in reasons)}" if reasons else "native"
    return f"via host: {'; '.join(reasons)}" if reasons else "via host"


def _condition(reason: str) -> str:
    return reason if reason.startswith("for ") else f"where {reason}"


def main() -> int:
    (ROOT / "docs" / "support.md").write_text(support())
    return 0


if __name__ == "__main__":
    sys.exit(main())
