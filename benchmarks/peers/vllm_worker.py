"""vLLM's CPU build on a directory of safetensors, on all cores, none kept back, with the OpenMP library that it asks for."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from pathlib import Path

from worker import Engine, Load, Measured, Options, main

# Its requirements have Intel's OpenMP, but it is used only where the process is started with it.
OPENMP = Path(sys.prefix) / "lib" / "libiomp5.so"


def start(options: Options) -> Engine:
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{options.threads - 1}"
    os.environ["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "4"
    import vllm

    llm = vllm.LLM(
        options.model,
        dtype="bfloat16",
        max_model_len=options.max_length,
        max_num_seqs=options.max_batch,
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
    )
    engine, numbers = llm.llm_engine, itertools.count()
    # Its processes end with this one only if Python ends in its ordinary way.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())

    def measure(load: Load) -> Measured:
        """As `LLM.generate` does it, but that each step tells how many tokens there are."""
        sampling = vllm.SamplingParams(
            temperature=0,
            min_tokens=load.output_tokens,
            max_tokens=load.output_tokens,
            ignore_eos=True,
            detokenize=False,
        )
        begun = time.perf_counter()
        for prompt in load.prompts():
            engine.add_request(str(next(numbers)), {"prompt_token_ids": prompt}, sampling)
        counts: dict[str, int] = {}
        prefilled = ended = begun
        while engine.has_unfinished_requests():
            before = len(counts)
            counts |= {output.request_id: len(output.outputs[0].token_ids) for output in engine.step()}
            ended = time.perf_counter()
            if before < len(counts):
                prefilled, first_tokens = ended, sum(counts.values())
        return Measured(
            prefilled - begun, ended - prefilled, sum(counts.values()) - first_tokens, list(counts.values())
        )

    return Engine(f"vLLM {vllm.__version__} (CPU)", measure)


if __name__ == "__main__":
    if OPENMP.exists() and "LD_PRELOAD" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_PRELOAD": str(OPENMP)})
    main(start)
