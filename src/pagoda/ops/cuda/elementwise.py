"""Kernels that go over each element once."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from pagoda.ops.interface import Activation


def add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    """out = x + y, all [T, n]. out may be x or y."""
    torch.add(x, y, out=out)


def select_rows(x: torch.Tensor, rows: torch.Tensor, out: torch.Tensor) -> None:
    """out [R, n] = x [T, n] at rows [R]."""
    torch.index_select(x, 0, rows, out=out)


def angles(positions: torch.Tensor, frequencies: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> None:
    """Cosines and sines [T, n] of positions [T] × frequencies [n], all but the positions float32."""
    turned = positions[:, None].float() * frequencies
    cosines.copy_(turned.cos())
    sines.copy_(turned.sin())


def gated_activation(x: torch.Tensor, kind: Activation, out: torch.Tensor) -> None:
    """out [T, n] = activation(x[:, :n]) × x[:, n:], computed in float32."""
    gate, up = x.float().chunk(2, dim=-1)
    out.copy_(_activated(gate, kind) * up)


def activation(x: torch.Tensor, kind: Activation, out: torch.Tensor) -> None:
    """out = activation(x), both [T, n], computed in float32."""
    out.copy_(_activated(x.float(), kind))


def zero_blocks(storage: torch.Tensor, num_planes: int, num_blocks: int, blocks: torch.Tensor) -> None:
    """Clear these blocks [N] in each of the planes that `storage` [planes × blocks × …] is made of, all of one shape."""
    storage.view(num_planes, num_blocks, -1)[:, blocks.long()] = 0


def _activated(x: torch.Tensor, kind: Activation) -> torch.Tensor:
    return F.silu(x) if kind == "silu" else F.gelu(x, approximate="tanh")
