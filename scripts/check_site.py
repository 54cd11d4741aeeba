"""Checks the site in target/site: every link and anchor leads somewhere, nothing comes from another server, and every public callable has
its place on a page.

    .venv/bin/python scripts/check_site.py
"""

from __future__ import annotations

import pathlib
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

ROOT = pathlib.Path(__file__).parents[1]
SITE = ROOT / "target" / "site"
sys.path.insert(0, str(ROOT / "scripts" / "website"))
import api  # noqa: E402

# What a browser loads by itself; links of <a> are followed by people.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """The links, anchors and loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        # The theme's script asks the repository's server for what it shows beside such a link.
        if found.get("data-md-component") == "source":
            self.loaded.append(str(found["href"]))
        self.anchors |= {value for key in ("id", "name") if (value := found.get(key))}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        is_shown = tag != "link" or found.get("rel") in ("stylesheet", "icon", "preconnect")
        if tag in LOADED and found.get(LOADED[tag]) and is_shown:
            self.loaded.append(str(found[LOADED[tag]]))


def target_of(page: pathlib.Path, link: str) -> pathlib.Path:
    """The file that a link of a page leads to."""
    path = unquote(urlsplit(link).path)
    found = (page.parent / path).resolve() if path else page
    return found / "index.html" if found.is_dir() else found


def broken(pages: dict[pathlib.Path, Page]) -> list[str]:
    out = []
    for path, page in pages.items():
        where = path.relative_to(SITE)
        for link in page.loaded:
            if urlsplit(link).netloc:
                out.append(f"{where}: loads {link} from another server")
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            # The page of errors is served at any address, so its links begin at the root of the server.
            if parts.scheme or parts.netloc or where.name == "404.html":
                continue
            target = target_of(path, link)
            if not target.exists():
                out.append(f"{where}: leads to {link}, which is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors | {"__codelineno"}:
                out.append(f"{where}: leads to {link}, whose anchor is not there")
    return out


def missing(pages: dict[pathlib.Path, Page]) -> list[str]:
    """Public names that have no place on a page of the reference."""
    there = set().union(*(page.anchors for path, page in pages.items() if "reference" in path.parts))
    first = {f"{api.path_of(page, name)}" for page in api.PAGES for name in api.canonical(page)}
    return sorted(first - there)


def main() -> int:
    files = [path for path in SITE.rglob("*.html") if path.relative_to(SITE).parts[0] != "rust"]
    pages = {path: Page(path.read_text()) for path in files}
    problems = broken(pages) + [f"{name} is on no page" for name in missing(pages)]
    print(*problems, sep="\n", end="\n" if problems else "")
    names = sum(len(api.canonical(page)) for page in api.PAGES)
    print(f"{len(pages)} pages, {names} public names, {len(problems)} problems")
    return 1 if problems or len(pages) < 30 or names < 300 else 0


if __name__ == "__main__":
    sys.exit(main())
