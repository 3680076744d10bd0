"""What each pass of each stage takes and gives back, in bytes, and the most that a device holds at once.

A change has three parts: activations (of blocks, with the mask of the embedding's dropout), logits (with the inputs
of the head and of the final norm), temporary (activations that a backward computes again). F takes what is kept for
the backward; B, or I, takes what it recomputes; B, or W, gives all of it back at its end::

            start            end
    F       + kept
    B       + recomputed     − kept − recomputed
    I       + recomputed     − kept − recomputed + left     left: what W has to wait with
    W                        − left
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pplab.activations import check_recompute, layer_activation_bytes, layer_tensors, weight_pass_bytes
from pplab.model import TransformerModel
from pplab.schedule import Schedule

_KINDS = "FBIW"


def held_changes(
    model: TransformerModel,
    sizes: Sequence[int],
    recompute: str,
    dropout: bool,
    logits_bytes: int,
    input_frees: bool,
    shape: dict[str, Any],
) -> np.ndarray:
    """Bytes that an op adds, (4 kinds, start or end, num_stages, 3 parts); kinds in the order F, B, I, W.

    sizes : layers of each stage, embedding and head included. shape : the arguments of ``layer_tensors`` but dropout.
    """
    blocks = np.array(sizes)
    blocks[0] -= 1
    blocks[-1] -= 1
    mask, head = _ends(model, dropout, logits_bytes, shape)
    kept, again, again_apart = np.zeros((3, len(sizes), 3))
    kept[:, 0], again[:, 2], again_apart[:, 2] = _of_blocks(model, blocks, recompute, dropout, shape)
    kept[0, 0] += mask
    kept[-1, 1] = head
    left = kept + (0 if recompute == "selective" else again_apart)
    if input_frees:
        left = np.zeros_like(kept)
        left[:, 0] = blocks * weight_pass_bytes(model, **shape)
        left[:, 1] = kept[:, 1]
    nothing = np.zeros_like(kept)
    return np.array(
        [[kept, nothing], [again, -kept - again], [again_apart, left - kept - again_apart], [nothing, -left]]
    )


def _of_blocks(
    model: TransformerModel, blocks: np.ndarray, recompute: str, dropout: bool, shape: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes of stages with so many blocks: kept, recomputed at once by B, and by I, whose work W needs as well."""
    check_recompute(recompute)
    whole, one = (layer_activation_bytes(model, recompute=r, dropout=dropout, **shape) for r in ("none", recompute))
    some = (blocks > 0).astype(int)
    if recompute == "stage":
        every = blocks * whole - some * one
        return some * one, every, every
    at_once = some * (whole - one)  # block by block: as one has gone backward, the next is computed
    return blocks * one, at_once, blocks * (whole - one) if recompute == "full" else at_once


def _ends(model: TransformerModel, dropout: bool, logits_bytes: int, shape: dict[str, Any]) -> tuple[float, float]:
    """Bytes that the embedding and the head keep of a micro-batch: a mask, sbh; 4sbV/t and, of the norm, 4sbh."""
    norms = layer_tensors(model, dropout=dropout, **shape)["norm inputs"]  # two tensors of the block's width
    tokens = shape["micro_batch_size"] * (model.seq_len if shape["seq_len"] is None else shape["seq_len"])
    logits = logits_bytes * tokens * model.vocab_size / shape["tensor_parallel"]
    return dropout * norms / (2 * shape["activation_bytes"]), logits + norms


def changes_of_ops(s: Schedule, changes: np.ndarray) -> np.ndarray:
    """What each op adds at its start and at its end, (2, num_ops, 3)."""
    kind = np.argmax([s.is_kind(k) for k in _KINDS], axis=0)
    return changes[kind, :, s.stage].swapaxes(0, 1)


def peaks(s: Schedule, changes: np.ndarray) -> np.ndarray:
    """What each device holds at the first moment at which it holds most, (3, num_devices).

    Counted along the row, so no times are needed: one op, or pair, gives back before the next one takes.
    """
    lead = np.flatnonzero(~np.r_[False, s.paired[:-1]])
    start, end = np.add.reduceat(changes_of_ops(s, changes), lead, axis=1)
    after = np.cumsum(start + end, axis=0)
    during = after - end
    out = []
    for a, b in zip(s.nodes.first[:-1], s.nodes.first[1:], strict=True):
        before = after[a - 1] if a else 0
        most = a + int(np.argmax(during[a:b].sum(axis=1)))
        out.append(during[most] - before)
    return np.array(out).T
