"""The way through the notebooks: "previous · contents · next" as the first and the last line of each.

`make notebooks` runs it. The order is that of the file names, the words are the notebooks' first headings.
"""

import re
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
CONTENTS = "#The-course"  # a heading of the first notebook


def title(book: nbformat.NotebookNode) -> str:
    """Find a notebook's first heading."""
    words = "\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    return re.findall(r"^# (.+)$", words, re.M)[0]


def nav_line(titles: dict[str, str], name: str) -> str:
    """Write the line of one notebook, given the titles of all by file name, in order."""
    names = list(titles)
    place = names.index(name)
    links = [f"[contents]({names[0] if place else ''}{CONTENTS})"]
    if place:
        links.insert(0, f"[← {titles[names[place - 1]]}]({names[place - 1]})")
    if name != names[-1]:
        links.append(f"[{titles[names[place + 1]]} →]({names[place + 1]})")
    return " · ".join(links)


def put(cell: nbformat.NotebookNode, line: str, place: int) -> None:
    """Set the first (0) or the last (-1) line of a cell, in place of the old one where there is one."""
    lines = cell.source.split("\n")
    if "[contents](" in lines[place]:
        lines[place] = line
    else:
        lines = [line, "", *lines] if place == 0 else [*lines, "", line]
    cell.source = "\n".join(lines)


def navigate(folder: Path = NOTEBOOKS) -> list[str]:
    """Bring the lines of all notebooks in a folder up to date; gives the names of those that changed."""
    books = {path.name: nbformat.read(path, as_version=4) for path in sorted(folder.glob("*.ipynb"))}
    titles = {name: title(book) for name, book in books.items()}
    changed = []
    for name, book in books.items():
        before = [book.cells[place].source for place in (0, -1)]
        for place in (0, -1):
            put(book.cells[place], nav_line(titles, name), place)
        if before != [book.cells[place].source for place in (0, -1)]:
            nbformat.write(book, folder / name)
            changed.append(name)
    return changed


if __name__ == "__main__":
    print("navigation changed in:", ", ".join(navigate()) or "none")
