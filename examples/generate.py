"""Complete several prompts in one batch.

Run: python examples/generate.py [MODEL]
"""

import sys

from pagoda import LLM, SamplingParams


def main(model: str = "smollm2") -> None:
    prompts = ["The capital of France is", "Two plus two is", "A pagoda is"]
    with LLM(model) as llm:
        for output in llm.generate(prompts, SamplingParams(temperature=0, max_tokens=16)):
            print(f"{output.prompt!r} → {output.outputs[0].text!r} ({output.usage.completion_tokens} tokens)")


if __name__ == "__main__":
    main(*sys.argv[1:])
