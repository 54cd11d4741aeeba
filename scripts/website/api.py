"""The pages of the Python interface: which names stand on which page, and what mkdocstrings is told of names it cannot read.

`pages()` gives the text of every page; each public callable is on one of them. `Interface` is an extension of griffe, which
mkdocstrings reads the sources with. It adds what only the running package knows: functions that are made by calls (`cuzarr.xp.sin`, the
twins of `cuzarr.api.asynchronous`) and docstrings that are completed when they are defined (`cuzarr.xp.sum`), and turns the references of docstrings into links.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, get_origin

import griffe

OPTIONAL = {
    "cuzarr.dask": "dask", "cuzarr.jax": "jax", "cuzarr.stacks.anndata": "anndata", "cuzarr.stacks.physicsnemo": "physicsnemo.datapipes",
    "cuzarr.torch": "torch", "cuzarr.xarray": "xarray", "cuzarr.zarr": "zarr",
}  # fmt: skip
ROLE = re.compile(r":(?:class|func|meth|attr|mod|data|exc|obj):`~?([\w.]+)`")


@dataclass(frozen=True)
class Page:
    """A page of the reference: `names` are those of `module`; where none are given, all that it lists."""

    slug: str
    title: str
    about: str
    module: str
    names: tuple[str, ...] = ()


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PAGES = (
    Page("open", "Open, create, save", "Functions that open arrays and groups, create them, and save arrays of memory.", "cuzarr",
         _names("open open_array open_group open_consolidated open_like create create_array create_group create_hierarchy array "
                "from_array group empty empty_like full full_like ones ones_like zeros zeros_like save save_array save_group load "
                "consolidate_metadata tree print_debug_info")),
    Page("array", "Array", "An array in a store: select, assign, explain, resize.", "cuzarr", _names("Array LazyArray ArrayConfig read_many write_many")),
    Page("group", "Group", "A group of arrays and groups.", "cuzarr", _names("Group")),
    Page("asynchronous", "Asynchronous arrays and groups", "The twins of arrays and groups whose calls are awaited.", "cuzarr",
         _names("AsyncArray AsyncGroup")),
    Page("api-asynchronous", "Asynchronous functions", "The functions of `cuzarr`, to be awaited.", "cuzarr.api.asynchronous"),
    Page("metadata", "Metadata", "The documents that describe arrays and groups.", "cuzarr",
         _names("ArrayV2Metadata ArrayV3Metadata GroupMetadata ConsolidatedMetadata")),
    Page("config", "Configuration", "The methods of `cuzarr.config`. [Change settings](../../guide/configuration.md) lists every setting.", "cuzarr", _names("config")),
    Page("compute", "Compute at any size", "Plans of arrays, copies, and functions of yours, block by block.", "cuzarr",
         _names("Expression map_blocks reduce BlockInfo rechunk copy CopyPlan copy_all copy_store pyramid")),
    Page("elementwise", "Functions of elements", "NumPy's element-wise functions, for arrays in stores and in memory.",
         "cuzarr.xp.elementwise"),
    Page("reductions", "Reductions", "Sums, means, extremes and their like, over dimensions or everything.", "cuzarr.xp.reductions"),
    Page("statistics", "Quantiles and histograms", "Exact quantiles, medians and histograms of arrays of any size.",
         "cuzarr.xp.statistics"),
    Page("combined", "Closeness, NaN, weighted means", "Functions that are made of others.", "cuzarr.xp.combined"),
    Page("shapes", "Dimensions and choices", "Functions that move dimensions and choose elements.", "cuzarr.xp.shapes"),
    Page("cumulative", "Running sums and products", "Running sums and products along a dimension.", "cuzarr.xp.cumulative"),
    Page("order", "Order and choice", "Sort, search, and find what is unique.", "cuzarr.xp.order"),
    Page("matrices", "Matrices", "Products of matrices, and parts of them.", "cuzarr.xp.matrices"),
    Page("standard", "Array API standard", "Functions of the array API standard that are on no other page.", "cuzarr.xp.standard"),
    Page("xp", "Arrays in memory", "Functions that make and move arrays in memory.", "cuzarr.xp.creation"),
    Page("device-array", "DeviceArray", "An array in GPU memory, for every library with DLPack.", "cuzarr", _names("DeviceArray")),
    Page("kernels", "Kernels", "CUDA C++ of your own.", "cuzarr.kernels"),
    Page("memory", "Memory", "What memory is in use, and how to bound it.", "cuzarr.memory"),
    Page("storage", "Stores", "Where keys and values are.", "cuzarr.storage"),
    Page("references", "References", "Tables of references to netCDF-4 and HDF5 files.", "cuzarr.references"),
    Page("sparse", "Sparse matrices", "Sparse matrices and data frames of anndata's format.", "cuzarr.sparse"),
    Page("ome", "OME-Zarr", "Images of several scales and plates of OME-Zarr.", "cuzarr.ome"),
    Page("codecs", "Codecs", "Codecs as values, and decoders and encoders of frames.", "cuzarr.codecs"),
    Page("numcodecs", "Codecs of numcodecs", "The codecs of numcodecs, as values.", "cuzarr.codecs.numcodecs"),
    Page("dtype", "Data types", "Element types, by zarr-python's names.", "cuzarr.dtype"),
    Page("buffer", "Buffers", "Flat and typed memory, and the prototypes that choose it.", "cuzarr.buffer"),
    Page("buffer-cpu", "Buffers on the host", "The buffer classes of host memory.", "cuzarr.buffer.cpu"),
    Page("buffer-gpu", "Buffers on a GPU", "The buffer classes of GPU memory.", "cuzarr.buffer.gpu"),
    Page("errors", "Errors", "Every error, and what it means.", "cuzarr.errors"),
    Page("typing", "Types", "Types of arguments and results, for annotations.", "cuzarr.typing"),
    Page("loader", "Samples for training", "Batches of samples of stored arrays, for any framework.", "cuzarr.loader"),
    Page("writer", "Writers", "Rows of a running program, stored in the background.", "cuzarr.writer"),
    Page("torch", "PyTorch", "Datasets and tensors.", "cuzarr.torch"),
    Page("jax", "JAX", "Datasets and arrays.", "cuzarr.jax"),
    Page("xarray", "xarray", "The engine for `xarray.open_dataset`, and what data sets get.", "cuzarr.xarray"),
    Page("dask", "dask", "Arrays of dask, from and to arrays in stores.", "cuzarr.dask"),
    Page("zarr", "Inside zarr-python", "cuzarr as the pipeline, the buffers and the stores of zarr-python.", "cuzarr.zarr"),
    Page("stacks-earth2studio", "Earth2Studio", "A backend for the output of Earth2Studio's workflows.", "cuzarr.stacks.earth2studio"),
    Page("stacks-physicsnemo", "PhysicsNeMo", "Batches and samples for PhysicsNeMo's `DataLoader`.", "cuzarr.stacks.physicsnemo"),
    Page("stacks-anndata", "anndata", "Objects of anndata whose matrices are on a GPU.", "cuzarr.stacks.anndata"),
    Page("kvikio", "KvikIO's helpers", "The helpers for Zarr that KvikIO had.", "cuzarr.kvikio"),
)  # fmt: skip
# Objects whose class has no public name, and is shown below them.
CLASSES = {"cuzarr.config": "cuzarr._config.settings.Config"}


@cache
def load(module: str) -> Any:
    """A public module; `None` where the library that it serves is not installed."""
    try:
        importlib.import_module(OPTIONAL.get(module, "cuzarr"))
    except ImportError:
        return None
    return importlib.import_module(module)


@cache
def exports(module: str) -> list[str]:
    """The public names of a module that are no modules, in its own order."""
    found = load(module)
    if found is None:
        return [str(name) for name in _parsed(module).exports or ()]
    listed = getattr(found, "__all__", None)
    if listed is None:
        own = [name for name, value in vars(found).items() if getattr(value, "__module__", None) == module]
        listed = [name for name in own if not name.startswith("_")]
    return [name for name in listed if name != "__version__" and not inspect.ismodule(getattr(found, name))]


@cache
def names_of(page: Page) -> list[str]:
    """The names on a page."""
    if page.names:
        return [*page.names, *(_unlisted() if page.slug == "array" else ())]
    return exports(page.module)


@cache
def _unlisted() -> list[str]:
    """The names of `cuzarr` that no page has: new ones, until they get their place. They are shown with arrays."""
    own = {name for page in PAGES if page.module == "cuzarr" for name in page.names}
    return [name for name in exports("cuzarr") if name not in own]


def path_of(page: Page, name: str) -> str:
    """Where users import a name from: `cuzarr.xp.sin`, not `cuzarr.xp.elementwise.sin`."""
    home = "cuzarr.xp" if page.module.startswith("cuzarr.xp.") else page.module
    return f"{home}.{name}"


@cache
def canonical(page: Page) -> dict[str, list[str]]:
    """The names on a page with their other names: `{"arccos": ["acos"]}`."""
    module = load(page.module)
    if module is None:
        return {name: [] for name in names_of(page)}
    groups: dict[int, list[str]] = {}
    for name in names_of(page):
        groups.setdefault(id(getattr(module, name)), []).append(name)
    out = {}
    for names in groups.values():
        own = getattr(getattr(module, names[0]), "__name__", names[0])
        first = own if own in names else names[0]
        out[first] = [name for name in names if name != first]
    return dict(sorted(out.items(), key=lambda item: names_of(page).index(item[0])))


def _parsed(module: str) -> Any:
    loader = griffe.GriffeLoader(search_paths=["python"])
    return loader.load(module.split(".")[0])[module.removeprefix("cuzarr.")]


def summary(value: Any) -> str:
    """The first sentence of a docstring, or what it says before the first `;` or `:`."""
    if get_origin(value) is not None:
        return "A type, for annotations."
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    first = re.split(r"(?<=[.;:])\s", text)[0].rstrip(".;:") + "."
    return ROLE.sub(lambda role: f"`{role[1].removeprefix('cuzarr.')}`", first).replace("|", "\\|").replace("``", "`")


def text(page: Page) -> str:
    """A page of the reference as Markdown for mkdocstrings."""
    out = [f"# {page.title}", "", page.about, ""]
    module = load(page.module)
    names = canonical(page)
    if module is not None and len(names) > 3:
        out += ["| name | meaning |", "|---|---|"]
        for name in names:
            out.append(f"| [`{name}`][{path_of(page, name)}] | {summary(getattr(module, name))} |")
        out.append("")
    for name, others in names.items():
        out += [f"::: {path_of(page, name)}", ""]
        if (path := path_of(page, name)) in CLASSES:
            out += [f"::: {CLASSES[path]}", f"    options: {{heading: Methods of {path}, show_root_full_path: false}}", ""]
        if others:
            out += ["Also as " + ", ".join(f"`{path_of(page, other)}`" for other in others) + ".", ""]
    return "\n".join(out)


def index() -> str:
    """The page that lists the others."""
    out = ["# Python API", "", "Import `cuzarr`; the groups below are its public names. Everything else is private.", ""]
    out += ["| page | what it has |", "|---|---|"]
    for page in PAGES:
        out.append(f"| [{page.title}]({page.slug}.md) | {page.about} |")
    return "\n".join(out) + "\n"


def pages() -> dict[str, str]:
    """Every page of the reference by its file name."""
    return {"index.md": index(), **{f"{page.slug}.md": text(page) for page in PAGES}}


def listed() -> set[str]:
    """The dotted names of everything on a page, other names included."""
    return {path_of(page, name) for page in PAGES for name in names_of(page)}


class Interface(griffe.Extension):
    """What the running package adds to what griffe reads in its sources."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        public = listed()
        for page in PAGES:
            module = load(page.module)
            for name in names_of(page) if module is not None else ():
                home = path_of(page, name).rpartition(".")[0].partition(".")[2]
                self._complete(pkg[home] if home else pkg, name, getattr(module, name))
        _refresh(pkg, load("cuzarr"), set())
        _link(pkg, public, set())

    def _complete(self, home: Any, name: str, value: Any) -> None:
        """Makes a function of what griffe takes for a variable."""
        member = home.members.get(name)
        try:
            known = member.final_target if member is not None and member.is_alias else member
        except griffe.GriffeError:
            known = None
        if known is not None and not known.is_attribute:
            return
        if not callable(value) or inspect.isclass(value):
            if known is not None and known.docstring is None:
                known.docstring = griffe.Docstring(inspect.getdoc(value) or "", parent=known)
                known.docstring.parser = "numpy"
                if not inspect.isclass(value):
                    home.set_member(name, known)
            return
        function = griffe.Function(name, parameters=_parameters(value), parent=home)
        function.docstring = griffe.Docstring(inspect.getdoc(value) or "", parent=function)
        home.set_member(name, function)


