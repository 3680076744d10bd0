"""The player: timelines with a clock that the browser itself moves, in a notebook or in a page without a kernel."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from pplab import svg
from pplab.idle import REASONS, gap_columns
from pplab.io import as_dict
from pplab.metrics import bubble_fraction, given_back_by, held_microbatches, makespan, messages_sent
from pplab.palette import LIGHT
from pplab.svg_parts import theme_variables
from pplab.timeline import Timeline, check_timeline
from pplab.widgets.tables import note

_HERE = Path(__file__).parent
_TIMELINE, _PLAYER, _PAGE, _STYLE = (
    (_HERE / name).read_text(encoding="utf-8")
    for name in ("player_timeline.js", "player.js", "player_page.js", "player.css")
)
_CSS = theme_variables(".pplab-player") + theme_variables(".pplab-page") + "\n" + _STYLE
WORDS = {"kinds": {kind: look.word for kind, look in LIGHT.kinds.items()}, "reasons": REASONS}


class Player(anywidget.AnyWidget):
    """Timelines on one axis, under a clock that plays, steps, and tells what each device does, holds and waits for.

    Nothing is asked of the kernel while it plays. Keys, once it has the focus: space plays and pauses, ← and →
    step to the next moment at which something changes, Home and End go to the ends, ↑ and ↓ choose a device in a
    picture. ``show`` gives it other timelines; a text in place of one stands where its picture would.
    """

    _esm = _TIMELINE + _PLAYER
    _css = _CSS
    shown = traitlets.Dict().tag(sync=True)

    def __init__(self, *timelines: Timeline | str, titles: Sequence[str] = ()) -> None:
        super().__init__()
        self.show(*timelines, titles=titles)

    def show(
        self, *timelines: Timeline | str, titles: Sequence[str] = (), code: str = "", over: str = "makespan"
    ) -> None:
        """Show these instead, by their titles where given.

        ``code``: a line of Python that repeats it, to copy. ``over``: what the captions' bubble is a share of.
        """
        self.shown = shown_data(timelines, titles, code, over) | {"words": WORDS}

    def on_reset(self, action: Callable[[], Any]) -> None:
        """What the button "reset" does besides setting the clock to 0."""
        self.on_msg(lambda _player, message, _buffers: action() if message == "reset" else None)

    def to_html(self) -> str:
        """What is shown, as a piece of HTML with script, style and data, which needs no kernel and no network."""
        names = [item.get("name", f"picture {i}") for i, item in enumerate(self.shown["items"])]
        return grid_html(self, None, names, {})

    def __repr__(self) -> str:
        return "[player of schedules: run this cell to play them]"


def shown_data(
    timelines: Sequence[Timeline | str], titles: Sequence[str] = (), code: str = "", over: str = "makespan"
) -> dict[str, Any]:
    """What the player shows, as plain data: pictures that share an axis, and each timeline's columns."""
    until = max((makespan(t) for t in timelines if isinstance(t, Timeline)), default=0.0)
    if len(titles) not in (0, len(timelines)):
        raise ValueError(f"{len(titles)} titles for {len(timelines)} timelines: give one each, or none")
    named: Sequence[str | None] = titles or [None] * len(timelines)
    items = [
        {"html": note(t)} if isinstance(t, str) else _item(t, until, title, over)
        for t, title in zip(timelines, named, strict=True)
    ]
    names = [item.get("name") for item in items]
    for item, title in zip(items, named, strict=True):
        if title and names.count(item.get("name")) > 1:
            item["name"] = title
    return {"until": until, "items": items, "code": code}


def _item(t: Timeline, until: float, title: str | None, over: str) -> dict[str, Any]:
    """A picture with its caption, where things are in it, and the columns as a text that is read when needed."""
    return {
        "name": check_timeline(t).schedule.name,
        "html": svg.timeline(t, until=until, title=title, tooltips=False) + caption(t, over),
        "frame": svg.frame(t, until=until)._asdict(),
        "num_devices": t.schedule.num_devices,
        "columns": json.dumps(columns(t), separators=(",", ":")),
    }


