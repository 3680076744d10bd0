"""What one transformer block keeps for its backward, tensor by tensor, and what recomputing it costs.

The counting of Korthikanti et al. 2022 (arXiv 2205.05198), sections 4 and 5: every operation keeps its inputs, in
``activation_bytes`` a number, and every dropout a mask of one byte a number. For a GPT block that is
sbh(34 + 5as/h) bytes, with s tokens, b sequences, hidden size h and a heads; t tensor-parallel devices hold
sbh(10 + 24/t + 5as/(ht)) each, and a t-th of everything with sequence parallelism.

Blocks that are not GPT's are counted by the same rule: fewer key/value heads keep smaller keys and values, SwiGLU
keeps four tensors of ffn_size (gate, its activation, up, their product; a fused kernel keeps three) where GELU keeps
two. Mixtures of experts are refused: what their routing keeps depends on the implementation.
"""

from __future__ import annotations

from pplab.model import TransformerModel
from pplab.presets import check_whole

RECOMPUTE = ("none", "selective", "full", "stage")
_SCORES = ("softmax output", "softmax dropout mask", "softmax dropout output")


def layer_tensors(
    model: TransformerModel,
    micro_batch_size: int = 1,
    seq_len: int | None = None,
    *,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    activation_bytes: int = 2,
    dropout: bool = True,
) -> dict[str, float]:
    """What one block keeps of one micro-batch on each of its tensor_parallel devices: tensor → bytes.

    seq_len : the model's unless given. activation_bytes : of a number, 2 for bf16; masks take 1. dropout : GPT's three
    in a block; without, as Llama and its kin are trained, a GPT block keeps sbh(32 + 2as/h).
    sequence_parallel : the tensors outside attention and feed-forward are shared out too.

    Raises
    ------
    ValueError : sizes that are no whole number of 1 or more, or do not divide (the message names the nearest that
        do); a mixture of experts.

    Korthikanti et al. 2022 (arXiv 2205.05198), sections 4.1 and 4.2.
    """
    seq_len = model.seq_len if seq_len is None else seq_len
    check_whole(micro_batch_size=micro_batch_size, seq_len=seq_len, activation_bytes=activation_bytes)
    check_shares(model, tensor_parallel, seq_len if sequence_parallel else None)
    tokens, h, f = int(micro_batch_size) * int(seq_len), model.hidden_size, model.ffn_size
    kv, scores = h // model.num_heads * model.num_kv_heads, model.num_heads * int(seq_len)
    inside = ("activation input",) if model.activation == "gelu" else ("gate", "activated gate", "up")
    whole = {"norm inputs": 2 * h, "query, key and value input": h, "feed-forward input": h}
    shared = {"queries": h, "keys": kv, "values": kv, "softmax output": scores}
    shared |= {"softmax dropout output": scores} if dropout else {}
    shared |= {"output projection input": h, **dict.fromkeys((*inside, "last projection input"), f)}
    masks = {"attention dropout mask": h, "feed-forward dropout mask": h} if dropout else {}
    t = int(tensor_parallel)
    ends = tokens / t if sequence_parallel else float(tokens)
    out = {name: ends * activation_bytes * size for name, size in whole.items()}
    out |= {name: tokens * activation_bytes * size / t for name, size in shared.items()}
    out |= {name: ends * size for name, size in masks.items()}
    return out | ({"softmax dropout mask": tokens * scores / t} if dropout else {})


