"""What the reader has solved in this folder, in one small file that they can read, or delete to start over."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from pplab.exercises.hints import HINTS

FILE = "pplab-progress.json"
_ABOUT = "Exercises of pplab solved in this folder. Delete this file to start over."


def note_solved(name: str) -> None:
    """Add an exercise to the file in the working folder.

    The file is replaced in one go, so a notebook that reads it meanwhile finds it whole. Raises ValueError where the
    file is there but holds something else (it is left as it is), OSError where it cannot be read or written.
    """
    solved = read_solved()
    if name in solved:
        return
    text = json.dumps({"about": _ABOUT, "solved": [*solved, name]}, indent=2, ensure_ascii=False)
    handle, path = tempfile.mkstemp(prefix=f".{FILE}.", dir=Path.cwd())
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(path, FILE)
    except OSError:
        os.unlink(path)
        raise


def read_solved() -> list[str]:
    """The exercises that are solved in the working folder, in the order in which they were.

    Raises ValueError where the file holds something else, OSError where it cannot be read.
    """
    try:
        solved = json.loads(Path(FILE).read_text(encoding="utf-8"))["solved"]
        if not isinstance(solved, list) or not all(isinstance(name, str) for name in solved):
            raise TypeError
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{FILE} is no list of solved exercises any more: delete it to start over") from None
    return solved


def progress() -> None:
    """Print which exercises are solved in this folder, notebook by notebook, and where to go on."""
    try:
        solved = read_solved()
    except (ValueError, OSError) as error:
        print(f"Your progress cannot be read. {error}")
        return
    done = [name for tasks in HINTS.values() for name in tasks if name in solved]
    count = sum(map(len, HINTS.values()))
    print(f"{len(done)} of {count} exercises solved in this folder")
    wide = max(map(len, HINTS))
    for notebook, tasks in HINTS.items():
        marks = ("   ".join(f"{'✓' if name in solved else '·'} {name}" for name in tasks)).rstrip()
        print(f"  {notebook:{wide}}  {marks}")
    open_ones = [notebook for notebook, tasks in HINTS.items() if not set(tasks) <= set(solved)]
    print(f"Next: {open_ones[0]}.ipynb" if open_ones else "All solved. Well done!")
