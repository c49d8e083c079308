"""Print a chat answer while it is being generated.

Run: python examples/stream_chat.py [MODEL]
"""

import sys

from pagoda import LLM, SamplingParams


def main(model: str = "smollm2") -> None:
    conversation = [{"role": "user", "content": "In one sentence: what is a pagoda?"}]
    with LLM(model) as llm:
        for delta in llm.stream_chat(conversation, SamplingParams(temperature=0, max_tokens=48)):
            print(delta.text, end="", flush=True)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
