"""TransformerModel: parameters, forward FLOPs and boundary bytes of each layer, and presets with their sources.

A FLOP is one addition or one multiplication, so a product of (n, k) and (k, m) matrices takes 2·n·k·m. Attention is
counted as SC'21 counts it: every token against every token. A causal kernel may skip half of the scores; no halving
is applied here. Norms, activations, softmax and biases are left out of FLOPs (not out of parameters): they are tiny.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pplab.presets import Presets, check_whole

_CHOICES: dict[str, tuple[object, ...]] = {
    "activation": ("gelu", "swiglu"), "norm": ("layernorm", "rmsnorm"), "positions": ("learned", "rotary"),
    "tied_head": (True, False), "biases": (True, False),
}  # fmt: skip
_SIZES = ("num_layers", "hidden_size", "num_heads", "vocab_size", "seq_len", "num_kv_heads", "ffn_size", "num_experts",
          "experts_per_token")  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """One layer of a model and what a forward pass over one micro-batch asks of it.

    kind : "embedding", "block" or "head".
    parameters : its own. A tied head has none but its norm; ``shared_parameters`` counts the embedding's matrix
        that it reads, of which a stage apart from the embedding's must keep a copy.
    forward_flops : FLOPs of the forward pass.
    bytes_moved : the least that memory must carry: weights that are used, read once; input read, output written
        once. The embedding reads only the rows of its tokens.
    boundary_bytes : the tensor that crosses a cut right after it, B · T · H · bytes_per_element; 0 for the head.
    """

    name: str
    kind: str
    parameters: int
    forward_flops: int
    bytes_moved: int
    boundary_bytes: int
    shared_parameters: int = 0


@dataclass(frozen=True)
class TransformerModel:
    """A decoder-only transformer: embedding, equal blocks, head (final norm and logits).

    Parameters
    ----------
    num_layers, hidden_size, num_heads, vocab_size, seq_len : L, H, attention heads, vocabulary, tokens a sequence.
    num_kv_heads : key/value heads, fewer than num_heads in grouped-query attention; num_heads unless given.
    ffn_size : width of the feed-forward part; 4 · hidden_size unless given.
    activation : "gelu" (two matrices) or "swiglu" (three).
    tied_head : the logits use the embedding's matrix, so it is counted once.
    biases : linear layers have biases. Neither the head nor a router ever has.
    norm : "layernorm" (weight and bias) or "rmsnorm" (weight); two a block and a final one.
    positions : "learned" (a table of seq_len rows) or "rotary" (no parameters).
    num_experts, experts_per_token : feed-forward parts of a block, and how many of them a token uses.
    name, source : what the model is called, and where its sizes are published.

    Raises
    ------
    ValueError : a size that is no whole number of 1 or more, heads that do not divide, an unknown choice.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    vocab_size: int
    seq_len: int
    num_kv_heads: int = None  # type: ignore[assignment]  # num_heads, once built
    ffn_size: int = None  # type: ignore[assignment]  # 4 · hidden_size, once built
    activation: str = "gelu"
    tied_head: bool = True
    biases: bool = True
    norm: str = "layernorm"
    positions: str = "learned"
    num_experts: int = 1
    experts_per_token: int = 1
    name: str = ""
    source: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        check_whole(hidden_size=self.hidden_size, num_heads=self.num_heads)
        for key, value in (("num_kv_heads", self.num_heads), ("ffn_size", 4 * self.hidden_size)):
            if getattr(self, key) is None:
                object.__setattr__(self, key, value)
        check_whole(**{key: getattr(self, key) for key in _SIZES})
        for key in _SIZES:
            object.__setattr__(self, key, int(getattr(self, key)))  # NumPy's integers overflow, Python's do not
        for key, known in _CHOICES.items():
            if getattr(self, key) not in known:
                raise ValueError(f"{key} is {getattr(self, key)!r:.40}: choose {' or '.join(map(repr, known))}")
        self._check_shares()

    def _check_shares(self) -> None:
        for big, small, why in (
            ("hidden_size", "num_heads", "each head takes an equal share of it"),
            ("num_heads", "num_kv_heads", "each key/value head serves equally many heads"),
        ):
            if getattr(self, big) % getattr(self, small):
                raise ValueError(
                    f"{big} {getattr(self, big)} is not a multiple of {small} {getattr(self, small)}: {why}; change one"
                )
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                f"experts_per_token is {self.experts_per_token}, but a block has {self.num_experts} experts: "
                f"give at most {self.num_experts}, or more num_experts"
            )

    @property
    def _weights(self) -> dict[str, int]:
        """Entries of the matrices in one block: attention's, one expert's, the router's."""
        matrices = 3 if self.activation == "swiglu" else 2
        return {
            "attention": 2 * self.hidden_size * (self.hidden_size + self._kv_size),
            "expert": matrices * self.hidden_size * self.ffn_size,
            "router": self.hidden_size * self.num_experts if self.num_experts > 1 else 0,
        }

    @property
    def _kv_size(self) -> int:
        return self.hidden_size // self.num_heads * self.num_kv_heads

    @property
    def _expert_parameters(self) -> int:
        biases = (2 if self.activation == "swiglu" else 1) * self.ffn_size + self.hidden_size
        return self._weights["expert"] + self.biases * biases

    @property
    def _norm_parameters(self) -> int:
        return self.hidden_size * (2 if self.norm == "layernorm" else 1)

    @property
    def block_parameters(self) -> int:
        """Parameters of one block, all experts included."""
        attention = self._weights["attention"] + self.biases * 2 * (self.hidden_size + self._kv_size)
        experts = self.num_experts * self._expert_parameters + self._weights["router"]
        return attention + experts + 2 * self._norm_parameters

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding: V · H, and T · H more where positions are learned."""
        return self.hidden_size * (self.vocab_size + (self.seq_len if self.positions == "learned" else 0))

    @property
    def head_parameters(self) -> int:
        """The head's own parameters: the final norm, and V · H more unless tied."""
        return self._norm_parameters + (0 if self.tied_head else self.vocab_size * self.hidden_size)

    @property
    def parameters(self) -> int:
        """All parameters, a tied matrix once: P = 12LH²(1 + 13/(12H) + (V+T)/(12LH)) + final norm for a GPT.

        Narayanan et al. 2021 (arXiv 2104.04473), eq. 2, leaves the final norm out.
        """
        return self.embedding_parameters + self.num_layers * self.block_parameters + self.head_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses: all but the experts that it is not routed to."""
        idle = self.num_experts - self.experts_per_token
        return self.parameters - self.num_layers * idle * self._expert_parameters

    def _shape(self, micro_batch_size: int, seq_len: int | None) -> tuple[int, int]:
        seq_len = self.seq_len if seq_len is None else seq_len
        check_whole(micro_batch_size=micro_batch_size, seq_len=seq_len)
        return int(micro_batch_size), int(seq_len)

    def block_flops(self, micro_batch_size: int = 1, seq_len: int | None = None) -> dict[str, int]:
        """Forward FLOPs of one block by part; for a GPT they add up to 24·B·T·H²(1 + T/(6H)).

        Keys: projections (linear in T), scores (quadratic in T), feed_forward, router. Narayanan et al. 2021, appendix.
        """
        b, t = self._shape(micro_batch_size, seq_len)
        return {
            "projections": 2 * b * t * self._weights["attention"],
            "scores": 4 * b * t * t * self.hidden_size,
            "feed_forward": 2 * b * t * self._weights["expert"] * self.experts_per_token,
            "router": 2 * b * t * self._weights["router"],
        }

    def head_flops(self, micro_batch_size: int = 1, seq_len: int | None = None) -> int:
        """Forward FLOPs of the logits, 2·B·T·H·V."""
        b, t = self._shape(micro_batch_size, seq_len)
        return 2 * b * t * self.hidden_size * self.vocab_size

    def attention_share(self, seq_len: int | None = None) -> float:
        """Share of a block's FLOPs that attention takes, projections and scores; it nears 1 as T grows."""
        parts = self.block_flops(1, seq_len)
        return (parts["projections"] + parts["scores"]) / sum(parts.values())

    def head_in_blocks(self, seq_len: int | None = None) -> float:
        """How many blocks the head costs, in FLOPs.

        The usual figures, 0.35 for GPT-3 and 2.4 for Llama-3 8B, leave scores out, which ``seq_len=1`` comes to.
        """
        return self.head_flops(1, seq_len) / sum(self.block_flops(1, seq_len).values())

    def iteration_flops(self, batch_size: int, seq_len: int | None = None, recompute: bool = True) -> int:
        """FLOPs of a training step on batch_size sequences: 96·B·T·L·H²(1 + T/(6H) + V/(16LH)) for a GPT.

        A backward costs two forwards; with ``recompute`` the blocks, not the head, run forward once more.
        Narayanan et al. 2021 (arXiv 2104.04473), eq. 3.
        """
        blocks = self.num_layers * sum(self.block_flops(batch_size, seq_len).values())
        return (4 if recompute else 3) * blocks + 3 * self.head_flops(batch_size, seq_len)

    def layers(
        self, micro_batch_size: int = 1, seq_len: int | None = None, bytes_per_element: int = 2
    ) -> tuple[Layer, ...]:
        """The embedding, each block and the head, num_layers + 2 in all, for one micro-batch.

        bytes_per_element : bytes of a weight and of an activation, 2 for bf16.
        """
        b, t = self._shape(micro_batch_size, seq_len)
        check_whole(bytes_per_element=bytes_per_element)
        size = int(bytes_per_element)
        edge, matrix = b * t * self.hidden_size * size, self.vocab_size * self.hidden_size
        positions = t * self.hidden_size * size if self.positions == "learned" else 0
        unused = max(0, self.num_experts - b * t * self.experts_per_token) * self._expert_parameters
        read = (self.block_parameters - unused) * size
        block: dict[str, Any] = dict(kind="block", parameters=self.block_parameters, boundary_bytes=edge)
        block |= dict(forward_flops=sum(self.block_flops(b, t).values()), bytes_moved=read + 2 * edge)
        head_bytes = (matrix + self._norm_parameters + b * t * self.vocab_size) * size + edge
        shared = matrix if self.tied_head else 0
        return (
            Layer("embedding", "embedding", self.embedding_parameters, 0, 2 * edge + positions, edge),
            *(Layer(f"block {k}", **block) for k in range(self.num_layers)),
            Layer("head", "head", self.head_parameters, self.head_flops(b, t), head_bytes, 0, shared),
        )


