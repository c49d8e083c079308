"""Decode attention: RoPE and q/k norm, small and large groups, each format of the cache."""

from __future__ import annotations

import torch

from pagoda.ops.cuda.decode_attention import _decode_attention_kernel
from tests.kernels.aot.split_attention import ARCHITECTURES, FORMATS, constants
from tests.kernels.triton_aot import Variant, variant


def decode_variant(
    architecture: int,
    dim: int,
    dtype: torch.dtype = torch.bfloat16,
    *,
    group: int = 1,
    window: int = 0,
    cache: torch.dtype | None = None,
    requests: int = 1,
    turned: int | None = None,
    norm: bool = False,
    most_spilled: int = 0,
) -> Variant:
    cache = cache or dtype
    turned = dim if turned is None else turned
    label = f"{FORMATS[dtype][1:]} over {FORMATS[cache][1:]}, dim {dim}, group {group}, {requests} requests"
    label += f", window {window}" * bool(window) + ", norm" * norm + f", {turned} turned" * (turned != dim)
    angles, gain = "*fp32" if turned else None, "*fp32" if norm else None
    return variant(
        _decode_attention_kernel, label, architectures=[architecture], most_spilled=most_spilled,
        qkv=FORMATS[dtype], cosines=angles, sines=angles, q_gain=gain, k_gain=gain, eps="fp32",
        keys=FORMATS[cache], values=FORMATS[cache], out=FORMATS[dtype],
        slot_mapping="*i64", seq_lens="*i32", block_table="*i32", table_width="i32:16", scale="fp32",
        splits="i32", least_tiles="i32",
        partials="*fp32", counters="*i32", TURNED=turned,
        **constants(architecture, dim, group, window=window, cache=cache, requests=requests),
    )  # fmt: skip


VARIANTS = [
    each
    for architecture in ARCHITECTURES
    for each in (
        decode_variant(architecture, 128),
        decode_variant(architecture, 128, group=4, requests=64),
        decode_variant(architecture, 128, group=2, norm=True),
        decode_variant(architecture, 80, group=7, turned=20),
        decode_variant(architecture, 64, group=71, turned=0),
        decode_variant(architecture, 256, group=2, window=1024, most_spilled=16),
        decode_variant(architecture, 128, group=4, cache=torch.float8_e4m3fn),
        decode_variant(architecture, 128, torch.float32, most_spilled=464),  # with Triton 3.6
    )
]
