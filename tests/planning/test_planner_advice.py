"""Remedies that work when they are taken, formulas that are true, commands whose options exist."""

import math
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pagoda.config import EngineConfig, knobs
from pagoda.models.named_shapes import NAMED_SHAPES
from pagoda.models.planned import PLANNED
from pagoda.planning.devices import DEVICES, parse_device
from pagoda.planning.gpu_holding import gpu_format
from pagoda.planning.plan import Formula
from pagoda.planning.planner import make_plan
from pagoda.planning.question import Question
from tests.planning.questions import GIB, on_cpu, small, textbook

LATE = parse_device("flops=1e13,bandwidth=1e11,memory=1e9,link=1e10,latency=1e-6")
FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--concurrency": ("concurrency", int),
    "--context": ("context", int),
    "--memory-fraction": ("memory_fraction", float),
    "--weight-format": ("weight_format", str),
    "--kv-format": ("kv_format", str),
    "--devices": ("num_devices", int),
    "--device": ("device", parse_device),
}


def taken(question: Question, option: str) -> Question:
    """The question with the options of a remedy typed in."""
    words = shlex.split(option)
    for name, value in zip(words[::2], words[1::2], strict=True):
        field, read = FIELDS[name]
        question = replace(question, **{field: read(value)})
        if name == "--device":
            question = replace(question, threads=None)
    return question


def deepseek(**changes: Any) -> Question:
    config = NAMED_SHAPES["deepseek-v3"].config
    spec = PLANNED["deepseek_v3"](config)
    return textbook(model="deepseek-v3", spec=spec, stored="BF16", parameters=None, **changes)


def too_much() -> list[Question]:
    return [
        textbook(device=DEVICES["rtx-4090"]),
        textbook(parameters=None, device=DEVICES["rtx-4090"], concurrency=8),
        textbook(parameters=70_000_000_000, device=DEVICES["a100-80g"]),
        textbook(parameters=None, device=DEVICES["t4"], concurrency=1),
        small(device=parse_device("flops=1e12,bandwidth=1e11,memory=5e7")),
        deepseek(device=DEVICES["h200"]),
        deepseek(device=DEVICES["rtx-4090"]),
        deepseek(device=DEVICES["rtx-4090"], num_devices=64),
        on_cpu(device=replace(on_cpu().device, memory_bytes=300 << 20), context=8192),
        on_cpu(device=replace(on_cpu().device, memory_bytes=GIB), concurrency=100),
    ]


@pytest.mark.parametrize("index", range(len(too_much())))
def test_every_remedy_works(index: int) -> None:
    question = too_much()[index]
    plan = make_plan(question)
    assert not plan.fits
    assert plan.remedies
    for remedy in plan.remedies:
        assert make_plan(taken(question, remedy.option)).fits, remedy.option
    assert plan.remedies[0].option in plan.recommendation or question.threads


def test_remedies_are_the_smallest() -> None:
    plan = make_plan(textbook(device=DEVICES["rtx-4090"]))
    options = {remedy.option.rsplit(" ", 1)[0]: remedy.option.rsplit(" ", 1)[1] for remedy in plan.remedies}
    more = {"--concurrency": 1, "--context": 16}
    for name, step in more.items():
        question = taken(textbook(device=DEVICES["rtx-4090"]), f"{name} {int(options[name]) + step}")
        assert not make_plan(question).fits
    assert options["--devices"] == "2"


def test_several_devices_of_another_kind_where_nothing_else_helps() -> None:
    plan = make_plan(deepseek(device=DEVICES["rtx-4090"]))
    assert any(re.fullmatch(r"--device \S+ --devices \d+", remedy.option) for remedy in plan.remedies)


def test_what_nothing_helps_is_said() -> None:
    plan = make_plan(textbook(parameters=10**15))
    assert plan.remedies == ()
    assert "nothing tried" in plan.recommendation


def test_what_fits_needs_no_remedy() -> None:
    assert make_plan(textbook()).remedies == ()
    assert make_plan(textbook()).recommendation.startswith("It fits")


@pytest.mark.parametrize(
    "question",
    [
        textbook(),
        textbook(weight_format="int4", kv_format="fp8", max_batched_tokens=2048, block_size=32),
        textbook(parameters=None, device=DEVICES["rtx-4090"], num_devices=2),
        on_cpu(weight_format="int4"),
        on_cpu(concurrency=1000, context=64),
        on_cpu(stored="Q4_0", weight_format="int8"),
        on_cpu(stored="fp8_block", weight_format="int4", kv_format="int8"),
        textbook(parameters=None, stored="fp8", weight_format="int4"),
        textbook(parameters=None, stored="Q4_0", kv_format="fp8"),
        textbook(weight_format="fp8"),
        textbook(served_as="a model; rm -rf", revision="v1 && reboot"),
    ],
)
def test_commands_can_be_typed(question: Question) -> None:
    words = shlex.split(make_plan(question).serve_command)
    assert words[:3] == ["pagoda", "serve", question.served_as]
    table, values = knobs(), dict(zip(words[3::2], words[4::2], strict=True))
    fields = {name.removeprefix("--").replace("-", "_"): value for name, value in values.items()}
    config = EngineConfig(**{name: table[name][0](value) for name, value in fields.items()})
    assert config.revision == question.revision
    assert config.max_model_len == question.context
    assert config.max_num_seqs == question.concurrency <= config.max_batched_tokens
    assert config.memory_fraction == question.memory_fraction
    assert config.block_size == question.block_size
    quantizable = question.stored in ("BF16", "F16") or (
        question.stored == "fp8_block" and question.threads is not None
    )
    assert config.quantization == ((question.weight_format if quantizable else None) or "none")
    assert config.kv_cache_dtype == (question.kv_format or "auto")


