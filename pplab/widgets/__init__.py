"""Explorers: controls that call pplab's functions and show what they give; no arithmetic of their own."""

from pplab.widgets.batches import BatchExplorer, explore_batches
from pplab.widgets.cuts import CutExplorer, explore_cuts
from pplab.widgets.explorer import Explorer, explore
from pplab.widgets.links import LinkExplorer, explore_links

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
