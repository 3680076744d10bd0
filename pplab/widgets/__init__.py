"""Explorers: controls that call pplab's functions and show what they give; no arithmetic of their own."""

from pplab.widgets.batches import BatchExplorer
from pplab.widgets.cuts import CutExplorer
from pplab.widgets.explorer import Explorer
from pplab.widgets.links import LinkExplorer

# What a notebook calls: it says what the reader does, and gives the explorer.
explore, explore_batches, explore_cuts, explore_links = Explorer, BatchExplorer, CutExplorer, LinkExplorer

__all__ = [
    "BatchExplorer",
    "CutExplorer",
    "Explorer",
    "LinkExplorer",
    "explore",
    "explore_batches",
    "explore_cuts",
    "explore_links",
]
