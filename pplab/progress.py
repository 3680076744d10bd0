"""How far something long is: a bar in a notebook, or a function that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Progress = bool | Callable[[int, int], Any]


def watched(items: Sequence[Item], progress: Progress, what: str) -> Iterator[Item]:
    """Pass the items on, and report how many are done before each; all, after the last or when no more are wanted.

    ``progress``: True shows a bar where ipywidgets is installed, beside what the items are; a function is called with
    (done, all).
    """
    report = _bar(len(items), what) if progress is True else progress or None
    if report is None:
        yield from items
        return
    try:
        for done, item in enumerate(items):
            report(done, len(items))
            yield item
    except GeneratorExit:  # enough, or stopped
        pass
    report(len(items), len(items))


def _bar(count: int, what: str) -> Callable[[int, int], None] | None:
    """A notebook's progress bar; None without ipywidgets."""
    try:
        from IPython.display import display
        from ipywidgets import IntProgress
    except ImportError:
        return None
    bar = IntProgress(max=max(1, count), description=what)
    display(bar)  # type: ignore[no-untyped-call]

    def report(done: int, _: int) -> None:
        if done % 16 == 0 or done == count:  # each change is a message to the browser
            bar.value = done

    return report
