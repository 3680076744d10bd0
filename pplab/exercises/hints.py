"""Notebook → its exercises → a second hint, for who asks: a way to the answer, and never the answer."""

HINTS: dict[str, dict[str, str]] = {
    "00_start_here": {
        "first-start": "put a finger on micro-batch 0 and walk it down the picture. How many forwards, each one slot "
        "long, has it behind it when it enters the last row?",
        "time-saved": "naive and pipeline are two timelines. One call of pplab.makespan tells how long each of them "
        "takes, and the question asks for the difference.",
    },
    "01_stages": {
        "message-bytes": "picture the tensor at the cut: a box whose edges are sequences, tokens and the hidden size. "
        "Count its cells, then think of what a cell is stored in. How many stages there are does not matter.",
        "last-stage": "write down the four stage times, in blocks, for each number that you try: the blocks left over "
        "go to the other three as evenly as they can. Stop at the largest number that leaves the maximum alone.",
    },
    "02_bubbles": {
        "bubble": "with a slot for each pass, one device waits a forward and a backward for every device but itself, "
        "and works a forward and a backward for every micro-batch. What share of the sum is the waiting?",
        "below-ten-percent": "the useful part must be more than 90%: more than nine times the idle part. In units of a "
        "forward and a backward, how large is the idle part with 8 devices? And mind the word 'less'.",
    },
    "03_micro_batches": {
        "whole-gradient": "try two pieces of 3 samples and 1: the gradient of all four leans towards the first. "
        "How much does each sample count, and so each piece? One piece alone must come out as it went in.",
        "how-many-microbatches": "first ask how many samples one of the 8 pipelines gets from 1,536. Then how many "
        "micro-batches of 2 they make.",
    },
    "04_gpipe": {
        "gpipe-rows": "write device 0's forwards first, and device 1's below them. The last device can start on "
        "whichever micro-batch it likes, best the one that it has just finished; device 0 then takes what comes back, "
        "in the order in which it comes.",
        "recompute-time": "write both times as (M + D − 1) times something, then divide. What cancels? A backward used "
        "to take two forwards.",
    },
    "05_1f1b": {
        "1f1b-rows": "start with the last device, which is the easiest: it has no warm-up, so forwards and backwards "
        "alternate from the start. Each device above starts with one forward more. When the forwards are used up, only "
        "backwards are left.",
        "1f1b-held": "walk along one row of the picture: +1 for each F, −1 for each B. Where is the count highest? "
        "Then cover up all micro-batches but two, and count again.",
    },
    "06_memory": {
        "stage-states": "an eighth of 175 billion is a number of parameters, not of bytes. Each takes 16 bytes, "
        "and a GB is 10⁹ bytes.",
        "layers-worth": "two factors: how many layers stand on one device, and how many micro-batches device 0 has "
        "open at once (notebook 05, exercise 2, with k = 0).",
    },
    "07_interleaved": {
        "interleaved-bubble": "measure everything in passes of one chunk. How many of them does a device work through "
        "in a step, forward and backward taken as one? How many does it wait, and is that more or fewer than before?",
        "interleaved-messages": "count the stages first, then the boundaries between neighbours. Each boundary is "
        "crossed by every micro-batch, once on the way in and once on the way out.",
    },
    "08_two_gpus": {
        "slow-last-stage": "draw the row of stage 1: something before it, then 16 passes one after the other, then "
        "nothing. Add the pass of stage 0 that stands before it, and the one that is still to come when it is done.",
        "real-run": "write the last device's row first: it can turn each micro-batch round at once. The one before it "
        "begins with one forward more, and the first with two more. pplab.review(rows) tells where they wait.",
    },
    "09_imbalance_and_links": {
        "three-stages": "add up all eight, and divide by three: that is the least that the slowest stage can take. "
        "Now cut off the first stage when it has just that much, and go on.",
        "bandwidth": "a bandwidth is bytes a second. How many seconds may the message take, and how many GB has it?",
    },
    "10_3d_parallelism": {
        "microbatches-of-a-layout": "tensor · pipeline devices hold the model once; how often do 1,024 hold it? Each "
        "replica gets an equal part of the batch, and cuts it into pairs of sequences.",
        "tensor-group": "write down ranks 0 to 7 and the group of each, for groups of 2. Which operation on whole "
        "numbers takes 0, 1, 2, 3 to 0, 0, 1, 1?",
    },
    "11_zero_bubble": {
        "zero-bubble-idle": "print(pplab.simulate(pplab.SCHEDULES['zb-h1'](3, 6))) shows it: how long is "
        "device 0's row, gaps and all, and how much of it is work? Then let W shrink to nothing: what must your "
        "formula give?",
        "zero-bubble-rows": "write F's and I's first, in 1F1B's order. With room for two micro-batches, which W must "
        "device 0 run before its third forward? Simulate: each device now has one gap after its first I. Put a W there "
        "that it has already; the others go to the end.",
    },
    "12_asynchronous": {
        "version-met": "a stage's version is the number of backwards that it has run. Take the lower picture, one row, "
        "and count the B's before some F; do the same one row further down. Then look at the first few F's.",
        "stash-bytes": "first the bytes of one version of one stage: an eighth of the parameters, two bytes each. "
        "Then: how many micro-batches does stage 0 have in flight, and which of them runs with the newest weights?",
    },
    "13_reading_critically": {
        "like-with-like": "write down four numbers for each schedule, a device each (notebook 05, exercise 2). Compare "
        "one sum with the other, and no sum with a single number.",
        "divided-by-what": "if a device idles 3 slots for every slot of work, how many slots has it in all, and what "
        "part of them is idle? Now do the same with x slots.",
    },
}