def _gpt(name: str, sizes: tuple[int, int, int], source: str) -> TransformerModel:
    """``sizes``: layers, hidden, heads."""
    source += "; vocabulary padded to 51,200 as in SC'21"
    return TransformerModel(*sizes, vocab_size=51_200, seq_len=2048, name=name, source=source)


def _llama(name: str, sizes: tuple[int, int, int, int, int, int, int], source: str, **more: int) -> TransformerModel:
    """``sizes``: layers, hidden, heads, key/value heads, feed-forward width, vocabulary, tokens."""
    layers, hidden, heads, kv, ffn, vocab, tokens = sizes
    return TransformerModel(
        layers, hidden, heads, vocab, tokens, kv, ffn, activation="swiglu", tied_head=False, biases=False,
        norm="rmsnorm", positions="rotary", name=name, source=source, **more,
    )  # fmt: skip


_SC21 = "Narayanan et al. 2021 (SC'21, arXiv 2104.04473), Table 1"
_LLAMA_2 = "Touvron et al. 2023 (arXiv 2307.09288); sizes in the released configuration"
_LLAMA_3 = "Llama Team 2024 (arXiv 2407.21783), Table 3"
_MIXTRAL = "Jiang et al. 2024 (arXiv 2401.04088), Table 1"

MODELS: Presets[TransformerModel] = Presets(
    "model",
    [
        _gpt("GPT-3 175B", (96, 12288, 96), "Brown et al. 2020 (arXiv 2005.14165), Table 2.1"),
        _gpt("GPT 22B", (48, 6144, 64), "Korthikanti et al. 2022 (arXiv 2205.05198), Table 3"),
        _gpt("GPT 530B", (105, 20480, 128), _SC21),
        _gpt("GPT 1T", (128, 25600, 160), _SC21),
        _llama("Llama-2 7B", (32, 4096, 32, 32, 11008, 32_000, 4096), _LLAMA_2),
        _llama("Llama-2 70B", (80, 8192, 64, 8, 28672, 32_000, 4096), _LLAMA_2),
        _llama("Llama-3 8B", (32, 4096, 32, 8, 14336, 128_256, 8192), _LLAMA_3),
        _llama("Llama-3 70B", (80, 8192, 64, 8, 28672, 128_256, 8192), _LLAMA_3),
        _llama("Llama-3 405B", (126, 16384, 128, 8, 53248, 128_256, 8192), _LLAMA_3),
        _llama("Mixtral 8x7B", (32, 4096, 32, 8, 14336, 32_000, 32_768), _MIXTRAL, num_experts=8, experts_per_token=2),
    ],
)
