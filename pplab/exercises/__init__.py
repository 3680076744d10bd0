"""Exercises that check themselves: ``check(name, answer)`` says what is right, or gives a hint for the mistake."""

from __future__ import annotations

from typing import Any

from pplab.exercises.hints import HINTS
from pplab.exercises.solved import note_solved, progress
from pplab.exercises.tasks import TASKS
from pplab.op import ScheduleError

__all__ = ["check", "hint", "progress"]


def check(name: str, answer: Any) -> None:
    """Check an answer (a number, rows, or a function of the reader's) and print what holds, or one hint.

    An untouched stub, ``...`` or a function that raises NotImplementedError, is "not done yet" and no mistake. The
    solution is never printed. A right answer is noted for ``progress``. Raises ValueError for an unknown exercise.
    """
    _check_name(name)
    try:
        mistake = TASKS[name].find_mistake(answer)
    except NotImplementedError:
        print("Not done yet: put your answer in place of the dots, or of the raise line, then run both cells.")
        return
    except ScheduleError as error:
        mistake = f"these rows cannot run. {error}"
    except (Exception, SystemExit) as error:
        mistake = f"your code stopped with {type(error).__name__}: {error}"
    if mistake is not None:
        print(f'Not yet: {mistake}\nFor a second hint: pplab.exercises.hint("{name}")')
        return
    print(f"Right. {TASKS[name].praise}")
    try:
        note_solved(name)
    except (ValueError, OSError) as error:
        print(f"(Not noted in your progress, which changes nothing about the answer: {error})")


def hint(name: str) -> None:
    """Print the second hint: a way to the answer, and never the answer. Raises ValueError for an unknown one."""
    _check_name(name)
    text = next(hints[name] for hints in HINTS.values() if name in hints)
    print(f"Hint: {text}")


def _check_name(name: str) -> None:
    if name not in TASKS:
        raise ValueError(f"no exercise is called {name!r:.40}; there are {', '.join(TASKS)}")
