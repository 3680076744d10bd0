"""The same step in one process: what the gradients of a run, and the tensors between its stages, are held against."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import torch
from torch import nn

from pplab.distributed.models import IGNORE, Model
from pplab.schedule import Schedule

Gradients = dict[int, list[torch.Tensor]]  # by stage, in the order of its parameters


def gradients_of(modules: dict[int, nn.Module]) -> Gradients:
    """Copies of the gradients, on the CPU."""
    return {k: [p.grad.detach().cpu().clone() for p in module.parameters()] for k, module in modules.items()}


def take_gradients(modules: dict[int, nn.Module]) -> Gradients:
    """The gradients themselves, which the modules then no longer have: a copy less."""
    taken = {k: [p.grad.cpu() for p in module.parameters()] for k, module in modules.items()}
    for module in modules.values():
        module.zero_grad()
    return taken


def digest(gradients: Gradients) -> str:
    """The same bits give the same text."""
    sha = hashlib.sha256()
    for k in sorted(gradients):
        for gradient in gradients[k]:
            sha.update(gradient.numpy().tobytes())
    return sha.hexdigest()


def orders(rows: Iterable[Iterable[tuple[Any, ...]]]) -> dict[int, tuple[int, ...]]:
    """The order in which each stage adds up its micro-batches: that of its Bs and Ws in the rows."""
    found: dict[int, list[int]] = {}
    for stage, kind, microbatch, *_ in chain.from_iterable(rows):
        if kind in "BW":
            found.setdefault(stage, []).append(microbatch)
    return {k: tuple(order) for k, order in found.items()}


class OneProcess:
    """All stages in one process: gradients micro-batch by micro-batch, or of the whole batch at once."""

    def __init__(self, model: Model, schedule: Schedule, device: torch.device, tick: Callable[[], None]) -> None:
        self.model, self.schedule, self.tick = model, schedule, tick
        count = schedule.num_stages
        self.modules = {k: model.stage(k, count).to(device) for k in range(count)}
        self.batch, self.targets = (t.to(device) for t in model.batch(schedule.num_microbatches))
        self.counted = count_tokens(self.targets)
        self.between: dict[tuple[int, str], torch.Tensor] = {}

    def accumulated(self, wanted: dict[int, tuple[int, ...]]) -> Gradients:
        """Gradients added up micro-batch by micro-batch, in the order that is wanted of each stage."""
        found: Gradients = {}
        for order in dict.fromkeys(wanted.values()):
            self._clear()
            parts = [t.chunk(self.schedule.num_microbatches) for t in (self.batch, self.targets)]
            for m in order:
                self._pass(parts[0][m], parts[1][m], keep=m == 0)
            found |= take_gradients({k: self.modules[k] for k in wanted if wanted[k] == order})
        return found

    def whole(self) -> Gradients:
        """Gradients of the whole batch as one micro-batch; layer by layer, each computed again, to keep little."""
        self._clear()
        layers = [x for m in self.modules.values() for x in (m if isinstance(m, nn.Sequential) else [m])]
        inputs = [self.batch]
        with torch.no_grad():
            for layer in layers:
                inputs.append(layer(inputs[-1]))
        out = inputs.pop().requires_grad_()
        self.model.loss(out, self.targets, self.counted).backward()
        gradient = out.grad
        for layer, x in zip(reversed(layers), reversed(inputs), strict=True):
            x = x.detach().requires_grad_(x.is_floating_point())
            layer(x).backward(gradient)
            gradient = x.grad
            self.tick()
        return take_gradients(self.modules)

    def _clear(self) -> None:
        for module in self.modules.values():
            module.zero_grad()

    def _pass(self, x: torch.Tensor, y: torch.Tensor, keep: bool = False) -> None:
        # Cut between the stages as in the pipeline: each differentiates on its own, from the gradient it is sent.
        ends: list[tuple[torch.Tensor, torch.Tensor]] = []
        for k, module in self.modules.items():
            x = x.detach().requires_grad_() if k else x
            ends.append((x, module(x)))
            x = ends[-1][1]
            if keep:
                self.between[k, "F"] = x.detach()
        self.tick()
        gradient: Any = None
        out = self.model.loss(x, y, self.counted)
        for k in reversed(self.modules):
            (out if gradient is None else ends[k][1]).backward(gradient)
            gradient = ends[k][0].grad
            if keep and k:
                self.between[k, "B"] = gradient


def count_tokens(targets: torch.Tensor) -> int:
    """How many tokens count, in the whole batch."""
    return int((targets != IGNORE).sum())


def largest_difference(a: Gradients, b: Gradients) -> float:
    """The largest absolute difference of any element."""
    return max(float((x - y).abs().max()) for k in b for x, y in zip(a[k], b[k], strict=True))


def relative_difference(a: Gradients, b: Gradients) -> float:
    """The norm of the difference over that of ``b``, all parameters together, in double precision."""
    apart = size = 0.0
    for k in b:
        for x, y in zip(a[k], b[k], strict=True):
            apart += float((x.double() - y.double()).square().sum())
            size += float(y.double().square().sum())
    return (apart / size) ** 0.5
