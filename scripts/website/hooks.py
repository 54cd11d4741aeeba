"""What mkdocs calls while it builds the site: pages that are made, pictures that are drawn, links into the repository.

A page of `docs/` is built as it lies there. Made here are the pages of the Python interface, of the command line, of performance and of the
cookbook, and those whose source lies elsewhere in the repository (CHANGELOG, CORRECTNESS, COMPARE).
"""

from __future__ import annotations

import pathlib
import posixpath
import re
import sys
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import api
import commands
import gallery
import performance

ROOT = pathlib.Path(__file__).parents[2]
REPOSITORY = "https://github.com/cuzarr/cuzarr/blob/main/"
# Pages whose source is elsewhere in the repository.
ELSEWHERE = {"CHANGELOG.md": "changelog.md", "CORRECTNESS.md": "correctness.md", "COMPARE.md": "compare.md"}
LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s:#]+)(?P<anchor>#[^)]*)?\)")
PICTURE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<path>[^)]+\.svg)\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages and pictures that are made."""
    made = {f"reference/python/{name}": text for name, text in api.pages().items()}
    made["reference/command-line.md"] = commands.page()
    made["performance.md"] = performance.page()
    made |= gallery.pages()
    for source, page in ELSEWHERE.items():
        made[page] = (ROOT / source).read_text()
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    for uri, picture in (performance.pictures() | gallery.pictures()).items():
        files.append(File.generated(config, uri, content=picture))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Puts diagrams into the page, so that they take its colours, and leads links to where they point on the site."""
    uri = page.file.src_uri
    markdown = markdown.replace("```python gpu\n", "```python\n")
    markdown = PICTURE.sub(lambda found: _inline(found, uri), markdown)
    return LINK.sub(lambda found: _lead(found, uri, files), markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Leaves the link to the repository without the theme's script, which asks another server how many stars it has."""
    return output.replace(' data-md-component="source"', "")


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Does the same for pages that have no source, such as that of errors."""
    return on_post_page(output_content, None, config)


def _inline(found: re.Match[str], uri: str) -> str:
    path = ROOT / "docs" / posixpath.normpath(posixpath.join(posixpath.dirname(uri), found["path"]))
    if not path.exists():
        return found[0]
    drawing = re.sub(r"<\?xml.*?\?>|<!--.*?-->", "", path.read_text(), flags=re.S).strip()
    label = found["text"].replace('"', "&quot;")
    drawing = drawing.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return f'<figure class="diagram" markdown="0">\n{re.sub(chr(10) + "+", chr(10), drawing)}\n</figure>'


def _lead(found: re.Match[str], uri: str, files: Files) -> str:
    """A link of the repository, as it is on the site; to the repository itself where the site has no such page."""
    here = next((source for source, page in ELSEWHERE.items() if page == uri), f"docs/{uri}")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(here), found["target"]))
    anchor = found["anchor"] or ""
    inside = target.removeprefix("docs/") if target.startswith("docs/") else ELSEWHERE.get(target)
    page = files.get_file_from_path(inside) if inside is not None else None
    if page is not None and page.inclusion.is_included():
        return f"]({posixpath.relpath(inside, posixpath.dirname(uri) or '.')}{anchor})"
    if (ROOT / target).exists():
        return f"]({REPOSITORY}{target}{anchor})"
    return found[0]
