"""Explorers: controls that call pplab's functions and show what they give; no arithmetic of their own."""

from pplab.widgets.explorer import Explorer, explore

__all__ = ["Explorer", "explore"]
