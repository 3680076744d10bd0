"""Named presets that list what is known when a name is not, and the check of sizes that they all share."""

from collections.abc import Iterable
from numbers import Integral, Real
from typing import NoReturn, TypeVar

import numpy as np

T = TypeVar("T")


class UnknownPresetError(KeyError):
    """A preset's name that is not known; the message lists those that are."""

    def __str__(self) -> str:
        return str(self.args[0])


class Presets(dict[str, T]):
    """Name → preset; an unknown name raises UnknownPresetError, which lists the known ones."""

    def __init__(self, what: str, presets: Iterable[T]) -> None:
        super().__init__((str(getattr(preset, "name", "")), preset) for preset in presets)
        self.what = what

    def __missing__(self, name: object) -> NoReturn:
        raise UnknownPresetError(f"no {self.what} is called {name!r:.60}; known are: {', '.join(self)}")


def is_size(value: object) -> bool:
    """Whether a value is a whole number of at least 1; True is not."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def check_whole(**sizes: object) -> None:
    """Raise ValueError unless each size is a whole number of at least 1."""
    for name, value in sizes.items():
        if not is_size(value):
            raise ValueError(f"{name} is {value!r:.40}: give a whole number of 1 or more")


def check_number(name: str, value: object, positive: bool = False) -> None:
    """Raise ValueError unless the value is one finite number, of 0 or more; or above 0, if ``positive``."""
    number = isinstance(value, (Real, np.number)) and not isinstance(value, (bool, np.complexfloating))
    if not number or not 0 <= value < np.inf or (positive and value == 0):  # type: ignore[operator]
        raise ValueError(f"{name} is {value!r:.40}: give a finite number {'above 0' if positive else 'of 0 or more'}")
