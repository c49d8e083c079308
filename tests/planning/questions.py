"""Questions for tests of the planner: the textbook's example, and changes of it."""

from dataclasses import replace
from typing import Any

from pagoda.planning.devices import parse_device
from pagoda.planning.hardware import Hardware
from pagoda.planning.question import Question
from tests.planning.specs import llama_7b, llama_spec, smollm2

GIB = 1 << 30
TEXTBOOK = parse_device("flops=312e12,bandwidth=2e12,memory=80e9")
THIS = Hardware("this machine", 8 * GIB, 35e9, {"F32": 2e11, "BF16": 4e11, "Q8_0": 6e11, "Q4_0": 6e11})


def textbook(**changes: Any) -> Question:
    """7e9 parameters in fp16 on 312 TFLOP/s, 2 TB/s, 80 GB: 16 requests of 2,048 tokens."""
    question = Question(
        model="llama-7b",
        served_as="huggyllama/llama-7b",
        spec=llama_7b(),
        stored="F16",
        device=TEXTBOOK,
        parameters=7_000_000_000,
        context=2048,
        concurrency=16,
    )
    return replace(question, **changes)


def on_cpu(**changes: Any) -> Question:
    """SmolLM2 on a CPU with two threads."""
    question = Question(
        model="smollm2",
        served_as="smollm2",
        spec=smollm2(),
        stored="BF16",
        device=THIS,
        threads=2,
        context=2048,
        concurrency=4,
    )
    return replace(question, **changes)


def small(**changes: Any) -> Question:
    """A model of grouped queries that is worked out in no time, on a device of a gigabyte."""
    spec = llama_spec(
        hidden_size=512,
        intermediate_size=1536,
        num_layers=4,
        num_heads=8,
        num_kv_heads=2,
        vocab_size=8192,
        context_length=8192,
    )
    device = parse_device("flops=1e13,bandwidth=1e11,memory=1e9,link=1e10")
    return replace(
        Question(model="small", spec=spec, stored="BF16", device=device, context=1024, concurrency=4), **changes
    )
