"""vLLM's CPU build on a directory of safetensors. Set before it is imported: all cores, none kept back."""

from __future__ import annotations

import os
import time

from worker import Engine, Load, Measured, Options, main


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

    def seconds(prompts: list[list[int]], output_tokens: int) -> tuple[float, list[int]]:
        sampling = vllm.SamplingParams(
            temperature=0, min_tokens=output_tokens, max_tokens=output_tokens, ignore_eos=True, detokenize=False
        )
        begun = time.perf_counter()
        results = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
        return time.perf_counter() - begun, [len(result.outputs[0].token_ids) for result in results]

    def measure(load: Load) -> Measured:
        """It does not tell when first tokens came: their time is that of the same prompts with one token each."""
        prefill, counts = seconds(load.prompts(), 1)
        if load.output_tokens == 1:
            return Measured(prefill, 0.0, 0, counts)
        whole, counts = seconds(load.prompts(), load.output_tokens)
        return Measured(prefill, whole - prefill, load.batch * (load.output_tokens - 1), counts)

    return Engine(f"vLLM {vllm.__version__} (CPU)", measure)


if __name__ == "__main__":
    main(start)
