"""key_numbers: against GPipe's closed form, the chapter's message, and the functions that it is made of."""

import numpy as np
import pytest

import pplab
from pplab.hardware import ACCELERATORS, LINKS
from pplab.key_numbers import key_numbers
from pplab.memory import estimate_memory
from pplab.model import MODELS

GPT = MODELS["GPT-3 175B"]


def test_gpipe_is_its_closed_form():
    """Σ(F + B) + 2 Σ hop + (M − 1)(max F + max B), blocks shared out evenly and the head on the last of D = 4."""
    numbers = key_numbers(GPT, "A100 80GB", "InfiniBand HDR", "gpipe", 4, 6, 2, recompute="none")
    per_second = 312e12 * 0.5
    forward = np.full(4, 24 * sum(GPT.block_flops(2, 2048).values()) / per_second)
    forward[-1] += GPT.head_flops(2, 2048) / per_second
    hop = LINKS["InfiniBand HDR"].time(2 * 2048 * 12288 * 2)
    whole = 3 * forward.sum() + 2 * 3 * hop + 5 * 3 * forward.max()
    assert numbers.seconds == pytest.approx(whole)
    assert numbers.bubble == pytest.approx(1 - 6 * 3 * forward.sum() / (4 * whole))
    assert numbers.hop_share == pytest.approx(6 * hop / whole)


def test_messages_are_the_chapters():
    """201,326,592 bytes each (B = 4); 2M · (VD − 1) of them, 2.14 times as many with V = 2 (E13)."""
    one, two = (
        key_numbers(GPT, "A100 80GB", "InfiniBand HDR", name, 8, 16, 4, v)
        for name, v in (("1f1b", 1), ("interleaved-1f1b", 2))
    )
    assert one.message_bytes == two.message_bytes == 201_326_592
    assert one.messages.sum() == 2 * 16 * 7
    assert two.messages.sum() == 2 * 16 * 15
    assert one.messages.tolist() == [16, *[32] * 6, 16]
    assert two.sent_bytes[3] == 2 * one.sent_bytes[3] == 4 * 16 * 201_326_592


def test_memory_is_estimate_memorys_and_room_the_accelerators():
    numbers = key_numbers(GPT, "A100 80GB", "InfiniBand HDR", "1f1b", 8, 16, tensor_parallel=8)
    expected = estimate_memory(
        GPT, pplab.one_f_one_b(8, 16), tensor_parallel=8, sequence_parallel=True, recompute="selective"
    )
    assert numbers.memory.tolist() == expected.total.tolist()
    assert numbers.room == ACCELERATORS["A100 80GB"].memory_bytes


def test_it_says_so_in_text_and_in_html():
    numbers = key_numbers("Llama-3 8B", "A100 80GB", "Ethernet 100", "interleaved-1f1b", 4, 8, 1, 2, seq_len=2048)
    assert str(numbers).splitlines()[0] == (
        "Llama-3 8B on 4 A100 80GB over Ethernet 100: interleaved-1f1b, D = 4, M = 8, B = 1, V = 2"
    )
    for words in numbers.lines().values():
        assert words in str(numbers)
        assert words in numbers._repr_html_()
    assert numbers.lines()["messages"].startswith("112 in all; device 1 sends 32 of 16.78 MB")
    assert numbers._repr_html_().count("<tr>") == 4


def test_too_much_is_said():
    numbers = key_numbers(GPT, "A100 80GB", "InfiniBand HDR", "1f1b", 8, 16)
    assert numbers.memory.max() > numbers.room
    assert "of 80 GB, too much" in str(numbers)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"schedule": "1f2b"}, "schedule is '1f2b': choose one of naive"),
        ({"num_devices": 7}, "96 blocks do not share out evenly over 7 stages"),
        ({"num_chunks": 2}, "num_chunks can only be 1"),
        ({"micro_batch_size": 0}, "micro_batch_size is 0"),
        ({"model": "GPT-9"}, "GPT-9"),
        ({"link": "string"}, "string"),
        ({"accelerator": "abacus"}, "abacus"),
        ({"efficiency": 0}, "efficiency is 0"),
    ],
)
def test_what_makes_no_sense_is_named(changed, says):
    given = dict(
        model="GPT-3 175B", accelerator="A100 80GB", link="InfiniBand HDR", schedule="1f1b", num_devices=8,
        num_microbatches=16,
    )  # fmt: skip
    with pytest.raises((ValueError, LookupError), match=says):
        key_numbers(**given | changed)
