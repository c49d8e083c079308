"""Compares Pagoda's greedy ids with golden ids that `make_golden.py` made of the same file.

    python tests/golden/compare.py MODEL OUT.json

Where the two highest logits tie, either may come out higher and what follows may differ: a prompt is compared up to its
first tie, and each is told. Exits with 1 if an id before that differs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagoda import LLM, SamplingParams

TIE = 1e-3


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt. num_compared: of the golden ids, up to the first tie or all. first_wrong: place of an id that differs."""

    prompt: str
    num_golden: int
    num_compared: int
    first_wrong: int | None

    @property
    def ends_in_tie(self) -> bool:
        return self.num_compared < self.num_golden

    def __str__(self) -> str:
        told = f"{self.num_compared} of {self.num_golden} ids compared"
        if self.ends_in_tie:
            told += f", up to a tie: the lead there is below {TIE}"
        if self.first_wrong is not None:
            told += f"; id {self.first_wrong} DIFFERS"
        return f"{self.prompt[:40]!r}: {told}"


def compare(entry: Mapping[str, Any], token_ids: Sequence[int]) -> Comparison:
    """entry: one of the golden file's. token_ids: what Pagoda generated for its prompt."""
    golden: list[int] = entry["token_ids"]
    end = next((place for place, margin in enumerate(entry["margins"]) if margin < TIE), len(golden))
    # An id that is missing is wrong too.
    mine = [*token_ids[:end], *[-1] * (end - len(token_ids))]
    first_wrong = next((place for place in range(end) if mine[place] != golden[place]), None)
    return Comparison(entry["prompt"], len(golden), end, first_wrong)


def summary(comparisons: Sequence[Comparison]) -> str:
    compared, golden = (sum(getattr(each, name) for each in comparisons) for name in ("num_compared", "num_golden"))
    wrong = sum(each.first_wrong is not None for each in comparisons)
    ties = sum(each.ends_in_tie for each in comparisons)
    return (
        f"{len(comparisons) - wrong} of {len(comparisons)} prompts agree; {compared} of {golden} ids compared, "
        f"prompts that end in a tie: {ties}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Pagoda's greedy ids against golden ones.")
    parser.add_argument("model", help="the file that the golden ids were made of, or smollm2")
    parser.add_argument("golden", type=Path, help="the .json file of make_golden.py")
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    entries = json.loads(arguments.golden.read_text(encoding="utf-8"))["entries"]
    longest = max(len(entry["prompt_token_ids"]) + len(entry["token_ids"]) for entry in entries)
    params = [SamplingParams(temperature=0, max_tokens=len(entry["token_ids"]), ignore_eos=True) for entry in entries]
    # In float32 and without the model's own sampling defaults, as the golden ids were made.
    config = {
        "device": "reference",
        "dtype": "float32",
        "generation_config": "none",
        "max_model_len": longest,
        "threads": arguments.threads,
    }
    with LLM(arguments.model, **config) as llm:
        outputs = llm.generate([entry["prompt_token_ids"] for entry in entries], params)
    comparisons = [compare(entry, output.outputs[0].token_ids) for entry, output in zip(entries, outputs, strict=True)]
    print(*comparisons, summary(comparisons), sep="\n")
    raise SystemExit(any(each.first_wrong is not None for each in comparisons))


if __name__ == "__main__":
    main()
