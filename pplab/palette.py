"""How each kind of op looks: colour, text colour, pattern and word, in light and dark, in one place.

Kinds differ in lightness and, where two are alike in it, in pattern, so that they can be told apart
with any colour vision and in grey; text on them has a contrast of 4.5 : 1 or more.
"""

from __future__ import annotations

from typing import NamedTuple


class Look(NamedTuple):
    """Fill and text colour as #rrggbb, a pattern (none, ``lines``, ``dots``, ``cross``), and the word for it."""

    fill: str
    text: str
    pattern: str
    word: str


class Theme(NamedTuple):
    """Colours of a picture: page, lane (idle time), words, thin lines; and the looks by kind."""

    page: str
    lane: str
    words: str
    line: str
    kinds: dict[str, Look]


# Not kinds of op: time in which a blocking hop keeps a device busy, and a message on its way.
COMMUNICATION, MESSAGE = "C", "M"

LIGHT = Theme(
    page="#ffffff",
    lane="#e9edf1",
    words="#1f2933",
    line="#9aa5b1",
    kinds={
        "F": Look("#1f5f9f", "#ffffff", "", "forward"),
        "B": Look("#f2a531", "#1f1300", "", "backward"),
        "I": Look("#fbd88a", "#1f1300", "dots", "backward for the input"),
        "W": Look("#79c9b1", "#062b20", "lines", "backward for the weights"),
        COMMUNICATION: Look("#6b7480", "#ffffff", "cross", "sending or receiving"),
        MESSAGE: Look("#10151a", "#ffffff", "", "message"),
    },
)
DARK = Theme(
    page="#14181d",
    lane="#2b323a",
    words="#e4e8ec",
    line="#6b7683",
    kinds=LIGHT.kinds
    | {"F": Look("#478ccd", "#06182b", "", "forward"), MESSAGE: Look("#ffffff", "#10151a", "", "message")},
)
THEMES = {"light": LIGHT, "dark": DARK}


def theme(name: str) -> Theme:
    """The theme of that name; raises ValueError for an unknown one."""
    if name not in THEMES:
        raise ValueError(f"look is {name!r:.40}: choose 'light' or 'dark'")
    return THEMES[name]
