"""Op: one pass of one stage over one micro-batch; and reading rows of them in any spelling."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, compress
from typing import Any, NamedTuple, NoReturn

import numpy as np

KINDS = "FBIW"
_OP = re.compile("([0-9]{1,9})([FBIW])([0-9]{1,9})")
_PLAIN = "[0-9]{1,9}[FBIW][0-9]{1,9}"
is_op, is_row = re.compile(_PLAIN).fullmatch, re.compile(f"{_PLAIN}(?: {_PLAIN})*").fullmatch
_BLANKS = str.maketrans(KINDS, " " * len(KINDS))
_SPELLINGS = "write pplab.Op(2, 'F', 0), (2, 'F', 0) or '2F0': stage, kind (F, B, I or W), micro-batch"
_BLOCK = 1000  # of a row that holds something odd, only such a block takes the slow road
_MOST = 2**31  # stages and micro-batches beyond this are typing errors
_WHOLE = "be a whole number from 0 to 2³¹ − 1"
_IS_KIND = np.isin(np.arange(128), list(map(ord, KINDS)))


class ScheduleError(ValueError):
    """A schedule that cannot run: the text says what is wrong, where, and the way out."""


class Op(NamedTuple):
    """One pass of one stage over one micro-batch.

    Kinds are PyTorch's letters: ``F`` forward, ``B`` whole backward, ``I`` backward for the input,
    ``W`` backward for the weights. Stages and micro-batches count from 0.
    """

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    @classmethod
    def parse(cls, text: str) -> Op:
        """Read PyTorch's spelling, such as ``2F0``; raises ScheduleError for anything else."""
        match = _OP.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise ScheduleError(f"{text!r:.60} is not an op; {_SPELLINGS}")
        return cls(int(match[1]), match[2], int(match[3]))


Row = str | Iterable[Op | tuple[int, str, int] | str]
Columns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Ops = tuple[np.ndarray, np.ndarray, np.ndarray]  # stage, kind, microbatch


def read_rows(rows: Iterable[Row]) -> Columns:
    """Rows in any accepted spelling → columns device, stage, kind, microbatch, one entry an op.

    Raises ScheduleError, naming the device and the entry, for whatever is not an op.
    """
    if isinstance(rows, (str, bytes, dict)) or not isinstance(rows, Iterable):
        raise ScheduleError(f"rows must be a list with one row of ops a device, not {rows!r:.60}")
    columns = []
    for device, row in enumerate(rows):
        if not isinstance(row, Iterable) or isinstance(row, bytes):
            raise ScheduleError(f"device {device}: a row is a list of ops, not {row!r:.60}")
        ops: list[Any] = row.replace(",", " ").split() if isinstance(row, str) else list(row)
        if not ops:
            raise ScheduleError(f"device {device} runs nothing: give it a stage, or leave its row out")
        columns.append((np.full(len(ops), device), *read_ops(f"device {device}, op", ops)))
    if not columns:
        raise ScheduleError("the schedule is empty: give one row of ops a device, such as ['0F0 0B0']")
    device_column, stage, kind, microbatch = (np.concatenate(c) for c in zip(*columns, strict=True))
    return device_column, stage, kind, microbatch


def read_ops(where: str, ops: list[Any], begin: int = 0) -> Ops:
    """Ops in any spellings → columns stage, kind, microbatch; ``where`` and the place name an entry that is wrong."""
    read = _read_quickly(ops)
    if read is not None:
        return read
    if len(ops) <= _BLOCK:
        return _read_one_by_one(where, ops, begin)
    blocks = [read_ops(where, ops[i : i + _BLOCK], begin + i) for i in range(0, len(ops), _BLOCK)]
    joined = [np.concatenate(column) for column in zip(*blocks, strict=True)]
    return joined[0], joined[1], joined[2]


def _read_quickly(ops: list[Any]) -> Ops | None:
    """All at once, texts and tuples each by themselves; None where something is odd."""
    types = set(map(type, ops))
    texts = {t for t in types if issubclass(t, str)}
    if not texts or texts == types:
        return _read_texts(ops) if texts else _read_tuples(ops)
    is_text = [type(op) in texts for op in ops]
    text = np.array(is_text)
    parts = _read_texts(list(compress(ops, is_text))), _read_tuples(list(compress(ops, ~text)))
    if parts[0] is None or parts[1] is None:
        return None
    stage, microbatch = np.empty((2, len(ops)), np.int64)
    kind = np.empty(len(ops), "<U1")
    for chosen, part in ((text, parts[0]), (~text, parts[1])):
        stage[chosen], kind[chosen], microbatch[chosen] = part
    return stage, kind, microbatch


