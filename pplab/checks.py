"""What is wrong with a schedule, where, and the way out: the text of every ScheduleError about rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from pplab.op import ScheduleError

if TYPE_CHECKING:
    from pplab.needs import Nodes
    from pplab.schedule import Schedule

_NAMES = {"F": "forward", "B": "backward", "I": "backward for the input", "W": "backward for the weights"}


def _place(s: Schedule, i: int) -> str:
    """Where op i stands, in words; entries of a row count from 0."""
    return f"entry {i - s.first[s.device[i]]} of device {s.device[i]}"


def check_complete(s: Schedule, cell: np.ndarray) -> None:
    """Each stage runs each micro-batch forward once, and all of them or none of them backward.

    ``cell``: micro-batch · num_stages + stage of each op.
    """
    size = s.num_stages * s.num_microbatches
    groups = [s.is_kind(kinds) for kinds in ("F", "BI", "I", "W")]
    if size <= s.num_ops:
        forward, backward, inputs, weights = (np.bincount(cell[g], minlength=size) for g in groups)
        once = (forward == 1).all() and (backward == backward[0]).all() and backward[0] <= 1
        if once and (inputs == weights).all():
            return
    for group in (groups[0], groups[1], groups[3]):
        _check_twice(s, cell, np.flatnonzero(group))
    _check_missing(s, cell, groups[0], "F")
    _check_halves(s, cell)
    if groups[1].any():
        _check_missing(s, cell, groups[1], "B" if s.is_kind("B").any() else "I")


def _check_twice(s: Schedule, cell: np.ndarray, ops: np.ndarray) -> None:
    ops = ops[np.argsort(cell[ops], kind="stable")]
    twice = np.flatnonzero(cell[ops][1:] == cell[ops][:-1])
    if not len(twice):
        return
    a, b = (int(ops[twice[0] + i]) for i in (0, 1))
    if s.kind[a] != s.kind[b]:
        raise ScheduleError(
            f"{s.op(a)} ({_place(s, a)}) and {s.op(b)} ({_place(s, b)}): a backward is whole (B) or split "
            "(I, then W), not both; remove one"
        )
    raise ScheduleError(f"{s.op(a)} stands twice: {_place(s, a)} and {_place(s, b)}; remove one")


def _check_missing(s: Schedule, cell: np.ndarray, group: np.ndarray, kind: str) -> None:
    have = np.sort(cell[group])
    if len(have) == s.num_stages * s.num_microbatches:
        return
    gap = np.flatnonzero(have != np.arange(len(have)))
    microbatch, stage = divmod(int(gap[0]) if len(gap) else len(have), s.num_stages)
    same_stage, same_microbatch = s.stage == stage, s.microbatch == microbatch
    for what, have_it, column in (("stage", same_stage, s.stage), ("micro-batch", same_microbatch, s.microbatch)):
        if not have_it.any():
            top = int(np.argmax(column))
            raise ScheduleError(
                f"no op is of {what} {stage if what == 'stage' else microbatch}, yet {s.op(top)} ({_place(s, top)}) "
                f"is of {what} {column[top]}: number them from 0 without gaps"
            )
    device, other = s.device[np.argmax(same_stage)], int(np.argmax(same_microbatch))
    raise ScheduleError(
        f"{stage}{kind}{microbatch} is missing: stage {stage} never runs micro-batch {microbatch} {_NAMES[kind]}, "
        f"yet {s.op(other)} runs on device {s.device[other]}; add it to the row of device {device}, or take "
        f"micro-batch {microbatch} out of every row"
    )


def _check_halves(s: Schedule, cell: np.ndarray) -> None:
    for kind, partner in ("IW", "WI"):
        ops = np.flatnonzero(s.is_kind(kind))
        alone = ops[~np.isin(cell[ops], cell[s.is_kind(partner)])]
        if len(alone):
            op = s.op(int(alone[0]))
            raise ScheduleError(
                f"{op._replace(kind=partner)} is missing: {op} ({_place(s, int(alone[0]))}) is one half of a "
                f"backward; put I and, after it, W on the same device, or write B for both at once"
            )


def check_rows(s: Schedule, needs: np.ndarray) -> None:
    """What one device needs of itself comes earlier in its row; a pair's ops do not need each other."""
    index, apart = np.arange(s.num_ops)[:, None], s.device[:, None] != s.device[needs]
    for wrong, check in (
        ((needs >= 0) & apart & [False, True], _raise_apart),
        ((needs > index) & ~apart, _raise_order),
    ):
        if wrong.any():
            i, column = (int(x) for x in np.argwhere(wrong)[0])
            check(s, i, int(needs[i, column]))
    first = np.flatnonzero(s.paired)
    clash = first[(needs[first + 1] == first[:, None]).any(axis=1)]
    if len(clash):
        i = int(clash[0])
        raise ScheduleError(
            f"{s.op(i)} and {s.op(i + 1)} on device {s.device[i]} cannot run as a pair: the second needs the first; "
            "take the pair out"
        )


