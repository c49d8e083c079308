"""A CudaRunner for tests: over a tiny LLaMA, on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

from typing import Any

from pagoda.loading.resolve import open_checkpoint
from pagoda.models.registry import family_for
from pagoda.runner.cuda_build import build_cuda_runner
from pagoda.runner.cuda_runner import CudaRunner
from pagoda.runner.device import Device
from pagoda.runner.interface import LoadedRunner
from pagoda.runner.torch_runner import TorchRunner, build_torch_runner
from tests.runner.steps import request, row, step

BLOCK_SIZE = 4


def device(**changes: Any) -> Device:
    return Device(
        **{"kind": "cuda", "dtype": "float32", "usable_bytes": 1 << 30, "threads": 1, "kv_dtype": "float32", **changes}
    )


def cuda_runner(
    directory: str,
    num_blocks: int = 100,
    *,
    real_vocab_size: int = 250,
    max_num_seqs: int = 8,
    max_batched_tokens: int = 512,
    **changes: Any,
) -> CudaRunner:
    """changes: of the device."""
    checkpoint = open_checkpoint(directory)
    family = family_for(checkpoint.config)
    spec = family.spec(checkpoint.config)
    runner = build_cuda_runner(
        checkpoint,
        family,
        spec,
        device=device(**changes),
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_num_seqs=max_num_seqs,
        max_batched_tokens=max_batched_tokens,
        max_model_len=spec.context_length,
        real_vocab_size=real_vocab_size,
    )
    checkpoint.close()
    return runner


def reference_runner(directory: str, num_blocks: int = 100, *, real_vocab_size: int = 250) -> TorchRunner:
    """The same model in plain torch."""
    checkpoint = open_checkpoint(directory)
    family = family_for(checkpoint.config)
    runner = build_torch_runner(
        checkpoint,
        family,
        family.spec(checkpoint.config),
        device="cpu",
        dtype="float32",
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_num_seqs=8,
        real_vocab_size=real_vocab_size,
    )
    checkpoint.close()
    return runner


def short_text(runner: LoadedRunner) -> list[int | None]:
    """Three tokens after a prompt of three."""
    runner.submit(step(0, [row("a", 0, 3, [1, 2])], [request("a", [1, 2, 3])]))
    for number in (1, 2):
        runner.submit(step(number, [row("a", number + 2, 1)]))
    return [runner.collect().rows[0].token_id for _ in range(3)]
