"""What every notebook holds to: its length, its order, links that lead somewhere, pictures with words."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from quiz import is_quiz

FOLDER = Path(__file__).parents[2] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> nbformat.NotebookNode:
    book = nbformat.read(request.param, as_version=4)
    book.path = request.param
    return book


def words(book: nbformat.NotebookNode) -> str:
    return "\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")


def code(book: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def test_size(notebook: nbformat.NotebookNode) -> None:
    cells = [cell for cell in notebook.cells if not is_quiz(cell)]  # counted apart, in test_quiz.py
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert 15 <= len(cells) <= 30
    assert 400 <= len(text.split()) <= 1200
    assert all(len(cell.source.splitlines()) <= 12 for cell in code(notebook))
    assert notebook.path.stat().st_size < 400_000


def test_stored_as_run_from_the_top(notebook: nbformat.NotebookNode) -> None:
    """nbval compares only cells that have an execution count."""
    assert [cell.execution_count for cell in code(notebook)] == list(range(1, len(code(notebook)) + 1))
    assert not notebook.metadata.get("widgets")
    assert "widget-view" not in notebook.path.read_text()
    assert all(output.output_type != "error" for cell in code(notebook) for output in cell.outputs)


def test_reads_well_without_a_kernel(notebook: nbformat.NotebookNode) -> None:
    """Whatever a cell shows is stored, with words in place of a picture, and in forms that GitHub and nbviewer keep."""
    for cell in code(notebook):
        shows = isinstance(ast.parse(cell.source).body[-1], ast.Expr) or "print(" in cell.source
        assert bool(cell.outputs) == shows, cell.source
        for output in cell.outputs:
            assert output.get("name") != "stderr", output.text
            if output.output_type != "stream":
                assert set(output.data) <= {"text/plain", "text/html"}
                assert not output.data["text/plain"].startswith(("<", "Figure(")), output.data["text/plain"]
                assert not re.search("<(script|svg|iframe|canvas)", output.data.get("text/html", ""))


def test_parts(notebook: nbformat.NotebookNode) -> None:
    text, cells = words(notebook), code(notebook)
    assert text.count("**The question:") == 1
    assert "## Summary" in text and "redict" in text
    assert sum("exercises.check(" in cell.source for cell in cells) == 2
    explorers = [i for i, cell in enumerate(cells) if "widgets.explore" in cell.source]
    assert len(explorers) == 1
    before = cells[explorers[0] - 1]
    assert "<img" in before.outputs[0].data["text/html"], "a stored picture stands before the explorer"
    assert not re.search(r"^\s*(import|from) torch", "\n".join(cell.source for cell in cells), re.M)


def test_pictures_say_what_they_show(notebook: nbformat.NotebookNode) -> None:
    html = "".join(str(o.get("data", {}).get("text/html", "")) for cell in code(notebook) for o in cell.outputs)
    images = re.findall(r"<img [^>]*>", html)
    assert images and all(re.search(r'alt="[^"]{30,}"', image) for image in images)


def test_tables_name_their_columns(notebook: nbformat.NotebookNode) -> None:
    """A screen reader reads a cell after its column's name."""
    heads = re.findall(r"^(\|.*\|)\n\|[-:| ]+\|$", words(notebook), re.M)
    assert all(name.strip() for head in heads for name in head.strip("|").split("|")), heads


def anchors(path: Path) -> set[str]:
    """JupyterLab's anchors in a notebook, GitHub's in another text."""
    if path.suffix == ".ipynb":
        headings = re.findall(r"^#+ (.+)$", words(nbformat.read(path, as_version=4)), re.M)
        return {heading.strip().replace(" ", "-") for heading in headings}
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [*PATHS, *FOLDER.parent.glob("*.md")], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = words(nbformat.read(path, as_version=4)) if path.suffix == ".ipynb" else path.read_text()
    for link in LINK.findall(text):
        file, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = path.parent / file if file else path
        assert target.exists(), f"{path.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{path.name} links to {link}"


def test_every_notebook_is_on_the_map() -> None:
    course = words(nbformat.read(FOLDER / "00_start_here.ipynb", as_version=4))
    readme = (FOLDER.parent / "README.md").read_text()
    for path in PATHS[1:]:
        assert f"({path.name})" in course and f"(notebooks/{path.name})" in readme


def test_nbval_would_see_another_number(tmp_path: Path) -> None:
    """The comparison is real: a stored output that differs in one digit fails."""
    book = nbformat.read(FOLDER / "02_bubbles.ipynb", as_version=4)
    stored = next(o for cell in code(book) for o in cell.outputs if "0.4286" in o.get("text", ""))
    stored.text = stored.text.replace("0.4286", "0.4287")
    nbformat.write(book, tmp_path / "changed.ipynb")
    sanitize = Path(__file__).with_name("sanitize.cfg")
    arguments = ["--nbval", "--nbval-current-env", "--nbval-sanitize-with", sanitize, "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *map(str, arguments), str(tmp_path / "changed.ipynb")]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 1 and "1 failed" in run.stdout and "0.4287" in run.stdout
