"""OpenVINO GenAI's LLMPipeline on a GGUF file. Its first call of a shape compiles, so callers warm it up."""

from __future__ import annotations

import time

import numpy as np
import openvino as ov
import openvino_genai as genai
from worker import Engine, Load, Measured, Options, main


def start(options: Options) -> Engine:
    pipeline = genai.LLMPipeline(options.model, "CPU", INFERENCE_NUM_THREADS=options.threads)

    def measure(load: Load) -> Measured:
        prompts = np.array(load.prompts(), np.int64)
        inputs = genai.TokenizedInputs(ov.Tensor(prompts), ov.Tensor(np.ones_like(prompts)))
        config = genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = load.output_tokens
        config.ignore_eos, config.do_sample = True, False
        begun = time.perf_counter()
        results = pipeline.generate(inputs, config)
        seconds = time.perf_counter() - begun
        prefill = results.perf_metrics.get_ttft().mean / 1e3
        counts = [len(tokens) for tokens in results.tokens]
        tokens = load.batch * (load.output_tokens - 1)
        return Measured(prefill, seconds - prefill if tokens else 0.0, tokens, counts)

    return Engine(f"OpenVINO GenAI {genai.get_version().partition('-')[0]}", measure)


if __name__ == "__main__":
    main(start)