def _refresh(thing: Any, value: Any, seen: set[int]) -> None:
    """Gives functions and classes the docstrings that they have in the running package, where many are completed."""
    seen.add(id(thing))
    for name, member in list(thing.members.items()):
        if member.is_alias or id(member) in seen:
            continue
        found = sys.modules.get(member.path) if member.is_module else vars(value).get(name)
        if member.is_attribute and inspect.isfunction(found):  # a method that is only declared
            member = griffe.Function(name, parameters=_parameters(found), parent=thing)
            thing.set_member(name, member)
        if member.is_class or member.is_function:
            found = found if inspect.ismodule(value) else getattr(value, name, None)
            if text := inspect.getdoc(found):
                member.docstring = griffe.Docstring(text, parent=member, parser=griffe.Parser.numpy)
        if inspect.ismodule(found) or inspect.isclass(found):
            _refresh(member, found, seen)


def _parameters(value: Any) -> griffe.Parameters:
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: griffe.ParameterKind.positional_only,
        inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
        inspect.Parameter.VAR_POSITIONAL: griffe.ParameterKind.var_positional,
        inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
        inspect.Parameter.VAR_KEYWORD: griffe.ParameterKind.var_keyword,
    }
    out = []
    for one in inspect.signature(value).parameters.values():
        annotation = one.annotation if isinstance(one.annotation, str) else None
        default = None if one.default is inspect.Parameter.empty else repr(one.default)
        out.append(griffe.Parameter(one.name, kind=kinds[one.kind], annotation=annotation, default=default))
    return griffe.Parameters(*out)


