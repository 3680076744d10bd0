"""The guide for instructors, the glossary and the list of assignments: links that lead somewhere, claims that hold."""

from __future__ import annotations

import importlib.util
import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

from pplab.exercises.scores import CONTEST

FOLDER = Path(__file__).parents[1] / "notebooks"
PAGES = [FOLDER / "INSTRUCTORS.md", FOLDER / "GLOSSARY.md", FOLDER / "exercises/README.md"]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(path: Path) -> set[str]:
    if path.suffix == ".ipynb":
        text = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")
    else:
        text = path.read_text()
    return {heading.strip().replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.M)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text()):
        file, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_guide_knows_every_notebook_and_assignment():
    guide, table = PAGES[0].read_text(), PAGES[2].read_text()
    for path in FOLDER.glob("[0-9]*.ipynb"):
        assert f"\n| [{path.stem[:2]} " in guide and f"({path.name})" in guide, path.name
    for path in (FOLDER / "exercises/source").glob("*/*.ipynb"):
        assert f"release/{path.stem}/{path.stem}.ipynb" in table


def test_the_minutes_of_plan_a_add_up():
    minutes = re.findall(r"^\| (\d+)–(\d+) \|", PAGES[0].read_text(), re.M)
    assert minutes[0][0] == "0" and minutes[-1][1] == "90"
    assert all(a[1] == b[0] for a, b in pairwise(minutes))


def test_numbers_of_the_contest():
    par = {entry.name: entry.makespan for entry in CONTEST.par()}
    text = PAGES[0].read_text()
    assert f"bound ({CONTEST.bound:g} slots)" in " ".join(text.split())
    assert f"1F1B {par['1f1b']:g} slots, ZB-H1 {par['zb-h1']:g}" in text


def test_words_of_pytorch_are_its_words():
    """Every name in code letters in the column PyTorch stands in its source; what torch renames, we hear of."""
    spec = importlib.util.find_spec("torch.distributed.pipelining")  # imports the package torch, not the pipelining
    folder = Path(spec.submodule_search_locations[0])
    source = "".join(path.read_text() for path in folder.glob("*.py"))
    rows = [line.split("|") for line in PAGES[1].read_text().splitlines() if line.startswith("| **")]
    names = {name for row in rows for name in re.findall(r"`([A-Za-z_0-9]+)`", row[3])}
    assert len(names) > 15
    assert not {name for name in names if not re.search(rf"\b{name}\b", source)}


def test_the_glossary_has_the_words_of_the_text():
    text = PAGES[1].read_text()
    words = "device stage chunk micro-batch op schedule hop slot warm-up ramp drain flush bubble makespan activations"
    for word in [*words.split(), "in flight", "steady state"]:
        assert f"| **{word}** |" in text or (word == "bubble" and "| **bubble** |" in text), word
