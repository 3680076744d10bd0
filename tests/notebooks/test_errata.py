"""Notebook 13's index: every erratum once, with its grade and a link that leads to it; every part of the chapter."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from quiz import is_quiz

FOLDER = Path(__file__).parents[2] / "notebooks"
INDEX = FOLDER / "13_reading_critically.ipynb"
GRADES = {f"E{n}": "W" for n in range(1, 35)}  # wrong, but for these:
GRADES |= {f"E{n}": "C" for n in (12, 16, 17, 18, 23, 24, 25, 33, 34)}  # holds under a condition that is missing
GRADES |= {f"E{n}": "S" for n in (13, 19, 20, 30)}  # a simplification
PARTS = {  # what the chapter's parts treat
    "Introduction": "three ways, history",
    "Stages": "balance, messages, traffic, parameters, optimizer, activations",
    "Bubble": "naive, formula, numbers",
    "Micro-batches": "in flight, size, accumulation, batch sizes",
    "Schedules": "GPipe, checkpointing, 1F1B, interleaved, comparison",
    "Worked example": "trace",
    "Code": "simulation, activation memory, key parameters",
    "Limits": "depth, staleness, 3D, imbalance, partition, distributed state, bits, models",
    "Summary": "all errata",
}


def sections(path: Path) -> dict[str, str]:
    """The words under each heading of a notebook, its quiz left out; keys are anchors."""
    cells = nbformat.read(path, as_version=4).cells
    words = [cell.source for cell in cells if cell.cell_type == "markdown" and not is_quiz(cell)]
    parts = re.split(r"^#+ (.+)$", "\n".join(words), flags=re.M)[1:]
    return {title.strip().replace(" ", "-"): body for title, body in zip(parts[::2], parts[1::2], strict=True)}


def rows() -> list[list[str]]:
    """The cells of all table rows of notebook 13."""
    text = "\n".join(sections(INDEX).values())
    return [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]


def follow(link: str) -> str:
    """The text of the section that a link leads to."""
    file, _, anchor = link.partition("#")
    return sections(FOLDER / file if file else INDEX)[anchor]


ERRATA = [row for row in rows() if re.fullmatch(r"E\d+", row[0])]


def test_every_erratum_once_with_its_grade() -> None:
    assert [row[0] for row in ERRATA] == [f"E{n}" for n in range(1, 35)]
    assert {row[0]: row[1] for row in ERRATA} == GRADES


@pytest.mark.parametrize("row", ERRATA, ids=lambda row: row[0])
def test_the_link_leads_to_where_it_is_taught(row: list[str]) -> None:
    name, _, holds, where = row
    assert 3 <= len(holds.split()) <= 12
    label, link = re.fullmatch(r"\[(.+)\]\((\S+)\)", where).groups()
    assert re.search(rf"\b{name}\b", follow(link)), f"{link} says nothing of {name}"
    number, title = label.split(", ", 1)
    assert link.startswith((number, "#")) and link.partition("#")[2].startswith(title.replace(" ", "-"))


def test_errata_named_anywhere_are_in_the_index() -> None:
    for path in FOLDER.glob("*.ipynb"):
        named = set(re.findall(r"\bE\d+\b", " ".join(sections(path).values())))
        assert named <= set(GRADES), path.name


def test_every_part_of_the_chapter_has_its_links() -> None:
    found = {row[0]: re.findall(r"\[([^\]]+)\]\(([^)\s]+)\)", row[1]) for row in rows() if len(row) == 2}
    assert {part: ", ".join(label for label, _ in links) for part, links in found.items() if links} == PARTS
    assert all(len(follow(link)) > 100 for links in found.values() for _, link in links)
