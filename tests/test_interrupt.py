"""Ctrl-C, and a notebook's stop button, end what takes long at once, and no later answer is another for it."""

import _thread
import threading

import pytest

import pplab
from pplab.planner import Cluster, plan

CLUSTER = Cluster("A100 80GB", num_nodes=2)


def test_a_search_for_layouts_stops():
    def stop(done, _all):
        if done == 3:
            _thread.interrupt_main()

    whole = plan("Llama-2 7B", CLUSTER, 32, efficiency=0.5)
    with pytest.raises(KeyboardInterrupt):
        plan("Llama-2 7B", CLUSTER, 32, efficiency=0.5, progress=stop)
    assert plan("Llama-2 7B", CLUSTER, 32, efficiency=0.5).rows == whole.rows


def test_a_search_for_schedules_stops():
    costs = pplab.Costs(forward=[1.0, 1.3, 0.9, 1.1], backward=[2.0, 2.1, 2.3, 1.9], hop=0.3)
    small = pplab.search(costs, 4, 4, effort=100)
    timer = threading.Timer(1.0, _thread.interrupt_main)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            pplab.search(costs, 4, 64, effort=10**9)
    finally:
        timer.join()
    assert pplab.search(costs, 4, 4, effort=100) == small
