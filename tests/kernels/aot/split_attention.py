"""Attention of single tokens: small and large groups, each format of the cache."""

from __future__ import annotations

from typing import Any

import torch

from pagoda.ops.cuda.cache import LayerKV
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.split_attention import Splitting, _single_token_kernel
from pagoda.planning.model_spec import AttentionSpec
from tests.kernels.triton_aot import Variant, variant

FORMATS = {
    torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float8_e4m3fn: "*u8",
}  # fmt: skip
ARCHITECTURES = (80, 89, 90)


def constants(
    architecture: int, dim: int, group: int, *, window: int, cache: torch.dtype, requests: int
) -> dict[str, Any]:
    """What the launchers pass for so many requests, on 132 multiprocessors and with room for 32,768 tokens a request."""
    spec = AttentionSpec(8 * group, 8, dim, dim**-0.5, None, window=window or None)
    part = torch.empty((1, 8, 16, dim), dtype=cache)
    nothing = torch.empty(0)
    machine = Machine(torch.device("cpu"), cache, 132, (architecture // 10, architecture % 10), nothing, nothing)
    kv = LayerKV(part, part)
    return Splitting.of(requests, 32_768, spec, kv, machine).constants(spec, kv, machine)


def single_token_variant(
    architecture: int,
    dim: int,
    dtype: torch.dtype = torch.bfloat16,
    *,
    group: int = 1,
    window: int = 0,
    cache: torch.dtype | None = None,
    requests: int = 1,
    most_spilled: int = 0,
) -> Variant:
    cache = cache or dtype
    label = f"{FORMATS[dtype][1:]} over {FORMATS[cache][1:]}, dim {dim}, group {group}, {requests} requests"
    return variant(
        _single_token_kernel, label + f", window {window}" * bool(window), architectures=[architecture],
        most_spilled=most_spilled,
        q=FORMATS[dtype], keys=FORMATS[cache], values=FORMATS[cache], out=FORMATS[dtype],
        singles="*i32", seq_lens="*i32", block_table="*i32", table_width="i32:16", scale="fp32",
        splits="i32", least_tiles="i32", partials="*fp32", counters="*i32",
        **constants(architecture, dim, group, window=window, cache=cache, requests=requests),
    )  # fmt: skip


VARIANTS = [
    each
    for architecture in ARCHITECTURES
    for each in (
        single_token_variant(architecture, 128, requests=256),
        single_token_variant(architecture, 256, torch.float16, group=4, window=1024, most_spilled=16),
    )
]
