"""Simulation: the real scheduler and block manager against a cost model and a virtual clock."""
