"""Make what is never written by hand from notebooks/exercises/source: `make solutions`, or with the names of some.

Solutions are the source without its marks, run from the top, in notebooks/solutions. The students' versions are what
`nbgrader generate_assignment` makes of it, in notebooks/exercises/release.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from refresh import NOTEBOOKS, refresh

COURSE, SOLUTIONS = NOTEBOOKS / "exercises", NOTEBOOKS / "solutions"
SOURCES = sorted((COURSE / "source").glob("*/*.ipynb"))
MARK = re.compile(r"^ *### (BEGIN|END) (SOLUTION|HIDDEN TESTS)\n?", re.M)
NOTE = "\n\n*The solution. It is made from `exercises/source` by `make solutions`: change it there.*"


def strip_marks(text: str) -> str:
    """A cell without the lines that nbgrader reads."""
    return MARK.sub("", text).rstrip()


def solve(path: Path) -> nbformat.NotebookNode:
    """A source notebook → its solution, not yet run."""
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        cell.source = strip_marks(cell.source)
        cell.metadata.pop("nbgrader", None)
    book.cells[0].source += NOTE
    return book


def release(sources: list[Path], into: Path) -> None:
    """The students' versions, made by nbgrader in a folder of its own, since it keeps a database there."""
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config, PyFileConfigLoader

    with tempfile.TemporaryDirectory() as folder:
        config = Config(PyFileConfigLoader("nbgrader_config.py", path=str(COURSE)).load_config())
        config.CourseDirectory.root = folder
        for path in sources:
            shutil.copytree(path.parent, Path(folder) / "source" / path.stem, ignore=shutil.ignore_patterns(".*"))
            result = NbGraderAPI(config=config).generate_assignment(path.stem, force=True, create=True)
            assert result["success"], result["log"]
            made = Path(folder) / "release" / path.stem / path.name
            target = into / path.stem / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(nbformat.read(made, as_version=4), target)


if __name__ == "__main__":
    chosen = [path for path in SOURCES if path.stem in sys.argv[1:] or len(sys.argv) == 1]
    SOLUTIONS.mkdir(exist_ok=True)
    for source in chosen:
        target = SOLUTIONS / source.name
        nbformat.write(solve(source), target)
        refresh(target)
    release(chosen, COURSE / "release")
