"""Attention over several tokens: each tile shape, with and without a window, a padded head_dim, each format of the cache."""

from __future__ import annotations

from typing import Any

import torch

from pagoda.ops.cuda.attention import STAGES, _attention_kernel, tile_shape
from pagoda.ops.cuda.attention_tiles import padded_dim
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.step import QUERY_TILE
from tests.kernels.triton_aot import Variant, variant

NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def attention_variant(
    architecture: int,
    dim: int,
    dtype: torch.dtype = torch.bfloat16,
    *,
    group: int = 4,
    window: int = 0,
    cache: str | None = None,
    is_deterministic: bool = False,
    most_spilled: int = 0,
) -> Variant:
    name = NAMES[dtype]
    nothing = torch.empty(0)
    machine = Machine(torch.device("cpu"), dtype, 1, divmod(architecture, 10), nothing, nothing, is_deterministic)
    shape = tile_shape(dim, dtype, machine)
    arguments: dict[str, Any] = {
        "q": f"*{name}", "keys": f"*{cache or name}", "values": f"*{cache or name}", "out": f"*{name}",
        "query_tiles": "*i32", "query_start_loc": "*i32", "seq_lens": "*i32", "block_table": "*i32",
        "table_width": "i32", "scale": "fp32",
        "GROUP": group, "KV_HEADS": 8, "HEAD_DIM": dim, "DIM": padded_dim(dim), "BLOCK_SIZE": 16, "WINDOW": window,
        "QUERY_TILE": QUERY_TILE, "ROWS": shape.rows, "KEYS": shape.keys, "STAGES": STAGES,
        "ONE_LOOP": is_deterministic, "HAS_E4M3": machine.has_e4m3,
    }  # fmt: skip
    label = f"{name}, dim {dim}, group {group}"
    label += f", window {window}" * bool(window) + f", cache {cache}" * bool(cache) + ", one loop" * is_deterministic
    return variant(
        _attention_kernel, label, architectures=[architecture], num_warps=shape.num_warps,
        most_spilled=most_spilled, **arguments,
    )  # fmt: skip


VARIANTS = [
    each
    for architecture in (80, 89, 90)
    for each in (
        attention_variant(architecture, 128, group=1),
        attention_variant(architecture, 128),
        attention_variant(architecture, 64, group=7, most_spilled=16),
        attention_variant(architecture, 80),
        attention_variant(architecture, 256, group=2, window=1024),
        attention_variant(architecture, 128, window=4096),
        attention_variant(architecture, 128, cache="u8", most_spilled=12),  # with Triton 3.6
        attention_variant(architecture, 128, is_deterministic=True),
        attention_variant(architecture, 256, is_deterministic=True),
        attention_variant(architecture, 128, torch.float32, most_spilled=20),  # with Triton 3.6
        attention_variant(architecture, 256, torch.float32, most_spilled=16),  # with Triton 3.7
    )
]
