"""The models that the ranks compute, in PyTorch: built stage by stage, the same on every rank from one seed."""

from __future__ import annotations

import importlib

import numpy as np
import torch
from torch import nn

from pplab.distributed.workloads import Emulated, Transformer, Workload

IGNORE = -100  # the target of a token that does not count


class Block(nn.Module):
    """A pre-norm decoder layer: causal attention, then a feed-forward part of four times the width."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(hidden) for _ in range(2)])
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x and its result: (samples, tokens, hidden)."""
        b, t, h = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, h))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


class TinyBlock(nn.Module):
    """A layer that costs next to nothing, for passes that sleep."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x and its result: (samples, tokens, hidden)."""
        return x + torch.tanh(self.linear(x))


class Embedding(nn.Module):
    """Tokens and their places as vectors."""

    def __init__(self, vocab: int, tokens: int, hidden: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocab, hidden), nn.Parameter(torch.zeros(tokens, hidden))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(samples, tokens) → (samples, tokens, hidden)."""
        return self.token(tokens) + self.place


class Model:
    """What a rank needs to know of a model; a class of your own may change ``stage``, ``batch`` and ``boundary``.

    Stages are built one by one, each from its own seed, so that every rank builds only its own and yet all
    agree with the one process that the gradients are held against.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        tiny = Transformer(
            layers=1, hidden_size=8, num_heads=1, seq_len=4, micro_batch_size=2, vocab_size=16, seed=workload.seed
        )
        self.sizes = workload if isinstance(workload, Transformer) else tiny

    def layers(self, stage: int, num_stages: int) -> list[nn.Module]:
        """The layers between embedding and head that a stage holds."""
        s = self.sizes
        if isinstance(self.workload, Emulated):
            return [TinyBlock(s.hidden_size)]
        count = len(np.array_split(np.arange(s.layers), num_stages)[stage])
        return [Block(s.hidden_size, s.num_heads) for _ in range(count)]

    def stage(self, stage: int, num_stages: int) -> nn.Module:
        """The module of one stage."""
        s = self.sizes
        torch.manual_seed(1000 * s.seed + stage)
        parts = self.layers(stage, num_stages)
        if stage == 0:
            parts.insert(0, Embedding(s.vocab_size, s.seq_len, s.hidden_size))
        if stage == num_stages - 1:
            parts += [nn.LayerNorm(s.hidden_size), nn.Linear(s.hidden_size, s.vocab_size)]
        return nn.Sequential(*parts)

    def batch(self, num_microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and targets of the whole batch, (samples, tokens); sequences end at different places."""
        s, samples = self.sizes, num_microbatches * self.sizes.micro_batch_size
        generator = torch.Generator().manual_seed(s.seed)
        tokens = torch.randint(s.vocab_size, (samples, s.seq_len + 1), generator=generator)
        lengths = torch.randint(1, s.seq_len + 1, (samples, 1), generator=generator)
        targets = tokens[:, 1:].masked_fill(torch.arange(s.seq_len) >= lengths, IGNORE)
        return tokens[:, :-1].contiguous(), targets

    def boundary(self, stage: int, num_stages: int) -> torch.Tensor:
        """What goes into a stage for one micro-batch (``stage = num_stages``: what comes out of the last), as zeros."""
        s = self.sizes
        if stage == 0:
            return torch.zeros(s.micro_batch_size, s.seq_len, dtype=torch.long)
        width = s.vocab_size if stage == num_stages else s.hidden_size
        return torch.zeros(s.micro_batch_size, s.seq_len, width, requires_grad=True)

    def loss(self, output: torch.Tensor, target: torch.Tensor, counted: int) -> torch.Tensor:
        """A micro-batch's share of the loss: its sum, over the ``counted`` tokens of the whole batch for the mean.

        A mean of the micro-batches' own means would weigh a token by how many its micro-batch masks.
        """
        flat = output.flatten(0, 1), target.flatten()
        total = nn.functional.cross_entropy(*flat, ignore_index=IGNORE, reduction="sum")
        return total / counted if self.workload.loss == "mean" else total


def build_model(workload: Workload) -> Model:
    """The model of a workload, or the class of the reader's own that it names."""
    name = getattr(workload, "model", None)
    if not name:
        return Model(workload)
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)(workload)


def check_boundaries(model: Model, num_stages: int, num_microbatches: int) -> None:
    """Run every micro-batch through all stages; raises ValueError where a boundary tensor is not what is promised.

    PyTorch's runtime receives into buffers of the promised shape: another size ends the process or passes
    unnoticed, another type gives garbage.
    """
    batch, targets = model.batch(num_microbatches)
    if len(batch) != len(targets) or len(batch) % num_microbatches:
        raise ValueError(
            f"the batch has {len(batch)} samples and {len(targets)} targets, for {num_microbatches} micro-batches: "
            "give as many targets as samples, a multiple of the micro-batches"
        )
    stages = [model.stage(k, num_stages) for k in range(num_stages)]
    for m, x in enumerate(batch.chunk(num_microbatches)):
        for k, stage in enumerate(stages):
            with torch.no_grad():
                x = stage(x)
            where = f"stage {k} gives for micro-batch {m}"
            promised = model.boundary(k + 1, num_stages)
            if not isinstance(x, torch.Tensor):
                raise ValueError(f"{where} a {type(x).__name__}, not one tensor: return a tensor from its forward")
            if (x.shape, x.dtype) != (promised.shape, promised.dtype):
                raise ValueError(
                    f"{where} {tuple(x.shape)} {x.dtype}, where {tuple(promised.shape)} {promised.dtype} is promised: "
                    "what crosses a boundary must have one shape and type, the same for every micro-batch"
                )
            if not x.is_contiguous():
                raise ValueError(f"{where} a tensor that is not contiguous: end its forward with .contiguous()")
