"""What one text says about another: the navigation, notebooks by number, errata by id, addresses on the web."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest

from navigation import navigate

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
PATHS = sorted(NOTEBOOKS.rglob("[0-9]*.ipynb"))
TEXTS = [*PATHS, *ROOT.glob("*.md"), *ROOT.glob("pplab/**/*.py")]
NUMBERS = {path.name[:2] for path in NOTEBOOKS.glob("*.ipynb")}
ERRATA = range(1, 35)
HOSTS = {
    "arxiv.org",
    "doi.org",
    "docs.pytorch.org",
    "download.pytorch.org",
    "github.com",
    "keepachangelog.com",
    "mybinder.org",
    "semver.org",
    "ui.perfetto.dev",
}


def prose(path: Path) -> str:
    """A text file, or a notebook's own words and code, without what it stores."""
    if path.suffix != ".ipynb":
        return path.read_text()
    return "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)


def test_navigation_is_up_to_date(tmp_path: Path) -> None:
    shutil.copytree(NOTEBOOKS, tmp_path / "notebooks")
    assert navigate(tmp_path / "notebooks") == [], "run: python scripts/navigation.py"


def store(folder: Path, name: str, *cells: str) -> None:
    nbformat.write(nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_markdown_cell, cells)]), folder / name)


def ends(folder: Path, name: str) -> tuple[str, str]:
    """A notebook's first and last line."""
    cells = nbformat.read(folder / name, as_version=4).cells
    return cells[0].source.split("\n")[0], cells[-1].source.split("\n")[-1]


def test_navigation_follows_names_and_headings(tmp_path: Path) -> None:
    store(tmp_path, "00_first.ipynb", "# Start", "## The course\n\nnothing")
    store(tmp_path, "02_last.ipynb", "# An end\n\ntext", "## Summary")
    assert navigate(tmp_path) == ["00_first.ipynb", "02_last.ipynb"]
    assert navigate(tmp_path) == []
    line = "[contents](#The-course) · [An end →](02_last.ipynb)"
    assert ends(tmp_path, "00_first.ipynb") == (line, line)
    store(tmp_path, "01_new.ipynb", "# Middle", "## Summary")
    assert navigate(tmp_path) == ["00_first.ipynb", "01_new.ipynb", "02_last.ipynb"]
    line = "[← Start](00_first.ipynb) · [contents](00_first.ipynb#The-course) · [An end →](02_last.ipynb)"
    assert ends(tmp_path, "01_new.ipynb") == (line, line)
    cells = nbformat.read(tmp_path / "02_last.ipynb", as_version=4).cells
    line = "[← Middle](01_new.ipynb) · [contents](00_first.ipynb#The-course)"
    assert [cell.source for cell in cells] == [f"{line}\n\n# An end\n\ntext", f"## Summary\n\n{line}"]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_references_lead_somewhere(path: Path) -> None:
    text = prose(path)
    for numbers in re.findall(r"\b[Nn]otebooks?\s+(\d\d(?:(?:, | and |, and | to |–)\d\d)*)", text):
        assert set(re.findall(r"\d\d", numbers)) <= NUMBERS, f"notebook {numbers}"
    for number in re.findall(r"\bE(\d\d?)\b(?=[),;.: ])", text):
        assert int(number) in ERRATA, f"E{number}"


@pytest.mark.parametrize("path", [path for path in TEXTS if path.suffix != ".py"], ids=lambda path: path.name)
def test_addresses_are_well_formed(path: Path) -> None:
    for address in re.findall(r"https?:[^\s)\"'`>]*", prose(path)):
        parts = urlsplit(address)
        assert parts.scheme == "https" and parts.hostname in HOSTS, f"{address}: if it is right, add its host to HOSTS"


def test_the_patterns_find_what_they_should() -> None:
    """The check above is not empty: the chapter's errata and the first notebooks are named somewhere."""
    text = "\n".join(map(prose, PATHS))
    assert {"E1", "E9", "E33"} <= set(re.findall(r"\bE\d\d?\b(?=[),;.: ])", text))
    assert len(re.findall(r"\b[Nn]otebooks?\s+\d\d", text)) > 5
