"""Pictures of what notebooks show of arrays, groups and expressions, taken by a browser without a window: light and dark, on a desktop and on
a phone.

    .venv/bin/python scripts/picture_reprs.py target/pictures

Needs Chromium (of Debian: `apt-get install chromium`). It fails where something is wider than the screen.
"""

from __future__ import annotations

import html
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import cuzarr

# Colours and the rules for tables that notebooks bring, as JupyterLab's two themes have them.
THEMES = {
    "light": {"page": "#ffffff", "text": "rgba(0, 0, 0, 0.87)", "odd": "#ffffff", "even": "#f5f5f5"},
    "dark": {"page": "#111111", "text": "#ffffff", "odd": "#111111", "even": "#212121"},
}
# Widths of the page without its margins. The browser has no window as narrow as a phone, so the page's body is made narrow.
WIDTHS = {"desktop": 1076, "phone": 366}
STYLE = """
body {{ background: {page}; color: {text}; font: 14px/1.4 system-ui, "DejaVu Sans", sans-serif; margin: 0; padding: 12px; width: {width}px; }}
h2 {{ font-size: 13px; font-weight: 600; margin: 18px 0 4px; opacity: .7; }}
.output {{ overflow-x: auto; }}
.output table {{ border: 0; border-collapse: collapse; border-spacing: 0; font-size: 12px; margin-bottom: 1em; table-layout: fixed; }}
.output td, .output th, .output tr {{ border: 0; line-height: normal; padding: .5em; text-align: right; vertical-align: middle; white-space: normal; }}
.output tbody tr {{ background: {odd}; }}
.output tbody tr:nth-child(even) {{ background: {even}; }}
"""
# Tells by attributes of the page what does not fit, and how high it is.
MEASURE = """<script>
const wide = [...document.querySelectorAll('.output')].filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.id);
document.body.dataset.wide = wide.join(' ');
document.body.dataset.height = document.body.scrollHeight;
</script>"""


def shown(folder: pathlib.Path) -> dict[str, Any]:
    """Objects as users have them."""
    group = cuzarr.create_group(
        folder / "reanalysis.zarr", attributes={"title": "Hourly fields", "source": "a model", "Conventions": "CF-1.10"}
    )
    names = ("time", "latitude", "longitude")
    attributes = {"units": "K", "long_name": "2 metre temperature, instantaneous, above the ground", "_FillValue": -999.0}
    field = group.create_array(
        "t2m",
        shape=(8760, 721, 1440),
        chunks=(24, 181, 360),
        dtype="float32",
        dimension_names=names,
        attributes=attributes,
    )
    scaled = group.create_array(
        "surface/pressure", shape=(240, 90, 180), shards=(48, 90, 180), chunks=(24, 30, 60), dtype="int16"
    )
    one = group.create_array("station", shape=(1000,), chunks=(100,), dtype="float64")
    packed = group.create_array("names", shape=(40, 3), chunks=(40, 3), dtype=str)
    long_path = cuzarr.open_group(
        folder / "of_a_project_with_a_long_name" / "and_a_folder_for_every_year_and_month" / "2026-11", mode="w"
    )
    return {
        "An array": field,
        "With shards": scaled,
        "With one dimension": one,
        "Of strings": packed,
        "A group": group,
        "A group behind a long path": long_path,
        "A tree": group.tree(),
        "What info says": field.info,
        "An expression": (field - field.mean("time", keepdims=True)) / cuzarr.xp.std(field, axis="time", keepdims=True),
    }


def markup(value: Any) -> str:
    """What a notebook takes of an object: HTML where there is some, else text."""
    if hasattr(value, "_repr_html_"):
        return str(value._repr_html_())
    bundle = value._repr_mimebundle_()
    return bundle.get("text/html") or f"<pre>{html.escape(bundle['text/plain'])}</pre>"


def page(objects: dict[str, Any], theme: str, width: int) -> str:
    outputs = "".join(
        f"<h2>{name}</h2><div class=output id={name.replace(' ', '-')}>{markup(value)}</div>" for name, value in objects.items()
    )
    return (
        f"<!doctype html><meta charset=utf-8><style>{STYLE.format(width=width, **THEMES[theme])}</style><body>{outputs}{MEASURE}"
    )


def browser(*arguments: str) -> str:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.exit("no Chromium: apt-get install chromium")
    command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def main() -> int:
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    problems = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        objects = shown(folder)
        for theme in THEMES:
            for screen, width in WIDTHS.items():
                file = folder / "page.html"
                file.write_text(page(objects, theme, width))
                window = max(width + 24, 500)
                measured = browser("--dump-dom", f"--window-size={window},800", file.as_uri())
                height = int(re.findall(r'data-height="(\d+)"', measured)[0])
                picture = out / f"repr-{theme}-{screen}.png"
                # What a window has beside the page takes some height.
                browser(f"--screenshot={picture}", f"--window-size={window},{height + 150}", file.as_uri())
                wide = re.findall(r'data-wide="([^"]*)"', measured)[0].split()
                problems += [f"{picture.name}: {name} is wider than the screen" for name in wide]
                print(picture)
    print(*problems, sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