def _link(thing: Any, public: set[str], seen: set[int]) -> None:
    """Turns the roles of docstrings into links to public names, or into code."""
    if thing.is_alias or id(thing) in seen:
        return
    seen.add(id(thing))
    if thing.docstring is not None:
        if thing.is_function:
            thing.docstring.value = _at_run_time(thing) or thing.docstring.value
        thing.docstring.value = fenced(ROLE.sub(lambda role: _reference(role[1], public), thing.docstring.value))
    for member in list(thing.members.values()):
        _link(member, public, seen)


def _at_run_time(function: Any) -> str | None:
    """The docstring that a function has in the running package."""
    module = function.module.path
    found = sys.modules.get(module)
    for name in function.path.removeprefix(f"{module}.").split("."):
        found = inspect.getattr_static(found, name, None)
    return inspect.getdoc(found) if inspect.isfunction(found) else None


def fenced(text: str) -> str:
    """A docstring whose examples outside of a section of their own stand between fences, as Markdown wants them."""
    out: list[str] = []
    in_block = in_section = False
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if number + 1 < len(lines) and lines[number + 1].strip() and set(lines[number + 1].strip()) == {"-"}:
            in_section = line.strip() == "Examples"
        if not in_section and not in_block and line.startswith(">>>"):
            out.append("```pycon")
            in_block = True
        elif in_block and not line.strip():
            out.append("```")
            in_block = False
        out.append(line)
    return "\n".join([*out, *(["```"] if in_block else [])])


def _reference(name: str, public: set[str]) -> str:
    full = name if name.startswith("cuzarr.") else f"cuzarr.{name}"
    for known in (full, full.rsplit(".", 1)[0]):
        if known in public:
            return f"[`{name.removeprefix('cuzarr.')}`][{known}]"
    return f"`{name}`"