def layer_activation_bytes(
    model: TransformerModel,
    micro_batch_size: int = 1,
    seq_len: int | None = None,
    *,
    recompute: str = "none",
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    activation_bytes: int = 2,
    dropout: bool = True,
) -> float:
    """Bytes that one block keeps of one micro-batch, from its forward to its backward, on each tensor-parallel device.

    recompute : "none", everything, sbh(34 + 5as/h) for a GPT block; "selective", all but what attention makes of its
        scores, 34sbh; "full", its input, 2sbh. With "stage" only the first block of a stage keeps its input.

    Other arguments, and what is counted where a block is not GPT's, as in ``layer_tensors``, which lists the tensors.
    Raises ValueError as it does, and for an unknown recompute. Korthikanti et al. 2022, equations 1 to 6.
    """
    check_recompute(recompute)
    kept = layer_tensors(
        model, micro_batch_size, seq_len, tensor_parallel=tensor_parallel, sequence_parallel=sequence_parallel,
        activation_bytes=activation_bytes, dropout=dropout,
    )  # fmt: skip
    if recompute in ("full", "stage"):
        return kept["norm inputs"] / 2  # two norms; the input of the first is the block's
    return sum(size for name, size in kept.items() if recompute == "none" or name not in _SCORES)


def weight_pass_bytes(
    model: TransformerModel,
    micro_batch_size: int = 1,
    seq_len: int | None = None,
    *,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    activation_bytes: int = 2,
) -> float:
    """Bytes that one block needs between I and W: what goes into its matrices, and the gradients of what comes out.

    32sbh for a GPT block, M_W of Qi et al. 2024 (Zero Bubble, arXiv 2401.10241), section 2.3; on each tensor-parallel
    device. Arguments and errors as in ``layer_tensors``.
    """
    kept = layer_tensors(
        model, micro_batch_size, seq_len, tensor_parallel=tensor_parallel, sequence_parallel=sequence_parallel,
        activation_bytes=activation_bytes, dropout=False,
    )  # fmt: skip
    inputs = ("query, key and value input", "output projection input", "feed-forward input", "last projection input")
    grown = ("queries", "keys", "values", "activation input", "gate", "up")  # their gradients are as large as they are
    at_ends = kept["norm inputs"]  # gradients of both blocks' ends, h wide: output projection and last projection
    return at_ends + sum(kept.get(name, 0.0) for name in (*inputs, *grown))


def recompute_flops(
    model: TransformerModel, micro_batch_size: int = 1, seq_len: int | None = None, *, recompute: str = "full"
) -> int:
    """FLOPs that one block's backward runs again: none, its attention over scores, or all of its forward pass.

    "full" and "stage" add a forward, a third of a step where a backward takes two of them (the chapter's 33%).
    Raises ValueError for an unknown recompute or sizes that make no sense.
    """
    check_recompute(recompute)
    parts = model.block_flops(micro_batch_size, seq_len)
    return {"none": 0, "selective": parts["scores"]}.get(recompute, sum(parts.values()))


def check_recompute(recompute: str) -> None:
    """Raise ValueError, listing the known, for a recompute that is not."""
    if recompute not in RECOMPUTE:
        raise ValueError(f"recompute is {recompute!r:.40}: choose one of {', '.join(map(repr, RECOMPUTE))}")


def check_shares(model: TransformerModel, tensor_parallel: int, seq_len: int | None = None) -> None:
    """Raise ValueError unless a block, and a sequence where its length is given, cuts evenly for tensor parallelism."""
    check_whole(tensor_parallel=tensor_parallel)
    if model.num_experts > 1:
        raise ValueError(
            f"{model.name or 'the model'} has {model.num_experts} experts a block: the activations that their routing "
            "keeps depend on the implementation and are not counted here; give a model with num_experts=1"
        )
    sizes = {key: getattr(model, key) for key in ("num_heads", "num_kv_heads", "ffn_size")}
    for name, size in (sizes | ({} if seq_len is None else {"seq_len": int(seq_len)})).items():
        if size % tensor_parallel:
            near = " or ".join(map(str, _nearest_divisors(size, int(tensor_parallel))))
            raise ValueError(
                f"{name} {size} is not a multiple of tensor_parallel {tensor_parallel}: each device takes an equal "
                f"share of it; the nearest tensor_parallel that divides it is {near}"
            )


def _nearest_divisors(size: int, wanted: int) -> list[int]:
    """The largest divisor below and the smallest above, where there are any."""
    below = next(k for k in range(min(wanted, size), 0, -1) if size % k == 0)
    above = next((k for k in range(wanted, size + 1) if size % k == 0), below)
    return sorted({below, above})
