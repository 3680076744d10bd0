"""What a rank notes while it runs: the times of its ops, where it is just now, which activations are alive."""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from pplab.distributed.progress import COMPUTING, WAITING


class Recorder:
    """Notes each op of a step as (stage, kind, micro-batch, start, end), in seconds of one clock for all processes.

    ``seconds``: how long each kind of op is to last on each stage; what its computing leaves of this it sleeps.
    ``progress``: the rank's line of the table that the launcher watches.
    """

    def __init__(self, device: torch.device, progress: np.ndarray, seconds: dict[int, dict[str, float]]) -> None:
        self.device, self.progress, self.seconds = device, progress, seconds
        self.live: LiveActivations | None = None
        self.kept: dict[tuple[int, str], torch.Tensor] | None = None
        self.marks: list[list[Any]] = []

    def begin_step(self, step: int) -> None:
        """Forget the last step; from here on times count."""
        self.progress[:2] = WAITING, step
        self.marks = []
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            self.base = torch.cuda.Event(enable_timing=True)
            self.base.record()
        self.base_time = time.perf_counter()

    def now(self) -> Any:
        """The time, on a GPU an event in its stream."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @contextmanager
    def op(self, stage: int, kind: str, microbatch: int) -> Iterator[None]:
        """Round one op: its times, its sleep, its place in the table of progress."""
        self.progress[1:] = self.progress[1], stage, ord(kind), microbatch, self.progress[5]
        self.progress[0] = COMPUTING
        mark = [stage, kind, microbatch, self.now(), None]
        deadline = time.perf_counter() + self.seconds.get(stage, {}).get(kind, 0.0)
        with self.live.of(stage, kind, microbatch) if self.live else ExitStack():
            yield
        time.sleep(max(0.0, deadline - time.perf_counter()))
        mark[4] = self.now()
        self.marks.append(mark)
        self.progress[0] = WAITING
        self.progress[5] += 1

    @contextmanager
    def more(self, stage: int, microbatch: int) -> Iterator[None]:
        """Round what belongs to the op just noted: the loss, to the last stage's forward."""
        self.progress[0] = COMPUTING
        with self.live.of(stage, "F", microbatch) if self.live else ExitStack():
            yield
        self.marks[-1][4] = self.now()
        self.progress[0] = WAITING

    def keep(self, stage: int, kind: str, tensor: torch.Tensor) -> None:
        """Keep what micro-batch 0 sends from a stage, where this is wanted: to compare it with one process."""
        if self.kept is not None:
            self.kept[stage, kind] = tensor.detach().clone()

    def spans(self) -> list[tuple[int, str, int, float, float]]:
        """The ops of the step with their times in seconds."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return [(*mark[:3], self._seconds(mark[3]), self._seconds(mark[4])) for mark in self.marks]

    def _seconds(self, mark: Any) -> float:
        return mark if isinstance(mark, float) else self.base_time + self.base.elapsed_time(mark) / 1e3


class _Held:
    """What autograd holds in place of a saved tensor; goes when autograd lets go."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class LiveActivations:
    """Counts what autograd keeps for backwards: chunks (a stage, a micro-batch), and bytes, a storage once.

    Parameters and the batch itself are left out: they are there anyway. A saved tensor is held detached, since
    one that knows its own graph would keep that graph alive.
    """

    def __init__(self, left_out: list[torch.Tensor]) -> None:
        self.left_out = {t.untyped_storage().data_ptr() for t in left_out}
        self.chunks: Counter[tuple[int, int]] = Counter()
        self.storages: Counter[tuple[int, int]] = Counter()
        self.peak_chunks = self.peak_bytes = 0
        self.chunk_bytes: Counter[int] = Counter()
        self.first: dict[int, int] = {}  # the micro-batch by which a stage's chunk is measured

    @contextmanager
    def of(self, stage: int, kind: str, microbatch: int) -> Iterator[None]:
        """Round the forward of a chunk: count what it saves."""
        if kind != "F":
            yield
            return
        before = set(self.storages)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: self._pack((stage, microbatch), t), lambda h: h.tensor):
            yield
        if self.first.setdefault(stage, microbatch) == microbatch:
            self.chunk_bytes[stage] += sum(size for _, size in set(self.storages) - before)
        self.peak_chunks = max(self.peak_chunks, len(self.chunks))
        self.peak_bytes = max(self.peak_bytes, sum(size for _, size in self.storages))

    def _pack(self, chunk: tuple[int, int], t: torch.Tensor) -> _Held:
        held, storage = _Held(t.detach()), t.untyped_storage()
        if storage.data_ptr() not in self.left_out:
            key = storage.data_ptr(), storage.nbytes()
            self.chunks[chunk] += 1
            self.storages[key] += 1
            weakref.finalize(held, self._drop, chunk, key).atexit = False
        return held

    def _drop(self, chunk: tuple[int, int], key: tuple[int, int]) -> None:
        for counter, entry in ((self.chunks, chunk), (self.storages, key)):
            counter[entry] -= 1
            if not counter[entry]:
                del counter[entry]
