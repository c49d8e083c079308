"""Real text: the embedded model's greedy tokens are those of `transformers` on the same dequantized weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.compare import compare
from tests.parity.engine import generate

GOLDEN = Path(__file__).parents[1] / "golden" / "smollm2.json"


@pytest.mark.smollm2
@pytest.mark.slow
def test_greedy_text_of_the_embedded_model(record_property: Callable[[str, object], None]) -> None:
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
    comparisons = [compare(entry, output) for entry, output in zip(entries, outputs, strict=True)]
    record_property("ids_compared", sum(each.num_compared for each in comparisons))
    assert [str(each) for each in comparisons if each.first_wrong is not None] == []


def test_no_golden_id_is_left_out_for_a_tie() -> None:
    """Of the ids above all are compared; were the file made anew with ties in it, this would say so."""
    entries = json.loads(GOLDEN.read_text(encoding="utf-8"))["entries"]
    assert [str(each) for each in (compare(entry, entry["token_ids"]) for entry in entries) if each.ends_in_tie] == []
