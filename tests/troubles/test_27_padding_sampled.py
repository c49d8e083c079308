"""Trouble 27: rows that only pad the embedding table are sampled, and nothing can decode them.

Right: they can never be chosen, whatever their logits, and have no share in log-probabilities.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from pagoda import LLM, SamplingParams
from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.torch_logprobs import logprob_tensors
from pagoda.sampling.torch_sampler import sample
from tests.sampling.requests import new_state
from tests.tiny_model import VOCAB_SIZE

REAL, PADDED = 600, 640


def test_padding_is_never_chosen() -> None:
    logits = torch.zeros(300, PADDED)
    logits[:, REAL:] = 1000.0
    states = [new_state(REAL, seed=seed, temperature=seed % 3 * 50.0) for seed in range(300)]
    token_ids, broken = sample(logits, SamplingBatch.of(states), REAL)
    assert not broken.any()
    assert int(token_ids.max()) < REAL


def test_a_broken_number_in_padding_does_not_matter() -> None:
    logits = torch.zeros(1, PADDED)
    logits[0, REAL:] = torch.nan
    token_ids, broken = sample(logits, SamplingBatch.of([new_state(REAL, temperature=0.0)]), REAL)
    assert (token_ids.tolist(), broken.tolist()) == ([0], [False])


def test_padding_is_no_alternative() -> None:
    logits = torch.zeros(1, PADDED)
    logits[:, REAL:] = 1000.0
    (entry,) = logprob_tensors(logits, torch.tensor([0]), torch.tensor([3]), 20, REAL).to_host()
    assert max(entry.token_ids) < REAL
    assert abs(entry.logprobs[0] + torch.log(torch.tensor(float(REAL))).item()) < 1e-5


def test_an_engine_never_samples_padding_of_its_model(tiny_model: str, tmp_path: Path) -> None:
    """The padding's rows are made longer than any other, in all directions: one of them has always the highest logit."""
    padded = tmp_path / "padded"
    shutil.copytree(tiny_model, padded)
    config = json.loads((padded / "config.json").read_text(encoding="utf-8"))
    weights = load_file(padded / "model.safetensors")
    directions = np.eye(config["hidden_size"], dtype=np.float32) * 1000
    embedding = np.concatenate([weights["model.embed_tokens.weight"], directions, -directions])
    save_file(weights | {"model.embed_tokens.weight": embedding}, padded / "model.safetensors")
    config["vocab_size"] = len(embedding)
    (padded / "config.json").write_text(json.dumps(config), encoding="utf-8")

    greedy = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=5)
    hot = SamplingParams(temperature=5.0, seed=1, max_tokens=16, ignore_eos=True, logprobs=5)
    results = []
    for model in (tiny_model, str(padded)):
        with LLM(model, threads=1, num_kv_blocks=32) as llm:
            results.append([output.outputs for output in llm.generate(["Hello", "Hello"], [greedy, hot])])
    assert results[1] == results[0]
    assert all(token_id < VOCAB_SIZE for outputs in results[1] for token_id in outputs[0].token_ids)
