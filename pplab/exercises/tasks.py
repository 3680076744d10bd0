"""The exercises of the notebooks, in their order."""

from __future__ import annotations

from collections.abc import Callable

from pplab.asynchronous import versions_met
from pplab.chapter import message_bytes
from pplab.costs import Costs
from pplab.exercises.kinds import Cut, Function, Number, RealRun, Rows
from pplab.hardware import ACCELERATORS, layer_times
from pplab.metrics import bubble_fraction, makespan, messages_sent, peak_in_flight
from pplab.model import MODELS
from pplab.partition import optimal
from pplab.schedules import SCHEDULES
from pplab.simulate import simulate

_SIZES = [(4, 1), (4, 8), (2, 3), (8, 64), (5, 2)]


def _step_time(num_devices: int, num_microbatches: int, name: str = "1f1b") -> float:
    return makespan(simulate(SCHEDULES[name](num_devices, num_microbatches)))


def _bubble(num_devices: int, num_microbatches: int) -> float:
    return bubble_fraction(simulate(SCHEDULES["gpipe"](num_devices, num_microbatches)))


def _held(name: str) -> Callable[[int, int, int], float]:
    return lambda d, m, k: float(peak_in_flight(simulate(SCHEDULES[name](d, m)))[k])


def _idle_zb_h1(num_devices: int, forward: float, backward_input: float, backward_weight: float) -> float:
    m = 2 * num_devices
    t = simulate(SCHEDULES["zb-h1"](num_devices, m), Costs(forward, backward_input, backward_weight))
    spans = [t.end[a:b].max() - t.start[a:b].min() for a, b in t.schedule.row_slices]
    return float(max(spans)) - m * (forward + backward_input + backward_weight)