def _read_texts(ops: list[str]) -> Ops | None:
    text = " ".join(map(str.strip, ops))
    letters = text.encode(errors="replace").translate(None, b"0123456789 ")
    if len(letters) != len(ops) or not is_row(text):
        return None
    numbers = np.fromstring(text.translate(_BLANKS), np.int64, sep=" ")
    return numbers[::2], np.frombuffer(letters, "S1").astype("<U1"), numbers[1::2]


def _read_tuples(ops: list[Any]) -> Ops | None:
    if not all(issubclass(t, (tuple, list)) for t in set(map(type, ops))) or set(map(len, ops)) != {3}:
        return None
    fields = list(chain.from_iterable(ops))
    stage, kind, microbatch = fields[::3], fields[1::3], fields[2::3]
    whole = all(issubclass(t, (int, np.integer)) and t is not bool for t in set(map(type, stage + microbatch)))
    if not whole or not set(map(type, kind)) <= {str, np.str_} or not set(kind) <= set(KINDS):
        return None
    try:
        both = np.array([stage, microbatch], np.int64)
    except OverflowError:
        return None
    return (both[0], np.array(kind), both[1]) if both.min() >= 0 and both.max() < _MOST else None


def _read_one_by_one(where: str, ops: list[Any], begin: int) -> Ops:
    """The slow road, for naming the entry that is wrong."""
    read = []
    for place, op in enumerate(ops, begin):
        if not (isinstance(op, str) or (isinstance(op, Sequence) and len(op) == 3)):
            raise ScheduleError(f"{where} {place}: {op!r:.60} is not an op; {_SPELLINGS}")
        try:
            read.append(Op.parse(op) if isinstance(op, str) else Op(*op))
        except ScheduleError as error:
            raise ScheduleError(f"{where} {place}: {error}") from None
        stage, kind, microbatch = read[-1]
        for name, value in (("stage", stage), ("microbatch", microbatch)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < _MOST:
                raise ScheduleError(f"{where} {place}: {name} {value!r:.30} must {_WHOLE}; {_SPELLINGS}")
        if not isinstance(kind, str) or kind not in tuple(KINDS):
            raise ScheduleError(f"{where} {place}: kind {kind!r:.30} is unknown; {_SPELLINGS}")
    stages, kinds, microbatches = zip(*read, strict=True)
    return np.array(stages, np.int64), np.array(kinds), np.array(microbatches, np.int64)


def read_columns(device: Any, stage: Any, kind: Any, microbatch: Any) -> Columns:
    """The four columns as arrays, checked at array speed.

    Raises ScheduleError, naming the column and the entry, where they are not ops, device by device.
    """
    numbers, letters = [np.asarray(column).ravel() for column in (device, stage, microbatch)], np.asarray(kind).ravel()
    lengths = [len(column) for column in (*numbers, letters)]
    if len(set(lengths)) > 1 or not lengths[0]:
        raise ScheduleError(
            "device, stage, microbatch and kind have {}, {}, {} and {} entries: each needs one an op, "
            "and a schedule at least one op".format(*lengths)
        )
    for name, column in zip(("device", "stage", "microbatch"), numbers, strict=True):
        if column.dtype.kind not in "iu" or column.min() < 0 or column.max() >= _MOST:
            right = [isinstance(x, int) and not isinstance(x, bool) and 0 <= x < _MOST for x in column.tolist()]
            _raise_entry(name, column, right, _WHOLE)
    if letters.dtype != "<U1" or not _IS_KIND[np.minimum(letters.view(np.uint32), 127)].all():
        right = [x in tuple(KINDS) for x in letters.tolist()]
        if not all(right):
            _raise_entry("kind", letters, right, "be F, B, I or W")
    places = numbers[0].astype(np.int64)
    step = places[1:] - places[:-1]
    right = (step == 0) | (step == 1)
    if places[0] or not right.all():
        wanted = "be the device before it or the next one, from 0: ops stand device by device, and each device has some"
        _raise_entry("device", places, [places[0] == 0, *right], wanted)
    return places, numbers[1], letters, numbers[2]


def _raise_entry(name: str, column: np.ndarray, right: list[Any], wanted: str) -> NoReturn:
    i = right.index(False)
    raise ScheduleError(f"column {name}, entry {i}: {column.tolist()[i]!r:.30} must {wanted}")
