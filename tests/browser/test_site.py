"""The static edition in Chromium, without a network: every page in both themes, links, search, and axe-core."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import axe_playwright_python
import pytest

import pplab

ROOT = Path(__file__).parents[2]
SOURCES = ("*.ipynb", "*.md", "exercises/*.md", "exercises/release/*/*.ipynb")
FOUND = [path.relative_to(ROOT) for source in SOURCES for path in (ROOT / "notebooks").glob(source)]
PAGES = sorted(path.with_suffix(".html").as_posix() for path in FOUND)
HERE = ("file:", "data:", "http://127.0.0.1:")
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, built as `make site` builds them."""
    folder = tmp_path_factory.mktemp("site")
    options = ["-q", "-E", "-W", "--keep-going", "-c", "site", "-d", str(folder / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(folder / "html")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return folder / "html"


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens a blank page in a theme; it may ask for nothing but files, and nothing may go wrong while it is open."""
    wrong: list[str] = []
    contexts = []

    def failed(request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # a page was left before it had all
            wrong.append(f"{request.url}: {request.failure}")

    def open_page(theme: str = "light") -> Any:
        context = browser.new_context(color_scheme=theme, viewport={"width": 1300, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: None if request.url.startswith(HERE) else wrong.append(request.url))
        page.on(
            "console",
            lambda message: wrong.append(f"{message.text} {message.location}") if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("requestfailed", failed)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_: Any) -> None:
        pass


class Links(HTMLParser):
    """The ids on a page, where it leads, and what it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids, self.leads, self.loads = {""}, set(), set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids.add(found.get("id") or "")
        if tag == "a" and found.get("href"):
            self.leads.add(found["href"] or "")
        elif tag in ("link", "img", "script", "iframe"):
            self.loads.add(found.get("src") or found.get("href") or "")


def test_links_lead_somewhere_and_nothing_comes_from_outside(site: Path) -> None:
    pages = {path: Links(path) for path in site.rglob("*.html")}
    assert {site / page for page in PAGES} <= set(pages)
    for path, links in pages.items():
        assert not [source for source in links.loads if "://" in source], path.name
        for link in links.leads:
            file, _, anchor = link.partition("#")
            if "://" not in link:
                target = (path.parent / unquote(file)).resolve() if file else path
                assert target in pages, f"{path.name} leads to {link}"
                assert {anchor, unquote(anchor)} & pages[target].ids, f"{path.name} leads to {link}"


def faults(page: Any, options: str = "") -> list[str]:
    """What axe-core finds on a page."""
    page.evaluate(AXE)
    found = page.evaluate(f"axe.run({{preload: false, resultTypes: ['violations'], {options}}})")["violations"]
    return [f"{page.url}: {fault['id']} {node['html']}" for fault in found for node in fault["nodes"]]


# Code has a thousand words in some ten colours; to measure the contrast of each word takes seconds a page.
ONE_OF_EACH_COLOUR = """seen => {
  for (const word of document.querySelectorAll('pre span'))
    if (seen.includes(word.className)) word.replaceWith(...word.childNodes);
    else seen.push(word.className);
  return seen;
}"""


def walk(page: Any, onwards: str, options: str = "") -> tuple[list[str], list[str]]:
    """Follow a link from page to page until there is none: where it led, and what axe-core found on the way."""
    seen, found, colours = [], [], []
    while True:
        page.wait_for_load_state()
        colours = page.evaluate(ONE_OF_EACH_COLOUR, colours)
        seen.append(page.url.split("/html/")[-1])
        found += faults(page, options)
        if not page.locator(onwards).count():
            return seen, found
        page.locator(onwards).click()


def test_next_leads_through_all_pages_and_axe_finds_nothing(opened: Any, site: Path) -> None:
    page = opened("light")
    page.goto((site / "index.html").as_uri())
    page.wait_for_url(f"**/{PAGES[0]}")
    assert walk(page, "a.right-next") == (PAGES, [])


def test_previous_leads_back_and_all_can_be_read_in_the_dark(opened: Any, site: Path) -> None:
    page = opened("dark")
    page.goto((site / PAGES[-1]).as_uri())
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert walk(page, "a.left-prev", "runOnly: ['color-contrast']") == (PAGES[::-1], [])


@pytest.fixture(params=["file", "http"])
def address(request: pytest.FixtureRequest, site: Path) -> Iterator[str]:
    """The pages as a folder of files, and behind a server."""
    if request.param == "file":
        yield site.as_uri()
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_search_by_keyboard(opened: Any, address: str) -> None:
    page = opened()
    page.goto(f"{address}/{PAGES[2]}")
    page.keyboard.press("Control+k")
    page.keyboard.type("bubble")
    page.keyboard.press("Enter")
    results = page.locator("#search-results li a")
    page.get_by_text("Search finished").first.wait_for(timeout=15_000)
    assert "Bubbles" in results.all_inner_texts()
    assert not faults(page)
    page.get_by_role("link", name="Bubbles", exact=True).last.click()
    page.wait_for_url("**/02_bubbles.html*")


def test_an_explorer_works_without_a_kernel(opened: Any, address: str) -> None:
    """A slider moved by keyboard shows what the simulation gives, and the clock steps."""
    page = opened()
    page.goto(f"{address}/notebooks/05_1f1b.html")
    page.get_by_label("micro-batches M").focus()
    page.keyboard.press("ArrowRight")
    t = pplab.simulate(pplab.one_f_one_b(4, 16), pplab.Costs(hop=0.5))
    row = page.locator(".pplab-page table.pplab-numbers tr").last.locator("td")
    row.nth(1).filter(has_text=f"{pplab.makespan(t):g}").wait_for(timeout=15_000)
    assert row.all_inner_texts()[:3] == ["1f1b", f"{pplab.makespan(t):g}", f"{pplab.bubble_fraction(t):.1%}"]
    page.get_by_role("button", name="step", exact=False).last.press("Enter")
    page.get_by_text(f"1 of {pplab.makespan(t):g}").first.wait_for(timeout=15_000)


def test_the_theme_changes_by_keyboard_and_stays(opened: Any, site: Path) -> None:
    page = opened("light")
    page.goto((site / PAGES[0]).as_uri())
    page.get_by_role("button", name="Color mode").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Dark", exact=True).focus()
    page.keyboard.press("Enter")
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
