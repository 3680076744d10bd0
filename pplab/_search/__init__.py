"""The parts of pplab.search: the problem and its bound, starting points, moves, and the beam that tries every order."""
