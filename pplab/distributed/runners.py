"""PyTorch's stages and schedules, with the times of their ops noted: any rows, or one of its own classes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, _PipelineScheduleRuntime

from pplab.distributed.recorder import Recorder
from pplab.io import write_torch_csv
from pplab.schedule import Schedule

CLASSES: dict[str, Any] = {  # the names are checked in pplab.distributed.refusals
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved-1f1b": ScheduleInterleaved1F1B,
    "looped-bfs": ScheduleLoopedBFS,
    "zb-h1": ScheduleInterleavedZeroBubble,
    "zb-v": ScheduleZBVZeroBubble,
}


class TimedStage(PipelineStage):
    """A stage that notes its passes; messages lie outside them."""

    def __init__(self, recorder: Recorder, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.recorder = recorder

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **options: Any) -> Any:
        """F."""
        with self.recorder.op(self.stage_index, "F", fwd_chunk_id):
            output = super().forward_one_chunk(fwd_chunk_id, *arguments, **options)
        if fwd_chunk_id == 0:
            self.recorder.keep(self.stage_index, "F", output)
        return output

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """B, or I alone."""
        with self.recorder.op(self.stage_index, "B" if full_backward else "I", bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)
        if bwd_chunk_id == 0 and not self.is_first:
            self.recorder.keep(self.stage_index, "B", self.bwd_cache[bwd_chunk_id][0])

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """W."""
        with self.recorder.op(self.stage_index, "W", bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)


class _Losses:
    """Losses by micro-batch. PyTorch counts them in the order of the forwards, which rows may choose."""

    def _maybe_compute_loss(self: Any, stage: Any, output: Any, targets: Any, microbatch: int, _: Any = None) -> None:
        if not stage.is_last:
            return
        if not self._internal_losses:
            self._internal_losses += [None] * self._n_microbatches
        with stage.recorder.more(stage.stage_index, microbatch):
            self._internal_losses[microbatch] = self._compute_loss(output, targets[microbatch])


def build_runner(engine: str, schedule: Schedule, stages: list[TimedStage], loss: Any) -> Any:
    """A runner of PyTorch's for the stages of this rank: of the rows themselves, or of the class of that name."""
    parent = _PipelineScheduleRuntime if engine == "rows" else CLASSES[schedule.name]
    runner = type(parent.__name__, (_Losses, parent), {})
    # The loss is weighted as it is computed, so nothing is left to scale.
    options = {"loss_fn": loss, "scale_grads": False}
    if issubclass(parent, PipelineScheduleSingle):
        return runner(stages[0], schedule.num_microbatches, **options)
    built = runner(stages, schedule.num_microbatches, **options)
    if engine == "rows":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "rows.csv")
            write_torch_csv(schedule, path)
            built._load_csv(str(path))
    return built


def step(runner: Any, stages: list[TimedStage], batch: torch.Tensor, targets: torch.Tensor) -> list[float] | None:
    """Run one step; the losses of the micro-batches, on the rank of the last stage."""
    first, last = any(s.is_first for s in stages), any(s.is_last for s in stages)
    losses: list[torch.Tensor] = []
    runner.step(*[batch] * first, target=targets if last else None, losses=losses, return_outputs=False)
    return [float(x.detach()) for x in losses] if last else None
