"""Every named schedule: SCHEDULES maps the name to the function that builds it."""

from collections.abc import Callable

from pplab.schedule import Schedule
from pplab.schedules.gpipe import gpipe
from pplab.schedules.interleaved import interleaved_1f1b
from pplab.schedules.naive import naive
from pplab.schedules.one_f_one_b import eager_1f1b, one_f_one_b

SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "eager-1f1b": eager_1f1b,
    "interleaved-1f1b": interleaved_1f1b,
}

__all__ = ["SCHEDULES", "eager_1f1b", "gpipe", "interleaved_1f1b", "naive", "one_f_one_b"]
