"""Kernels that choose tokens on a GPU, and what carries their parameters there."""
