"""Whether the engine on the GPU computes what the reference does, at a real model's widths: greedy answers, and texts scored.

The reference is plain torch in float32, on the same GPU. The model has few layers, so that it fits beside its weights' format,
and random weights, so that many tokens are nearly as likely: a hard case.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from gpu.context import Context
from gpu.device import config_of_device, reference_on_gpu
from gpu.engine import open_llm
from gpu.sizes import Sizes
from pagoda import LLM, SamplingParams
from pagoda.engine.outputs import PositionLogprobs

SEED = 1
CANDIDATES = 8
# Of a token's log-probability. float32 sums are grouped otherwise; bfloat16 has 8 bits, rounded at each of some ten operations.
BOUNDS = {"float32": 0.005, "bfloat16": 0.1}


def run(context: Context, *, model: str) -> None:
    """Raises `ArithmeticError` once all is measured, where a difference is beyond its bound."""
    sizes = context.sizes
    generated = {dtype: _generated(context, model, dtype) for dtype in sizes.agreeing_dtypes}
    settings = {"device": "reference", "dtype": "float32"}
    with reference_on_gpu(), open_llm(context.folder / model, sizes, [_load(sizes)], **settings) as reference:
        beyond = []
        for dtype, (answers, scores) in generated.items():
            expected = _scores(reference, [text for text, _ in answers])
            decoded = [
                pair for (_, own), of_text in zip(answers, expected, strict=True) for pair in _last(own, of_text)
            ]
            read = [pair for own, of_text in zip(scores, expected, strict=True) for pair in _last(own, of_text)]
            found = {"decode": _compared(decoded), "prefill": _compared(read)}
            context.report(**{dtype: found})
            beyond += [f"{dtype} {kind}" for kind, each in found.items() if each["largest"] > BOUNDS[dtype]]
    if beyond:
        raise ArithmeticError(f"differences beyond {BOUNDS}: {', '.join(beyond)}")


Scores = list[PositionLogprobs]


def _generated(context: Context, model: str, dtype: str) -> tuple[list[tuple[list[int], Scores]], list[Scores]]:
    """Of answers in batches of several sizes: each whole text, and the answer's log-probabilities as it was decoded; then every
    text's own, as it was read as a prompt."""
    sizes = context.sizes
    numbers = random.Random(SEED)
    config = {**config_of_device(), "dtype": dtype}
    with open_llm(context.folder / model, sizes, [_load(sizes)], **config) as llm:
        vocabulary = range(llm.tokenizer.vocab_size)
        sampling = SamplingParams(temperature=0.0, max_tokens=sizes.agreeing_tokens, logprobs=1, ignore_eos=True)
        answers = []
        for batch in sizes.agreeing_batches:
            lengths = [numbers.randint(1, sizes.agreeing_prompt) for _ in range(batch)]
            outputs = llm.generate([numbers.choices(vocabulary, k=length) for length in lengths], sampling)
            for output in outputs:
                answer = output.outputs[0]
                answers.append(([*output.prompt_token_ids, *answer.token_ids], answer.logprobs or []))
        return answers, _scores(llm, [text for text, _ in answers])


def _load(sizes: Sizes) -> tuple[int, int]:
    return max(sizes.agreeing_batches), sizes.agreeing_prompt + sizes.agreeing_tokens


def _scores(llm: LLM, texts: Sequence[Sequence[int]]) -> list[Scores]:
    sampling = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=CANDIDATES, ignore_eos=True)
    outputs = llm.generate(list(texts), sampling)
    return [[position for position in output.prompt_logprobs or [] if position is not None] for output in outputs]


def _last(own: Scores, expected: Scores) -> Iterable[tuple[PositionLogprobs, PositionLogprobs]]:
    """The positions that both have: the last ones of the text."""
    return zip(own, expected[len(expected) - len(own) :], strict=True)


def _compared(pairs: Sequence[tuple[PositionLogprobs, PositionLogprobs]]) -> dict[str, Any]:
    """largest, mean: differences of a token's log-probability. other_best: positions with another most likely token;
    largest_margin: how much likelier the reference's is there, by the reference."""
    differences = [abs(own.chosen.logprob - expected.chosen.logprob) for own, expected in pairs]
    others = [
        expected.top[0].logprob - _logprob(own.top[0].token_id, expected)
        for own, expected in pairs
        if own.top[0].token_id != expected.top[0].token_id
    ]
    return {
        "positions": len(pairs),
        "largest": max(differences),
        "mean": sum(differences) / len(differences),
        "other_best": len(others),
        "largest_margin": max(others, default=0.0),
    }


def _logprob(token_id: int, position: PositionLogprobs) -> float:
    """At most: that of the last candidate, where the token is none of them."""
    return next((each.logprob for each in position.top if each.token_id == token_id), position.top[-1].logprob)
