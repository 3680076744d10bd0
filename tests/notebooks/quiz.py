"""Put the questions of quiz.yml into the notebooks, before the summary; those that are there already are replaced.

A quiz is one Markdown cell: an option is a <details> that opens its feedback. It needs no kernel, no code and no mouse
(Tab, then Enter or Space), and works as well on GitHub and in a static page.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
import yaml

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
QUIZ: dict[str, list[dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("quiz.yml").read_text("utf-8"))
_HEAD = "## Quiz\n\nChoose an answer: it opens, and tells you why. From the keyboard: Tab, then Enter."


def is_quiz(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell is a quiz that this script has made."""
    return cell.get("id", "").endswith("-quiz")


def quiz_text(questions: list[dict[str, Any]]) -> str:
    """The quiz as Markdown. Blank lines round the feedback make it Markdown too, and not plain HTML."""
    parts = [_HEAD]
    for number, question in enumerate(questions, 1):
        parts.append(f"{'<br>' * (number > 1)}**{number}.** {question['ask']}")  # room above: <details> has none below
        for letter, (text, feedback) in zip("abcdef", question["options"].items(), strict=False):
            parts.append(f"<details><summary>{letter}) {text}</summary>\n\n{feedback}\n\n</details>")
    return "\n\n".join(parts)


def insert(name: str, folder: Path = NOTEBOOKS) -> bool:
    """Put a notebook's quiz into it; whether that changed anything."""
    path = folder / f"{name}.ipynb"
    before = nbformat.read(path, as_version=4)
    book = nbformat.read(path, as_version=4)
    book.cells = [cell for cell in book.cells if not is_quiz(cell)]
    cell = nbformat.v4.new_markdown_cell(quiz_text(QUIZ[name]), id=f"{name[:2]}-quiz")
    last = max(i for i, other in enumerate(book.cells) if "## Summary" in other.source)
    book.cells.insert(last, cell)
    if book == before:
        return False
    nbformat.write(book, path)
    return True


if __name__ == "__main__":
    for notebook in sys.argv[1:] or QUIZ:
        if not (NOTEBOOKS / f"{notebook}.ipynb").exists():
            print(f"{notebook}: there is no such notebook yet")
        else:
            print(f"{notebook}: {'quiz written' if insert(notebook) else 'up to date'}")
