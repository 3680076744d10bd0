"""Exercises that check themselves: ``check(name, answer)`` says what is right, or gives a hint for the mistake."""

from __future__ import annotations

from typing import Any

from pplab.exercises.tasks import TASKS
from pplab.op import ScheduleError

__all__ = ["check"]


def check(name: str, answer: Any) -> None:
    """Check an answer (a number, rows, or a function of the reader's) and print what holds, or one hint.

    An untouched stub, ``...`` or a function that raises NotImplementedError, is "not done yet" and no mistake. The
    solution is never printed. Raises ValueError for an unknown exercise.
    """
    if name not in TASKS:
        raise ValueError(f"no exercise is called {name!r:.40}; there are {', '.join(TASKS)}")
    try:
        print(
            f"Right. {TASKS[name].praise}" if (hint := TASKS[name].find_mistake(answer)) is None else f"Not yet: {hint}"
        )
    except NotImplementedError:
        print("Not done yet: put your answer in place of the dots, or of the raise line, then run both cells.")
    except ScheduleError as error:
        print(f"Not yet: these rows cannot run. {error}")
    except Exception as error:
        print(f"Not yet: your code stopped with {type(error).__name__}: {error}")
