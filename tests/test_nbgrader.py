"""The assignments, through the real nbgrader: released, handed in blank, wrong and perfect, graded, and sent back."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config, PyFileConfigLoader

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/notebooks"))
from solutions import COURSE, SOLUTIONS, SOURCES, release, solve, strip_marks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's own
NAMES = [path.stem for path in SOURCES]
# One cell each that a student gets wrong, and the points that the tests which see it take away.
WRONG = {
    "a1_bubble": ("enough", "def enough_microbatches(num_devices, share):\n    return 9 * (num_devices - 1)", 2),
    # more forwards than there are: the cell's own test, and hidden sizes of the rows that use it
    "a2_rows": ("warm-up", "def warm_up(num_devices, num_microbatches, k):\n    return num_devices - k - 1", 2 + 3),
    "a3_activations": (
        "peaks",
        "def peaks(schedule):\n    return [max(running_count(row)) for row in schedule.rows]\n\n\n"
        "def peak_of_1f1b(num_devices, num_microbatches, device):\n    return num_devices - device",
        2,
    ),
    "a4_partition": (
        "best-cut",
        "def best_cut(times, n):\n    return list(pplab.partition.uniform(len(times), n))",
        3 + 2,
    ),
    "a5_zero_bubble": ("waiting", "waiting = [0, 0, 0, 0]", 1),  # only a hidden test sees it
    # ZB-H1 is legal, and reaches 30/41 of the bound: 25 · (30/41 − 0.5) = 5.8 of 10, 4.1 of this cell's 7
    "a6_beat_the_bubble": ("beat", 'best = pplab.SCHEDULES["zb-h1"](4, 8).rows', 7 - 4.1),
}


def hand_in(name: str, submitted: Path, answers: dict[str, str]) -> None:
    """A student's notebook: the released one with some of its solution cells filled in."""
    book = nbformat.read(COURSE / "release" / name / f"{name}.ipynb", as_version=4)
    for cell in book.cells:
        cell.source = answers.get(cell.metadata.get("nbgrader", {}).get("grade_id"), cell.source)
    submitted.mkdir(parents=True)
    nbformat.write(book, submitted / f"{name}.ipynb")


def solution_cells(path: Path) -> dict[str, str]:
    cells = [
        cell for cell in nbformat.read(path, as_version=4).cells if cell.metadata.get("nbgrader", {}).get("solution")
    ]
    return {cell.metadata.nbgrader.grade_id: strip_marks(cell.source) for cell in cells}


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A course with three students, and its assignments released."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copytree(COURSE / "source", folder / "source", ignore=shutil.ignore_patterns(".*"))
    config = Config(PyFileConfigLoader("nbgrader_config.py", path=str(COURSE)).load_config())
    config.CourseDirectory.root = str(folder)
    for path in SOURCES:
        answers = solution_cells(path)
        cell, text, _ = WRONG[path.stem]
        assert cell in answers
        for student, given in (("blank", {}), ("wrong", answers | {cell: text}), ("perfect", answers)):
            hand_in(path.stem, folder / "submitted" / student / path.stem, given)
    return SimpleNamespace(folder=folder, api=NbGraderAPI(config=config), gradebook=f"sqlite:///{folder}/gradebook.db")


def succeed(result: dict) -> None:
    assert result["success"], result.get("log") or result.get("error")


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(course, name):
    succeed(course.api.generate_assignment(name))
    for student in ("blank", "wrong", "perfect"):
        succeed(course.api.autograde(name, student))
    with Gradebook(course.gradebook) as gradebook:
        scores = {s: gradebook.find_submission(name, s).score for s in ("blank", "wrong", "perfect")}
        assert gradebook.find_assignment(name).max_score == 10
        assert not any(gradebook.find_submission(name, s).needs_manual_grade for s in scores)
    assert scores == pytest.approx({"blank": 0, "wrong": 10 - WRONG[name][2], "perfect": 10})
    succeed(course.api.generate_feedback(name, "wrong"))
    html = (course.folder / "feedback/wrong" / name / f"{name}.html").read_text()
    assert f"Score: {10 - WRONG[name][2]:.1f} / 10.0" in " ".join(html.split())


# ── What is made from the source ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_solutions_are_up_to_date(path):
    """Run `make solutions` where this fails. Their outputs are compared by nbval, as those of every notebook."""
    made, stored = solve(path), nbformat.read(SOLUTIONS / path.name, as_version=4)
    assert [cell.source for cell in stored.cells] == [cell.source for cell in made.cells]
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not any("###" in cell.source for cell in stored.cells if cell.cell_type == "code")


def test_students_versions_are_up_to_date(tmp_path):
    release(SOURCES, tmp_path)
    for name in NAMES:
        made, stored = (
            nbformat.read(folder / name / f"{name}.ipynb", as_version=4) for folder in (tmp_path, COURSE / "release")
        )
        assert made.cells == stored.cells, f"{name}: run make solutions"
        text = "".join(cell.source for cell in stored.cells)
        assert "SOLUTION" not in text and "HIDDEN" not in text and "not done yet" in text


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_an_assignment_is_whole(path):
    """Ten points, every solution followed by a test, and both kinds of tests where answers can be guessed."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if "nbgrader" in cell.metadata]
    marks = [cell.metadata.nbgrader for cell in cells]
    assert {mark.schema_version for mark in marks} == {3}
    assert sum(mark.get("points", 0) for mark in marks) == 10
    assert len({mark.grade_id for mark in marks}) == len(marks)
    tests = [cell.source for cell in cells if cell.metadata.nbgrader.grade]
    assert len(tests) == sum(mark.solution for mark in marks)
    assert sum("### BEGIN HIDDEN TESTS" in text for text in tests) >= len(tests) - 1
    assert all(text.split("### BEGIN HIDDEN")[0].strip() for text in tests), "a test cell must show something"
