"""Every named schedule: SCHEDULES maps the name to the function that builds it."""

from collections.abc import Callable

from pplab.schedule import Schedule
from pplab.schedules.chimera import chimera
from pplab.schedules.dualpipe import dualpipe, dualpipe_v
from pplab.schedules.forward_only import forward_only
from pplab.schedules.gpipe import gpipe
from pplab.schedules.hanayo import hanayo
from pplab.schedules.interleaved import interleaved_1f1b
from pplab.schedules.looped_bfs import looped_bfs
from pplab.schedules.naive import naive
from pplab.schedules.one_f_one_b import eager_1f1b, one_f_one_b, pipedream
from pplab.schedules.v_shaped import v_half, v_min, zb_v
from pplab.schedules.zero_bubble import zb_h1, zb_h2

SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "eager-1f1b": eager_1f1b,
    "interleaved-1f1b": interleaved_1f1b,
    "looped-bfs": looped_bfs,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
    "zb-v": zb_v,
    "v-half": v_half,
    "v-min": v_min,
    "dualpipe": dualpipe,
    "dualpipe-v": dualpipe_v,
    "chimera": chimera,
    "hanayo": hanayo,
    "forward-only": forward_only,
    "pipedream": pipedream,
}

__all__ = [
    "SCHEDULES",
    "chimera",
    "dualpipe",
    "dualpipe_v",
    "eager_1f1b",
    "forward_only",
    "gpipe",
    "hanayo",
    "interleaved_1f1b",
    "looped_bfs",
    "naive",
    "one_f_one_b",
    "pipedream",
    "v_half",
    "v_min",
    "zb_h1",
    "zb_h2",
    "zb_v",
]