def columns(t: Timeline) -> dict[str, Any]:
    """A timeline as write_json writes it; which op gives back what each took; its idle gaps and their parts.

    ``gaps["parts"]``: [gap, place in REASONS, time] of those that take time. Ops are indices, −1 for none.
    """
    device, start, end, waiting_for, _, parts = gap_columns(t)
    gap, reason = np.nonzero(parts)
    gaps = {"device": device, "start": start, "end": end, "waiting_for": waiting_for}
    triples = zip(gap.tolist(), reason.tolist(), parts[gap, reason].tolist(), strict=True)
    return {
        "timeline": as_dict(t),
        "given_back_by": given_back_by(t.schedule).tolist(),
        "gaps": {name: column.tolist() for name, column in gaps.items()} | {"parts": list(triples)},
    }


def caption(t: Timeline, over: str = "makespan") -> str:
    """The three numbers to compare, under a picture, after V where it is not 1."""
    held, sent = held_microbatches(t).max(), messages_sent(t.schedule).sum()
    chunks = t.schedule.num_stages // t.schedule.num_devices
    of = " over the longest span" if over == "span" else ""
    share = f"bubble {bubble_fraction(t, over):.1%}{of} · " if makespan(t) else ""
    text = f"{f'V = {chunks} · ' * (chunks > 1)}{share}at most {held:.4g} micro-batches in flight · {sent} messages"
    return f'<p style="margin:0 0 10px 74px;line-height:1.2">{escape(text)}</p>'


def grid_html(
    player: Player, numbers: Any, schedules: Sequence[str], grid: Mapping[str, tuple[Any, Iterable[int]]]
) -> str:
    """What an explorer shows at many sizes, as a piece of HTML with sliders over them, without kernel or network.

    ``numbers``: its table, or None. ``schedules``: the names of what the player shows. ``grid``: controls that move
    the player, by a name for links, and the values to compute it at, besides the present ones.
    """
    now = {name: control.value for name, (control, _) in grid.items()}
    sizes = [
        {"key": name, "label": control.description, "values": sorted({*values, now[name]}), "first": now[name]}
        for name, (control, values) in grid.items()
    ]
    points = {}
    for chosen in product(*(size["values"] for size in sizes)):
        for (control, _), value in zip(grid.values(), chosen, strict=True):
            control.value = value
        shown = {name: part for name, part in player.shown.items() if name != "words"}
        points[",".join(map(str, chosen))] = shown | {"numbers": numbers.value if numbers else ""}
    for name, (control, _) in grid.items():
        control.value = now[name]
    return _page(",".join(schedules), schedules, sizes, points)


def _page(
    name: str, schedules: Sequence[str], sizes: Sequence[Mapping[str, Any]], points: Mapping[str, dict[str, Any]]
) -> str:
    items: dict[str, int] = {}  # a picture that several sizes share is stored once
    for point in points.values():
        point["items"] = [items.setdefault(_packable(item), len(items)) for item in point["items"]]
    data = {"name": name, "names": schedules, "sizes": sizes, "points": points, "words": WORDS}
    data["items"] = [json.loads(item) for item in items]
    packed = b64encode(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0)).decode()
    return (
        f'<style>{_CSS}</style><div class="pplab-page"><script type="text/plain">{packed}</script></div>'
        f'<script type="module">{_TIMELINE}{_PLAYER}{_PAGE}</script>'
    )


def _packable(item: Mapping[str, Any]) -> str:
    """An item as text that packs well: its picture's own name replaced by one for all, and times to nine digits."""
    key = re.search(r'class="p([0-9a-f]{8})"', item["html"])
    html = item["html"].replace(key[1], "PICTURE") if key else item["html"]
    short = re.sub(r"\d+\.\d{7,}(e-?\d+)?", lambda number: f"{float(number[0]):.9g}", item.get("columns", ""))
    return json.dumps(dict(item) | {"html": html} | ({"columns": short} if short else {}))