def _raise_apart(s: Schedule, i: int, needed: int) -> NoReturn:
    raise ScheduleError(
        f"{s.op(i)} stands on device {s.device[i]}, but {s.op(needed)} left what it needs on device "
        f"{s.device[needed]}: a stage runs a micro-batch forward and backward on one device; move one of them"
    )


def _raise_order(s: Schedule, i: int, needed: int) -> NoReturn:
    raise ScheduleError(
        f"device {s.device[i]} runs {s.op(i)} (entry {i - s.first[s.device[i]]}) before {s.op(needed)} "
        f"(entry {needed - s.first[s.device[i]]}), which it needs; put {s.op(needed)} first"
    )


def check_pairs(s: Schedule) -> None:
    """Ops that run as one stand side by side in one row, and an op belongs to one pair at most."""
    if len(s.paired) != s.num_ops:
        raise ScheduleError(f"paired has {len(s.paired)} entries for {s.num_ops} ops: give one an op")
    if s.paired.any():
        wrong = s.paired & (np.r_[s.device[1:] != s.device[:-1], True] | np.r_[s.paired[1:], False])
        if wrong.any():
            i = int(np.argmax(wrong))
            raise_no_pair(s, i, i + 1)


def raise_no_pair(s: Schedule, a: int, b: int) -> NoReturn:
    """Say why two ops cannot run as one."""
    second = s.op(b) if b < s.num_ops else "nothing"
    raise ScheduleError(
        f"{s.op(a)} and {second} cannot run as a pair: a pair stands side by side in one row, and an op belongs to "
        "one pair at most"
    )


def raise_deadlock(s: Schedule, nodes: Nodes, position: np.ndarray) -> NoReturn:
    """Name the cycle of waiting ops: every device of it waits for one that stands behind another wait.

    ``position``: the node at which each device is stuck, or the end of its row.
    """
    waits: dict[int, tuple[int, int]] = {}
    device = int(np.flatnonzero(position < nodes.first[1:])[0])
    while device not in waits:
        ops = np.flatnonzero(nodes.of_op == position[device])
        waits[device] = next(
            (int(i), int(s.needs[i, 0]))
            for i in ops
            if s.needs[i, 0] >= 0 and nodes.of_op[s.needs[i, 0]] >= position[s.device[s.needs[i, 0]]]
        )
        device = int(s.device[waits[device][1]])
    cycle = list(waits)[list(waits).index(device) :]
    texts = [f"device {d} waits at {s.op(waits[d][0])} for {s.op(waits[d][1])}" for d in cycle]
    stuck, (_, needed) = s.op(waits[device][0]), waits[cycle[-1]]
    raise ScheduleError(
        f"deadlock: {'; '.join(texts)}; each stands behind the wait of its own device. "
        f"One way out: run {s.op(needed)} before {stuck} on device {device}"
    )
