"""What is compared: models, loads, and the ratios that are aimed at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PAGODA, LLAMA_CPP, OPENVINO, VLLM = "pagoda", "llama.cpp", "openvino", "vllm"


@dataclass(frozen=True, slots=True)
class Load:
    """`batch` different random prompts of `prompt_tokens`, each continued by exactly `output_tokens`.

    With one output token its rate is that of the prompts' tokens, with more that of the tokens after the first ones.
    """

    name: str
    batch: int
    prompt_tokens: int
    output_tokens: int

    @property
    def is_prefill(self) -> bool:
        return self.output_tokens == 1

    @property
    def length(self) -> int:
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Case:
    """One model under one load. targets: the least ratio of Pagoda's rate to a peer's. bandwidth: the least fraction."""

    model: str
    load: Load
    targets: Mapping[str, float] = field(default_factory=dict)
    bandwidth: float | None = None


DECODE_1, DECODE_16, DECODE_32 = (Load(f"decode {batch}", batch, 128, 32) for batch in (1, 16, 32))
PREFILL = Load("prefill 512", 1, 512, 1)
LOADS = (DECODE_1, DECODE_16, DECODE_32, PREFILL)

SMOLLM2, L_Q4_0, L_Q8_0, L_BF16, QWEN = "smollm2-q4_1", "l1.7b-q4_0", "l1.7b-q8_0", "l1.7b-bf16", "qwen2.5-0.5b-q4_k_m"

CASES = (
    Case(SMOLLM2, DECODE_1, {LLAMA_CPP: 1.8}),
    Case(SMOLLM2, DECODE_16, {OPENVINO: 1.3}),
    Case(SMOLLM2, DECODE_32, {OPENVINO: 1.3}),
    Case(SMOLLM2, PREFILL, {OPENVINO: 1.1}),
    Case(L_Q4_0, DECODE_1, {LLAMA_CPP: 1.0}, bandwidth=0.92),
    Case(L_Q4_0, DECODE_16, {OPENVINO: 1.45, LLAMA_CPP: 2.5}),
    Case(L_Q4_0, DECODE_32, {OPENVINO: 1.45, LLAMA_CPP: 2.5}),
    Case(L_Q4_0, PREFILL, {OPENVINO: 1.2, LLAMA_CPP: 2.3}),
    Case(L_Q8_0, DECODE_1, {LLAMA_CPP: 1.0}, bandwidth=0.92),
    Case(L_Q8_0, DECODE_16, {OPENVINO: 1.2}),
    Case(L_Q8_0, PREFILL, {OPENVINO: 1.2}),
    Case(QWEN, DECODE_1, {LLAMA_CPP: 1.4}),
    Case(QWEN, DECODE_16, {LLAMA_CPP: 2.5}),
    Case(QWEN, PREFILL, {LLAMA_CPP: 2.0}),
    Case(L_BF16, DECODE_1, {LLAMA_CPP: 1.0}),
    Case(L_BF16, DECODE_16, {VLLM: 1.4}),
    Case(L_BF16, DECODE_32, {VLLM: 1.25}),
    Case(L_BF16, PREFILL, {VLLM: 1.0}),
)
MODELS = tuple(dict.fromkeys(case.model for case in CASES))
PEERS = (LLAMA_CPP, OPENVINO, VLLM)


def peers_of(model: str) -> tuple[str, ...]:
    """Those that any target of the model names."""
    named = {peer for case in CASES if case.model == model for peer in case.targets}
    return tuple(peer for peer in PEERS if peer in named)


def cases_of(model: str, loads: tuple[str, ...]) -> tuple[Case, ...]:
    return tuple(case for case in CASES if case.model == model and case.load.name in loads)
