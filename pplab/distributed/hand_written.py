"""1F1B by hand: what PyTorch's runtime does for you, in plain sends and receives.

Each rank holds one stage. It first runs as many forwards as there are ranks behind it, then a forward and a
backward in turn, then the backwards that are left. Boundary tensors travel as they are made: activations to the
next rank, gradients back to the one before.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from pplab.distributed.recorder import Recorder

FORWARD, BACKWARD = 0, 1  # tags, with the micro-batch, so that no message is taken for another


class HandWritten1F1B:
    """One rank of 1F1B. ``like``: an example of what the stage receives for one micro-batch, and of what it gives."""

    def __init__(
        self, stage: nn.Module, like: tuple[torch.Tensor, torch.Tensor], loss: Any, recorder: Recorder
    ) -> None:
        self.stage, self.like, self.loss, self.recorder = stage, like, loss, recorder
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.is_first, self.is_last = self.rank == 0, self.rank == self.world - 1

    def step(self, batch: torch.Tensor, targets: torch.Tensor, num_microbatches: int) -> list[float] | None:
        """Forwards and backwards of all micro-batches; gradients add up in the parameters. Losses, on the last rank."""
        self.x, self.y = batch.chunk(num_microbatches), targets.chunk(num_microbatches)
        self.saved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.sends: list[tuple[Any, torch.Tensor]] = []
        self.losses: list[float] = []
        # Receives are asked for one op ahead: a message then travels while the rank computes.
        self.coming: dict[tuple[int, int], tuple[Any, torch.Tensor]] = {}
        warm_up = min(self.world - 1 - self.rank, num_microbatches)
        order = [(FORWARD, m) for m in range(warm_up)]
        for m in range(num_microbatches):
            if m + warm_up < num_microbatches:
                order.append((FORWARD, m + warm_up))
            order.append((BACKWARD, m))
        for op, following in zip(order, [*order[1:], None], strict=True):
            self.ask_for(*op)
            received = self.receive(*op)
            if following:
                self.ask_for(*following)
            (self.forward if op[0] == FORWARD else self.backward)(op[1], received)
        for work, _ in self.sends:  # each with its tensor, which must live until it has gone
            work.wait()
        return self.losses if self.is_last else None

    def forward(self, m: int, x: torch.Tensor | None) -> None:
        """F of micro-batch m: keep input and output for the backward, send the output on."""
        x = self.x[m] if x is None else x.requires_grad_()
        with self.recorder.op(self.rank, "F", m):
            output = self.stage(x)
            if self.is_last:
                output = self.loss(output, self.y[m])
                self.losses.append(float(output.detach()))
        self.saved[m] = x, output
        if not self.is_last:
            self.send(output.detach(), self.rank + 1, FORWARD, m)

    def backward(self, m: int, gradient: torch.Tensor | None) -> None:
        """B of micro-batch m: from its output's gradient to those of the weights and of the input; send the latter."""
        x, output = self.saved.pop(m)
        with self.recorder.op(self.rank, "B", m):
            output.backward(gradient)
        if not self.is_first:
            self.send(x.grad, self.rank - 1, BACKWARD, m)

    def ask_for(self, way: int, m: int) -> None:
        """Begin to receive what an op needs, unless it needs nothing or has been asked for."""
        if (self.is_last if way else self.is_first) or (way, m) in self.coming:
            return
        buffer = torch.empty_like(self.like[way], requires_grad=False)
        source = self.rank + 1 if way else self.rank - 1
        self.coming[way, m] = dist.irecv(buffer, source, tag=2 * m + way), buffer

    def receive(self, way: int, m: int) -> torch.Tensor | None:
        """Wait for what an op needs; None where the batch or the loss gives it."""
        if (way, m) not in self.coming:
            return None
        work, buffer = self.coming.pop((way, m))
        work.wait()
        return buffer

    def send(self, tensor: torch.Tensor, to: int, way: int, m: int) -> None:
        """Begin to send, without waiting."""
        self.sends.append((dist.isend(tensor, to, tag=2 * m + way), tensor))
