"""What the chip can do at best: what everything else is compared with, measured on the same machine in the same run."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu.clock import median_seconds
from gpu.context import Context

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@triton.jit
def _sum_kernel(x, out, blocks_each, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    within = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for turn in tl.range(0, blocks_each, num_stages=STAGES):
        start = (turn * programs + program).to(tl.int64) * BLOCK
        total += tl.load(x + start + within)
    tl.store(out + program, tl.sum(total))


def read_bytes_per_second(num_bytes: int, repeats: int) -> float:
    """Reading memory once, every byte: the best of a few ways to divide it."""
    x = torch.ones(num_bytes // 4, dtype=torch.float32, device=DEVICE)
    chips = torch.cuda.get_device_properties(DEVICE).multi_processor_count if DEVICE.type == "cuda" else 4
    best = 0.0
    for block, warps, programs_each in ((4096, 8, 4), (8192, 8, 2), (8192, 16, 2), (4096, 4, 4)):
        programs = chips * programs_each
        blocks_each = x.numel() // (block * programs)
        if not blocks_each:
            continue
        out = torch.empty(programs, dtype=torch.float32, device=DEVICE)

        def work(
            out: torch.Tensor = out,
            programs: int = programs,
            blocks_each: int = blocks_each,
            block: int = block,
            warps: int = warps,
        ) -> None:
            _sum_kernel[(programs,)](x, out, blocks_each, BLOCK=block, STAGES=4, num_warps=warps)

        seconds = median_seconds(work, repeats)
        summed = blocks_each * block * programs
        if out.sum(dtype=torch.float64).item() != summed:
            raise ArithmeticError(f"the sum of {summed:,} ones came out as {out.sum(dtype=torch.float64).item():,}")
        best = max(best, 4 * summed / seconds)
    return best


def copied_bytes_per_second(num_bytes: int, repeats: int) -> float:
    """Reading and writing, both counted."""
    x = torch.ones(num_bytes // 4, dtype=torch.float32, device=DEVICE)
    y = torch.empty_like(x)
    return 2 * x.nbytes / median_seconds(lambda: y.copy_(x), repeats)


def upload_bytes_per_second(num_bytes: int, repeats: int) -> float:
    """From pinned memory of the host."""
    x = torch.ones(num_bytes // 4, dtype=torch.float32, pin_memory=DEVICE.type == "cuda")
    y = torch.empty_like(x, device=DEVICE)
    return x.nbytes / median_seconds(lambda: y.copy_(x, non_blocking=True), repeats)


def product_flops_per_second(size: int, dtype: torch.dtype, repeats: int) -> float:
    """Of size × size matrices, on random numbers: zeros need less power, and are faster."""
    x, y = (torch.randn(size, size, device=DEVICE, dtype=dtype) for _ in range(2))
    out = torch.empty_like(x)
    return 2 * size**3 / median_seconds(lambda: torch.mm(x, y, out=out), repeats)


def run(context: Context) -> None:
    sizes, report = context.sizes, context.report
    report(read_bytes_per_second=read_bytes_per_second(sizes.read_bytes, sizes.repeats))
    report(copied_bytes_per_second=copied_bytes_per_second(sizes.copy_bytes, sizes.repeats))
    report(upload_bytes_per_second=upload_bytes_per_second(sizes.copy_bytes // 2, min(sizes.repeats, 5)))
    report(bf16_flops_per_second=product_flops_per_second(sizes.product, torch.bfloat16, sizes.repeats))