_PLACES = [(4, 8, 0), (4, 8, 3), (4, 2, 0), (4, 2, 1), (4, 2, 2), (8, 64, 2), (3, 3, 1)]
TASKS: dict[str, Number | Function | Rows | RealRun | Cut] = {
    "first-start": Number(
        lambda: float(simulate(SCHEDULES["gpipe"](4, 8)).start[SCHEDULES["gpipe"](4, 8).find("3F0")]),
        "The first micro-batch passes three devices before it reaches device 3, one slot each.",
        "Follow micro-batch 0 from device to device: each forward takes one slot.",
        {4: "that is when device 3 has finished its first forward. When did it start?", 1: "that is device 1."},
    ),
    "time-saved": Number(
        lambda: _step_time(4, 8, "naive") - _step_time(4, 8),
        "Same work, same devices: only the order changed.",
        "Print pplab.makespan(naive) and pplab.makespan(pipeline), and take one from the other.",
        {33: "that is the time of 1F1B itself. How much less than the naive one is it?", 96: "that is the naive time."},
    ),
    "message-bytes": Function(
        message_bytes,
        [(4, 2048, 12288, 2), (1, 8192, 4096, 2), (2, 512, 1024, 4)],
        "One number for each token and each of H entries of the hidden state.",
        "How many tokens does a micro-batch have, how many numbers does each carry, and how many bytes has a number?",
        {
            lambda b, t, h, size: b * t * h: "that is how many numbers there are. How many bytes?",
            lambda b, t, h, size: t * h * size: "that is one sequence. A micro-batch has more.",
            lambda b, t, h, size: b * t * t * size: "attention scores have T × T entries, but they stay in the stage.",
            lambda b, t, h, size: 2 * b * t * h * size: "one way only: the gradient is a message of its own.",
        },
    ),
    "last-stage": Number(
        lambda: float(_best_llama()[-1] - 1),
        "With the head it is then about as quick as the others.",
        "Count the head in blocks, 1.84. The slowest of the other three has 9: how many fit beside the head?",
        {
            8: "that leaves the head on top of a full share.",
            6: "as quick, but the last stage could take one block more before it becomes the slowest.",
        },
    ),
    "bubble": Function(
        _bubble,
        _SIZES,
        "Your formula equals the simulation on every size tried.",
        "Count one device's idle slots, and divide by the whole step, idle slots included.",
        {
            lambda d, m: (
                (d - 1) / m
            ): "you divide the idle time by the useful time. The bubble is its share of the whole.",
            lambda d, m: 1 - (d - 1) / (m + d - 1): "that is the utilisation; the bubble is the rest.",
            lambda d, m: 100 * (d - 1) / (m + d - 1): "a share from 0 to 1, please, not per cent.",
            lambda d, m: d / (m + d): "off by one: a device waits for the others, not for itself.",
            lambda d, m: (d - 1) / (2 * m + d - 1): "you count the ramp but not the drain, and forwards and backwards.",
            lambda d, m: (
                2 * (d - 1) / (m + 2 * (d - 1))
            ): "you count forwards and backwards while a device waits, but only one of them where it works.",
        },
    ),
    "below-ten-percent": Number(
        lambda: float(next(m for m in range(1, 1000) if _bubble(8, m) < 0.1 - 1e-12)),
        "M > 9(D − 1): for D = 4, 8, 16 that is 28, 64 and 136.",
        "Solve (D − 1)/(M + D − 1) < 0.1 for M, with D = 8.",
        {
            63: "so close: 63 gives 10% exactly, and the question asks for less.",
            71: "you divided the idle time by the useful time alone.",
        },
    ),
    "whole-gradient": Function(
        lambda gradients, sizes: sum(g * n for g, n in zip(gradients, sizes, strict=True)) / sum(sizes),
        [((1.0, 3.0), (2, 2)), ((1.0, 3.0), (3, 1)), ((2.0, -1.0, 4.0), (3, 3, 2)), ((5.0,), (7,))],
        "Each gradient counts by its samples, and equal pieces need no weights.",
        "Turn each mean back into a sum over its samples; add the sums; divide by all samples.",
        {
            lambda gradients, sizes: (
                sum(gradients) / len(gradients)
            ): "right for equal pieces. What if one has 3 and one 1?",
            lambda gradients, sizes: sum(gradients): "that is the sum: as many times too large as there are pieces.",
            lambda gradients, sizes: sum(g * n for g, n in zip(gradients, sizes, strict=True)): (
                "the weighted sum is there; now make it a mean again."
            ),
        },
    ),
    "how-many-microbatches": Number(
        lambda: 1536 / (2 * 8),
        "R · M · B = 8 · 96 · 2 = 1,536.",
        "Solve R · M · B = 1536 for M.",
        {768: "you left out the replicas.", 192: "you left out the micro-batch size."},
    ),
    "gpipe-rows": Rows(
        lambda: SCHEDULES["gpipe"](2, 3),
        "A legal GPipe step, in as few slots as there can be.",
        "It takes 2 devices and 3 micro-batches: all forwards first, then all backwards, on both.",
        forwards_first=True,
    ),
    "recompute-time": Function(
        lambda d, m: (
            makespan(simulate(SCHEDULES["gpipe"](d, m), Costs(forward=1.0, backward=3.0))) / _step_time(d, m, "gpipe")
        ),
        _SIZES,
        "A third more, whatever D and M are: F + B grows from 3 to 4, and the whole step with it.",
        "A backward now takes F + B. What happens to (M + D − 1)(F + B)?",
        {
            lambda d, m: 1.5: "the backward alone grows by a half; the step also has forwards, which stay as they are.",
            lambda d, m: 2.0: "only forwards run twice, and backwards once.",
            lambda d, m: 4 / 3 - 1: "that is what is added; the question asks for the ratio of the two times.",
        },
    ),
    "1f1b-rows": Rows(
        lambda: SCHEDULES["1f1b"](3, 4),
        "Warm up with D − k − 1 forwards, then one forward and one backward in turn, then drain: that is 1F1B.",
        "It takes 3 devices and 4 micro-batches. Device k starts with 2 − k forwards, then takes turns.",
    ),
    "1f1b-held": Function(
        _held("1f1b"),
        _PLACES,
        "min(M, D − k): the first device holds the most, and never more than there are micro-batches.",
        "Device k runs its warm-up and one forward more before its first backward. How many can be open at once?",
        {
            lambda d, m, k: m: "that is GPipe: it holds every micro-batch.",
            lambda d, m, k: d: "that is the bound for the whole pipeline's first device. Later devices hold less.",
            lambda d, m, k: min(m, d) - k: "right for M ≥ D. With D = 4 and M = 2, how many does device 1 hold?",
            lambda d, m, k: d - k: "right while M ≥ D − k. What if there are fewer micro-batches than that?",
            lambda d, m, k: min(
                m, d - k - 1
            ): "off by one: after the warm-up one more forward comes before the first backward.",
        },
    ),
    "stage-states": Number(
        lambda: 16 * 175e9 / 8 / 1e9,
        "More than four devices of 80 GB, for one stage.",
        "Parameters of the stage, times bytes a parameter, in units of 10⁹.",
        {
            16 * 350 / 8: "those GB of weights already hold 2 bytes a parameter. How many parameters are there?",
            16 * 350 / 64: "that divides by 8 twice, and takes GB of weights for the number of parameters.",
            16 * 175: "that is the whole model. A stage has an eighth.",
            14 * 175 / 8: "14 bytes leave the gradients out; the question says 16.",
        },
    ),
    "layers-worth": Function(
        lambda d, m, layers: layers / d * float(peak_in_flight(simulate(SCHEDULES["1f1b"](d, m)))[0]),
        [(8, 16, 96), (4, 64, 96), (16, 16, 96), (8, 4, 96), (4, 1, 8)],
        "With M ≥ D it is L, whatever D is: more devices do not make the first one's activations fewer.",
        "How many layers has its stage, and how many micro-batches does it hold at most?",
        {
            lambda d, m, layers: layers: "right while M ≥ D. And with fewer micro-batches than devices?",
            lambda d, m, layers: layers / d: "that is one micro-batch. How many are in flight?",
            lambda d, m, layers: m * layers / d: "that is GPipe.",
            lambda d, m, layers: m * layers: "that is GPipe, and on all devices together.",
        },
    ),
    "interleaved-bubble": Function(
        lambda d, m, v: bubble_fraction(simulate(SCHEDULES["interleaved-1f1b"](d, m, v))),
        [(4, 8, 2), (4, 4, 4), (8, 16, 2), (8, 13, 3), (2, 5, 1)],
        "The idle time falls V times; its share falls by less, since the step gets shorter too.",
        "A pass of a chunk takes 1/V of a device's pass. How long is the ramp, and how long the work, in those?",
        {
            lambda d, m, v: (d - 1) / (m + d - 1) / v: "the idle time falls V times, but so does not its share: "
            "the whole step gets shorter too.",
            lambda d, m, v: (d - 1) / (v * m): "you divide the idle time by the useful time. The bubble is its share "
            "of the whole.",
            lambda d, m, v: (d - 1) / (m + d - 1): "that is one chunk a device. Where does V come in?",
            lambda d, m, v: (v * d - 1) / (m + v * d - 1): "that is a pipeline of V · D devices. The ramp passes D − 1 "
            "of them, then the next chunk is on a device that is at work already.",
        },
    ),
    "interleaved-messages": Number(
        lambda: float(messages_sent(SCHEDULES["interleaved-1f1b"](6, 12, 3)).sum()),
        "2M(VD − 1): 3.4 times the 120 of 1F1B.",
        "Into how many stages is the model cut, and how many boundaries lie between them?",
        {
            204: "one way only: gradients come back over the same boundaries.",
            432: "18 stages in a row have one boundary less than that.",
            360: "you count 5 boundaries for each round of chunks. And from device 5 back to device 0?",
            120: "that is one chunk a device.",
            17: "those are the boundaries. What crosses each of them in a step?",
        },
    ),
    "slow-last-stage": Number(
        lambda: makespan(simulate(SCHEDULES["gpipe"](2, 8), Costs(forward=[20, 24], backward=[40, 48]))),
        "20 + 8 · 72 + 40: once it has begun, the slow stage never waits.",
        "When can stage 1 begin, how long does it work without a break, and what is left to do when it ends?",
        {
            540: "that is with 20 and 40 ms on both stages, as if none were slower.",
            648: "that is with 24 and 48 ms on both stages. The way in and the way out lead over the quick one.",
            576: "that is stage 1's own work. What comes before it, and what after?",
            596: "and when stage 1 has run its last backward, is the step over?",
            0.636: "in milliseconds, please.",
        },
    ),
    "real-run": RealRun(
        lambda: SCHEDULES["1f1b"](3, 5),
        3,
        "Your own order trained a model on three processes, in the time of the best.",
        "It takes 3 devices with one stage each and 5 micro-batches. Start from 1F1B, or from GPipe, and simulate each "
        "change before you run it.",
    ),
    "three-stages": Cut(
        (3, 1, 1, 2, 2, 1, 1, 4),
        3,
        "5 ms each, a third of the whole: nothing can be better.",
        "Aim for a third of the sum in each, and remember that layers keep their order.",
    ),
    "bandwidth": Number(
        lambda: 201_326_592 / 0.010 / 1e9,
        "That is less than one direction of any NVLink, and a bit less than one InfiniBand HDR link.",
        "Bytes divided by seconds, in units of 10⁹.",
        {
            2 * 201_326_592 / 0.010 / 1e9: "that adds both directions; the question asks for one way.",
            8 * 201_326_592 / 0.010 / 1e9: "those are gigabits; a byte has eight.",
            201_326_592 / 10 / 1e9: "mind the unit: 10 ms are 0.010 s.",
            201_326_592 / 0.010: "in GB/s, please.",
        },
    ),
    "microbatches-of-a-layout": Number(
        lambda: 1536 / (1024 // (8 * 16)) / 2,
        "8 replicas of 128 devices; 192 sequences each; two in a micro-batch.",
        "How many replicas are there? How many sequences does each get?",
        {
            768: "that leaves the replicas out.",
            192: "those are sequences. A micro-batch has two.",
            12: "8 replicas, not 64.",
        },
    ),
    "tensor-group": Function(
        lambda rank, tensor: rank // tensor,
        [(100, 8), (100, 4), (7, 8), (1023, 2), (5, 1)],
        "Neighbours share a group, and so a node.",
        "Ranks 0 to t − 1 are group 0, the next t are group 1.",
        {
            lambda rank, tensor: rank % tensor: "that is the place in the group, not the group.",
            lambda rank, tensor: rank // 8: "that is the node. With t = 4, a node has two groups.",
        },
    ),
    "zero-bubble-idle": Function(
        _idle_zb_h1,
        [(4, 1.0, 1.0, 1.0), (8, 1.0, 1.5, 0.5), (2, 3.0, 2.0, 1.0), (16, 1.0, 1.0, 0.25), (1, 1.0, 1.0, 1.0)],
        "(D − 1)(F + I − W): what a ramp costs, with a W in every gap that it fits.",
        "1F1B idles (D − 1)(F + B). Which part of B is no longer waited for, and what fills the gaps?",
        {
            lambda d, f, i, w: (d - 1) * (f + i + w): "that is 1F1B: every device waits for whole backwards.",
            lambda d, f, i, w: (
                (d - 1) * (f + i)
            ): "nobody waits for a W any more: right. And what do the Ws themselves do?",
            lambda d, f, i, w: (d - 1) * (f + i - 2 * w): "that is ZB-H2, which warms up for twice as long.",
            lambda d, f, i, w: d * (d - 1) * (f + i - w): "D times too much: the question asks for device 0 alone.",
            lambda d, f, i, w: d * (f + i - w): "off by one: a device waits for the others, not for itself.",
        },
    ),
    "zero-bubble-rows": Rows(
        lambda: SCHEDULES["zb-h1"](2, 3),
        "Each device fills its gap with a W that it had kept for it.",
        "It takes 2 devices and 3 micro-batches, with I and W in place of B. Start with 1F1B's order; the later device "
        "keeps one W back.",
    ),
    "version-met": Function(
        lambda d, k, m: float(versions_met(SCHEDULES["pipedream"](d, m + 1))[k, m]),
        [(4, 0, 10), (4, 3, 10), (4, 1, 10), (8, 2, 20), (4, 0, 1), (3, 1, 0)],
        "m − (D − 1 − k), and never below 0: the later the stage, the sooner gradients reach it.",
        "Stage k has D − 1 − k micro-batches out to later stages when this one comes. How many have come back?",
        {
            lambda d, k, m: m: "right on the last stage. The others still wait for some of the gradients before m.",
            lambda d, k, m: max(0, m - (d - 1)): "right on the first stage. Later ones get their gradients sooner.",
            lambda d, k, m: max(
                0, m - k
            ): "the other way round: gradients come from the last stage, and reach it first.",
            lambda d, k, m: max(0, m - (d - k)): "off by one: the last stage, k = D − 1, is up to date.",
            lambda d, k, m: m - (d - 1 - k): "right once the pipeline is full. Which version do the first ones meet?",
        },
    ),
    "stash-bytes": Number(
        lambda: 7 * 2 * 175e9 / 8 / 1e9,
        "Seven times what the stage's own weights take: the price grows with D on the very stage that holds most.",
        "Bytes of one version of a stage, times the versions that stage 0 keeps beside the newest.",
        {
            8 * 43.75: "that counts the newest version, which every schedule keeps. How many are older?",
            43.75: "that is one version: what 2BW would keep. How many older ones does stage 0 need?",
            28 * 43.75: "that is the whole pipeline's. How much of it is on stage 0?",
            7 * 350.0: "350 GB are the whole model. A stage has an eighth of it.",
        },
    ),
    "like-with-like": Number(
        lambda: sum(_held("gpipe")(4, 16, k) for k in range(4)) / sum(_held("1f1b")(4, 16, k) for k in range(4)),
        "64 against 4 + 3 + 2 + 1: more than on the fullest device, less than M.",
        "Add up what GPipe holds on each device, and what 1F1B holds on each; then divide.",
        {
            16: "that sets all four devices of GPipe against a single one of 1F1B.",
            4: "that is the fullest device of each. Later devices hold less under 1F1B.",
            10 / 64: "the other way round: GPipe holds more.",
            64: "that is what GPipe holds. And 1F1B, on all four?",
            10: "that is what 1F1B holds. And GPipe, on all four?",
        },
    ),
    "divided-by-what": Function(
        lambda ratio: ratio / (1 + ratio),
        [(0.25,), (0.75,), (3.0,), (0.0,)],
        "x / (1 + x): three idle for one useful is 75% of the whole.",
        "Take one slot of useful time. How many are idle, and how many are there in all?",
        {
            lambda ratio: ratio: "that is still divided by the useful time. What belongs to the whole besides?",
            lambda ratio: 1 / (1 + ratio): "that is the useful share, the utilisation. The bubble is the rest.",
            lambda ratio: ratio / (1 - ratio): "the other way round: that leads from the share to the ratio.",
            lambda ratio: 1 - ratio: "what if a device idles for longer than it works? A share is never negative.",
            lambda ratio: 100 * ratio / (1 + ratio): "a share from 0 to 1, please, not per cent.",
        },
    ),
}


def _best_llama() -> tuple[int, ...]:
    times = layer_times(MODELS["Llama-3 8B"], ACCELERATORS["A100 80GB"], 1, efficiency=0.5)
    return optimal(times, 4).sizes