def test_without_weights_the_command_names_none() -> None:
    plan = make_plan(textbook(served_as=None))
    assert plan.serve_command.startswith("pagoda serve MODEL --device")
    assert "Only a configuration is known" in plan.recommendation
    assert "Only a configuration" not in make_plan(textbook()).recommendation


def test_what_cannot_be_served_is_said_and_not_invented() -> None:
    plan = make_plan(textbook(num_devices=2, device=DEVICES["a100-80g"], weight_format="fp8", kv_format="fp8"))
    assert "it lacks tensor parallelism." in plan.recommendation
    for kv_format in ("int8", "fp8/int4", "fp32"):
        plan = make_plan(textbook(kv_format=kv_format))
        assert f"it lacks K and V in {kv_format} on a GPU." in plan.recommendation
        assert "--kv-cache-dtype" not in plan.serve_command
    gptq = small(stored=gpu_format(small().spec, "BF16", "int4"), served_as="org/gptq")
    for question in (gptq, replace(gptq, weight_format="int8")):
        assert "it lacks files with weights in int4" in make_plan(question).recommendation
    for stored, wanted in (("Q4_0", "bf16"), ("fp8", "int4")):
        plan = make_plan(small(stored=stored, weight_format=wanted))
        assert f"it lacks weights in {wanted} of files that are quantized." in plan.recommendation
    for name in ("v100-32g", "t4", "mi300x", "mi325x", "a10"):
        said = f"kernels for {name}." in make_plan(textbook(device=DEVICES[name])).recommendation
        assert said == (name != "a10")
    mixture = make_plan(deepseek(device=DEVICES["b200"], num_devices=8, weight_format="fp8"))
    assert "mixtures of experts, multi-head latent attention and tensor parallelism" in mixture.recommendation


def worked_out(formula: Formula) -> float:
    """The right-hand side, reckoned: remarks in brackets and words left out, rates in their units."""
    text = re.sub(r"\([^()×÷+−^]*\)", "", formula.terms).replace(",", "")
    for prefix, factor in (("T", "e12"), ("G", "e9"), ("M", "e6")):
        text = re.sub(rf"([\d.]+) {prefix}(?=FLOP/s|B/s)", rf"\g<1>{factor} ", text)
    text = re.sub(r"(?<![\d.])[A-Za-z_][\w/.]*", "", text)
    for shown, meant in (("×", "*"), ("÷", "/"), ("−", "-"), ("^", "**")):
        text = text.replace(shown, meant)
    assert re.fullmatch(r"[\d.e*/+() -]+", text), formula
    value = eval(text)
    return 1e3 * value if formula.unit == "ms" else value


def with_windows() -> Question:
    spec = small().spec
    layers = tuple(
        replace(layer, attention=replace(layer.attention, window=256 if index else None))
        for index, layer in enumerate(spec.layers)
    )
    return small(spec=replace(spec, layers=layers))


@pytest.mark.parametrize(
    "question",
    [
        textbook(),
        textbook(weight_format="int4"),
        textbook(weights_only=True),
        textbook(parameters=None, device=DEVICES["rtx-4090"]),
        small(weight_format="fp8", kv_format="int8"),
        small(weight_format="int4", kv_format="fp8/int4"),
        small(num_devices=4, device=LATE, stored="Q4_K"),
        with_windows(),
        on_cpu(),
        on_cpu(weight_format="int4"),
        deepseek(device=DEVICES["b200"], num_devices=8, weight_format="fp8"),
        deepseek(device=DEVICES["h200"], context=2),
    ],
)
def test_every_formula_is_true(question: Question) -> None:
    for formula in make_plan(question).formulas:
        if formula.name == "decode is bound by compute from":
            continue  # it says what was compared
        value = worked_out(formula)
        if "rounded down" in formula.terms or formula.name.startswith("memory that may be used"):
            value = math.floor(value)
        assert value == pytest.approx(formula.value, rel=1e-9, abs=1), formula


def test_mixed_layers_are_a_sum_of_terms() -> None:
    spec = small().spec
    layers = tuple(
        replace(layer, attention=replace(layer.attention, num_kv_heads=1)) if index == 0 else layer
        for index, layer in enumerate(spec.layers)
    )
    plan = make_plan(small(spec=replace(spec, layers=layers)))
    said = {formula.name: str(formula) for formula in plan.formulas}["K and V of a token"]
    assert said == "2 × 1 layer × 1 heads × 64 × 2 B + 2 × 3 layers × 2 heads × 64 × 2 B = 1,792 B/token"


def test_latents_in_a_formula() -> None:
    plan = make_plan(deepseek(device=DEVICES["h200"]))
    said = {formula.name: str(formula) for formula in plan.formulas}["K and V of a token"]
    assert said == "61 layers × (512 + 64) × 2 B = 70,272 B/token"
