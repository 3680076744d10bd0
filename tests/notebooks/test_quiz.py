"""The quiz: numbers are recomputed, every option has feedback, and what a notebook shows is what the file holds."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
import pytest

import pplab

sys.path.insert(0, str(Path(__file__).parent))
from quiz import NOTEBOOKS, QUIZ, insert, is_quiz, quiz_text

QUESTIONS = [pytest.param(q, id=f"{name}-{i}") for name, qs in QUIZ.items() for i, q in enumerate(qs, 1)]
HERE = [path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb")) if path.stem in QUIZ]


def rounds_to(shown: str, value: float) -> bool:
    """A number as it is written, against what it should be: right to its last digit."""
    return abs(float(shown) - value) <= 0.5000001 * 10.0 ** -len(shown.partition(".")[2])


def is_about(shown: str, value: float) -> bool:
    """A wrong option's number must be further away than this."""
    return abs(float(shown) - value) <= 0.005 * value


def states(text: str, answer: float | Sequence[float], same: Callable[[str, float], bool]) -> bool:
    """Whether a text holds the number, or all the numbers in their order."""
    found = re.findall(r"\d+(?:\.\d+)?", text)
    if isinstance(answer, Sequence):
        return len(found) == len(answer) and all(map(same, found, answer))
    return any(same(x, float(answer)) for x in found)


@pytest.mark.parametrize("question", QUESTIONS)
def test_question(question):
    options = question["options"]
    assert set(question) <= {"ask", "answer", "options"} and 3 <= len(options) <= 4
    right = [text for text, feedback in options.items() if feedback.startswith("Right. ")]
    assert len(right) == 1
    assert all(len(feedback.split()) >= 5 for feedback in options.values()), "an option without a reason"
    if "answer" in question:
        answer = eval(str(question["answer"]), {"pplab": pplab})
        assert states(right[0], answer, rounds_to), f"{right[0]} but {answer}"
        assert not any(states(text, answer, is_about) for text in options if text != right[0])
    else:
        assert not re.search(r"\d", right[0]), "a number that nobody computes"


@pytest.mark.parametrize("name", QUIZ)
def test_three_to_five_questions(name):
    assert 3 <= len(QUIZ[name]) <= 5
    places = [
        [feedback.startswith("Right. ") for feedback in question["options"].values()].index(True)
        for question in QUIZ[name]
    ]
    assert len(set(places)) > 1, "the right option must not always stand in the same place"


@pytest.mark.parametrize("name", HERE)
def test_inserting_changes_nothing_else_and_nothing_twice(name, tmp_path):
    shutil.copy(NOTEBOOKS / f"{name}.ipynb", tmp_path)
    before = nbformat.read(tmp_path / f"{name}.ipynb", as_version=4).cells
    insert(name, tmp_path)
    after = nbformat.read(tmp_path / f"{name}.ipynb", as_version=4).cells
    assert [cell for cell in after if not is_quiz(cell)] == [cell for cell in before if not is_quiz(cell)]
    assert [i for i, cell in enumerate(after) if is_quiz(cell)] == [len(after) - 2]
    assert "## Summary" in after[-1].source
    written = (tmp_path / f"{name}.ipynb").read_bytes()
    assert not insert(name, tmp_path)
    assert (tmp_path / f"{name}.ipynb").read_bytes() == written


@pytest.mark.parametrize("name", HERE)
def test_notebooks_hold_the_quiz_of_the_file(name):
    """Run `python tests/notebooks/quiz.py` where this fails."""
    cells = [cell for cell in nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells if is_quiz(cell)]
    assert [cell.source for cell in cells] == [quiz_text(QUIZ[name])]
