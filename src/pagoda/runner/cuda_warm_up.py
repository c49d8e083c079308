"""Steps of padding alone, which harm nobody: so that kernels are compiled and loaded before anybody waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pagoda.core.step import NewRequest, RequestKey
from pagoda.ops.cuda.compiling import only_compiling
from pagoda.runner.batch import Batch
from pagoda.runner.cuda_buffers import StepBuffers
from pagoda.runner.cuda_queue import CudaQueue
from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.state import SamplingState
from pagoda.sampling_params import SamplingParams

# Beyond so many tokens launchers make no difference any more.
MOST_TOKENS = 512


def warm_up(run: Callable[[Batch], None], buffers: StepBuffers, queue: CudaQueue, num_threads: int) -> None:
    """Have the kernels of all kinds of steps compiled and loaded, so many at a time, and do two small steps.

    run: launches a step, and the choice of its tokens.
    """
    longest = (
        buffers.width - 1
    ) * buffers.block_size or 1  # Not all of the table, whose end may be beyond the context.
    mixed = list(mixed_lengths(buffers.max_tokens, buffers.rows[-1], longest))
    lengths = [*([1] * rows for rows in buffers.rows), *mixed]
    with queue.entered():
        if queue.device.type == "cuda":
            with only_compiling(num_threads):
                for each in lengths:
                    run(padding_step(each, buffers.spare_block, buffers.block_size))
        for each in (lengths[0], mixed[0]):
            run(padding_step(each, buffers.spare_block, buffers.block_size))
    queue.finish()


def padding_step(lengths: Sequence[int], spare_block: int, block_size: int) -> Batch:
    """A step that computes so many tokens of each of as many requests, from their beginning on, all in the spare block."""
    # Several tokens go to the same slot, and what is read there is anything: nobody looks at the results.
    ends = np.cumsum(lengths)
    positions = np.concatenate([np.arange(length) for length in lengths])
    width = -(-max(lengths) // block_size)
    return Batch(
        input_ids=np.zeros(ends[-1], np.int64),
        positions=positions,
        slot_mapping=spare_block * block_size + positions % block_size,
        query_start_loc=np.concatenate([[0], ends]).astype(np.int32),
        seq_lens=np.array(lengths, np.int32),
        block_table=np.full((len(lengths), width), spare_block, np.int32),
        logit_rows=ends - 1,
        new_blocks=np.array([spare_block]),
    )


def mixed_lengths(most_tokens: int, most_seqs: int, longest: int) -> Iterator[list[int]]:
    """Lengths of the requests of steps: of one request first, then of ever more tokens, up to `MOST_TOKENS`, where the last
    request has one, if there may be several.

    Launchers tell apart how large a step is, by powers of two at the finest, and Triton whether a number is a multiple of 16.
    """
    # Its single row of logits is multiplied as those of no other step are.
    yield [min(4, most_tokens, longest)]
    most = min(most_tokens, MOST_TOKENS, (most_seqs - 1) * longest + 1 if most_seqs > 1 else longest)
    single = [1] if most_seqs > 1 else []
    tokens = {min(power - less, most) for power in (4, 16, 32, 64, 128, 256, MOST_TOKENS) for less in (0, 1)}
    for each in sorted(tokens):
        full, rest = divmod(each - len(single), longest)
        yield [longest] * full + [rest] * (rest > 0) + single


def sampling_batches() -> list[SamplingBatch]:
    """Of a row each: one that takes the most likely token and one that chooses at random, each without penalties and with."""
    every = [
        SamplingParams(temperature=temperature, repetition_penalty=penalty).resolved({}, 1)
        for temperature in (0.0, 1.0)
        for penalty in (1.0, 1.1)
    ]
    return [
        SamplingBatch.of([SamplingState(NewRequest(RequestKey("warm-up", 0), (0,), 1, params, seed=0), vocab_size=1)])
        for params in every
    ]
