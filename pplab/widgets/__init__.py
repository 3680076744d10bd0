"""Explorers: controls that call pplab's functions and show what they give; no arithmetic of their own."""

from pplab.widgets.asynchronous import AsynchronousExplorer
from pplab.widgets.batches import BatchExplorer
from pplab.widgets.cuts import CutExplorer
from pplab.widgets.explorer import Explorer
from pplab.widgets.layout import LayoutExplorer
from pplab.widgets.links import LinkExplorer
from pplab.widgets.memory import MemoryExplorer
from pplab.widgets.player import Player
from pplab.widgets.runs import RunExplorer

# What a notebook calls: it says what the reader does, and gives the explorer.
explore, explore_batches, explore_cuts, explore_links = Explorer, BatchExplorer, CutExplorer, LinkExplorer
explore_memory = MemoryExplorer
explore_layout = LayoutExplorer
explore_asynchronous = AsynchronousExplorer
explore_runs = RunExplorer
play = Player

__all__ = [
    "AsynchronousExplorer",
    "BatchExplorer",
    "CutExplorer",
    "Explorer",
    "LayoutExplorer",
    "LinkExplorer",
    "MemoryExplorer",
    "RunExplorer",
    "Player",
    "explore",
    "explore_asynchronous",
    "explore_batches",
    "explore_cuts",
    "explore_layout",
    "explore_links",
    "explore_memory",
    "explore_runs",
    "play",
]
