"""Numbers below a picture, as an HTML table that tells screen readers when it changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MS = 1e3  # milliseconds in a second: explorers with real times show them in milliseconds

_STYLE = (
    "<style>.pplab-numbers{line-height:1.4}"
    ".pplab-numbers td,.pplab-numbers th{padding:2px 12px 2px 0;text-align:left}</style>"
)
_BOLD_ROW = '<tr style="font-weight:bold">'


def table(head: Iterable[str], rows: Iterable[Sequence[str]], bold: Iterable[int] = (), role: str = "status") -> str:
    """A table of class pplab-numbers: a heading and rows of texts, those whose place is in ``bold`` in bold type.

    role : "status" has every change read out, which suits a few numbers; "" leaves a long one to be read as a table.
    """
    strong = frozenset(bold)
    lines = "".join(
        f"{_BOLD_ROW if place in strong else '<tr>'}{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        for place, row in enumerate(rows)
    )
    cells = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    named = f' role="{role}"' if role else ""
    return f'{_STYLE}<table class="pplab-numbers"{named}><tr>{cells}</tr>{lines}</table>'


def milliseconds(value: float) -> str:
    """Milliseconds to read: four digits, and from 1,000 on all those before the point, never 1e+04."""
    return f"{value:.4g} ms" if value < 1000 else f"{value:.0f} ms"


def note(text: str) -> str:
    """A line of text where a table could stand, read out when it changes."""
    return f'<p class="pplab-numbers" role="status">{escape(text)}</p>'
