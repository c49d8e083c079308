"""Variants of RoPE and the writing of K and V."""

from typing import Any

import triton

from pagoda.ops.cuda.rope import NUM_WARPS, PROGRAM_ELEMENTS, _rope_and_store
from tests.kernels.triton_aot import Variant, variant


def of(head_dim: int, half: int, dtype: str, cache: str, label: str, *, has_norm: bool = False) -> Variant:
    angles, gain = "*fp32" if half else None, "*fp32" if has_norm else None
    arguments: dict[str, Any] = {"cosines": angles, "sines": angles, "q_gain": gain, "k_gain": gain, "eps": "fp32"}
    arguments |= {"qkv": f"*{dtype}", "q": f"*{dtype}", "keys": f"*{cache}", "values": f"*{cache}", "slots": "*i64"}
    arguments |= {"num_tokens": "i32", "NUM_HEADS": 32, "NUM_KV_HEADS": 8, "HEAD_DIM": head_dim, "HALF": half}
    arguments |= {"BLOCK_SIZE": 16, "ROWS": PROGRAM_ELEMENTS // triton.next_power_of_2(head_dim)}
    return variant(_rope_and_store, f"{head_dim} {dtype}, {cache} cache{label}", num_warps=NUM_WARPS, **arguments)


VARIANTS = [
    of(128, 64, "bf16", "bf16", ""),
    of(128, 64, "bf16", "u8", ", normed", has_norm=True),
    of(80, 10, "fp16", "fp16", ", partial"),
    of(64, 0, "fp32", "fp32", ", no rope"),
    of(256, 128, "fp32", "fp32", ", normed", has_norm=True),
]
