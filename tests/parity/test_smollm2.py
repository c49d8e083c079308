"""Real text: the embedded model's greedy tokens are those of `transformers` on the same dequantized weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.parity.engine import generate

GOLDEN = Path(__file__).parents[1] / "golden" / "smollm2.json"
TIE = 1e-3


@pytest.mark.smollm2
@pytest.mark.slow
def test_greedy_text_of_the_embedded_model() -> None:
    entries = json.loads(GOLDEN.read_text(encoding="utf-8"))["entries"]
    assert len(entries) == 20
    outputs, _ = generate(
        "smollm2",
        [entry["prompt_token_ids"] for entry in entries],
        num_tokens=64,
        max_num_seqs=20,
        max_batched_tokens=256,
        prefill_chunk=64,
    )
    for entry, output in zip(entries, outputs, strict=True):
        # Where two logits tie, either may come out higher, and what follows may differ.
        tie = next((index for index, margin in enumerate(entry["margins"]) if margin < TIE), len(output))
        if tie < len(output):
            print(f"{entry['prompt']!r}: compared up to token {tie}, where two logits tie within {TIE}")
        assert output[:tie] == entry["token_ids"][:tie], entry["prompt"]
