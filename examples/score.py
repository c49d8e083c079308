"""How likely a model finds a text: perplexity from its log-probabilities.

Run: python examples/score.py [MODEL]
"""

import math
import sys

from pagoda import LLM


def main(model: str = "smollm2") -> None:
    texts = ["The cat sat on the mat.", "The mat cat on the sat."]
    with LLM(model) as llm:
        for text, output in zip(texts, llm.score(texts), strict=True):
            logprobs = [entry.chosen.logprob for entry in output.prompt_logprobs or [] if entry is not None]
            print(f"{text!r}: perplexity {math.exp(-sum(logprobs) / len(logprobs)):.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
