"""Makes the golden continuations of chats: what the float32 reference answers, greedily, and how sure it is of each token.

    python tests/golden/make_chat.py tests/golden/smollm2_chat.json

Of the embedded model, through its chat template, 32 tokens each, going on past end tokens. margins: at each token the
lead of the highest logit over the second highest. A faster path, fed these tokens, should choose the same ones, except
where the lead is small.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pagoda import LLM, SamplingParams
from pagoda.engine.outputs import RequestOutput

NUM_TOKENS = 32
QUESTIONS = (
    "Why is the sky blue?",
    "What is a pagoda?",
    "Name three rivers in Europe.",
    "Write a haiku about autumn.",
    "Explain photosynthesis to a child.",
    "What is the capital of Australia?",
    "How do I boil an egg?",
    "Translate 'good morning' into French.",
    "What is 17 times 3?",
    "Write a Python function that reverses a string.",
    "Who wrote Hamlet?",
    "Give me a synonym for happy.",
    "What causes the tides?",
    "Tell me a short story about a fox.",
    "How many legs does a spider have?",
    "What is the difference between a compiler and an interpreter?",
    "Recommend a book about the sea.",
    "Summarise the French Revolution in one sentence.",
    "What should I wear when it rains?",
    "Write a polite email asking for a day off.",
    "What is the speed of light?",
    "Describe the taste of a lemon.",
    "How does a bicycle stay upright?",
    "List the planets of the solar system.",
    "What is an SQL join?",
    "Was ist die Hauptstadt von Deutschland?",
    "Give three tips for learning a language.",
    "Why do cats purr?",
    "What is a prime number?",
    "Write a limerick about a programmer.",
    "How do vaccines work?",
    "What is the largest ocean?",
    "Explain recursion.",
    "Convert 100 degrees Fahrenheit to Celsius.",
    "Who was Marie Curie?",
    "What can I cook with rice and tomatoes?",
    "Is a tomato a fruit?",
    "Write a slogan for a bakery.",
    "What happened in 1969?",
    "Finish this sentence: The old lighthouse keeper",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Golden continuations of chats, by the float32 reference.")
    parser.add_argument("output", type=Path, help="the .json file to write")
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    sampling = SamplingParams(
        temperature=0.0, repetition_penalty=1.0, max_tokens=NUM_TOKENS, ignore_eos=True, logprobs=2
    )
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    settings = {"dtype": "float32", "max_model_len": 256, "threads": arguments.threads}
    with LLM("smollm2", device="reference", generation_config="none", progress=True, **settings) as llm:
        outputs = llm.chat(chats, sampling)
        model = Path(llm.config.model).name
    lines = [json.dumps(_entry(*pair), ensure_ascii=False) for pair in zip(QUESTIONS, outputs, strict=True)]
    head = f'{{"model": {json.dumps(model)}, "entries": [\n'
    arguments.output.write_text(head + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


def _entry(question: str, output: RequestOutput) -> dict[str, object]:
    choice = output.outputs[0]
    best = [position.top[:2] for position in choice.logprobs or ()]
    return {
        "question": question,
        "prompt_token_ids": list(output.prompt_token_ids),
        "token_ids": list(choice.token_ids),
        "margins": [round(first.logprob - second.logprob, 4) for first, second in best],
    }


if __name__ == "__main__":
    main()
