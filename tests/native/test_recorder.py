"""Recording and lowering: which commands, in which forms, and where tensors lie. Needs no native module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from pagoda.ops.cpu import Command, CpuOps, Step, Symbol
from pagoda.ops.cpu_lowering import Lowered, fused, lower
from pagoda.ops.cpu_program import emit, record
from pagoda.ops.cpu_weights import CpuWeight
from pagoda.ops.interface import AttentionLayer
from pagoda.planning.model_spec import AttentionSpec, RopeSpec
from pagoda.planning.native_formats import F32, Form, form_bytes
from tests.models.fakes import CONFIGS
from tests.native.stand_ins import FakeProgram, fake_model, matrix

GEMMA3 = {**CONFIGS["gemma3"], "sliding_window_pattern": 2}
MODELS = {**CONFIGS, "gemma3": GEMMA3}
BATCH = Step()
GAIN = CpuWeight(np.ones(64, np.float32))
FORMS: tuple[tuple[Form, ...], ...] = (("f32",), ("bf16",), ("q8",), ("f32", "q8"))
ROWS = 40


def names(commands: Sequence[Command]) -> list[str]:
    return [command.name for command in commands]


def q8(in_features: int, *segments: int) -> CpuWeight:
    return matrix(in_features, segments, ["q8"])


def lowered_model(name: str, forms: Sequence[Form]) -> Lowered:
    _, model = fake_model(MODELS[name], forms)
    return lower(record(model.forward), ROWS)


@pytest.mark.parametrize("forms", FORMS, ids="+".join)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_family_is_recorded_and_every_read_finds_what_was_written(name: str, forms: tuple[Form, ...]) -> None:
    lowered = lowered_model(name, forms)
    written: set[tuple[Symbol, Form]] = set()
    for command in lowered.commands:
        for symbol, wanted in command.reads:
            assert {(symbol, form) for form in wanted} <= written, command.name
        for symbol, made in command.writes:
            assert made == set(lowered.tensors[symbol])
            written |= {(symbol, form) for form in made}
    assert lowered.commands[-1].name == "logits_linear"


@pytest.mark.parametrize("forms", FORMS, ids="+".join)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_no_command_finds_its_inputs_overwritten(name: str, forms: tuple[Form, ...]) -> None:
    """Played over an arena of bytes that know who wrote them last."""
    lowered = lowered_model(name, forms)
    owner = np.full(lowered.arena_bytes, -1)
    marks: dict[tuple[Symbol, Form], int] = {}
    for command in lowered.commands:
        for symbol, wanted in command.reads:
            for form in wanted:
                assert (owner[span(lowered, symbol, form)] == marks[symbol, form]).all(), command.name
        for symbol, made in command.writes:
            for form in made:
                mark = marks[symbol, form] = len(marks)
                taken = span(lowered, symbol, form)
                assert taken.start % 64 == 0
                assert taken.stop <= lowered.arena_bytes
                owner[taken] = mark
        inputs = {(symbol, form) for symbol, wanted in command.reads for form in wanted}
        outputs = [(symbol, form) for symbol, made in command.writes for form in made]
        check_no_clash(lowered, command, inputs, outputs)


def check_no_clash(
    lowered: Lowered, command: Command, inputs: set[tuple[Symbol, Form]], outputs: list[tuple[Symbol, Form]]
) -> None:
    """Outputs lie neither over each other nor over inputs, but for the total that takes its input's exact place."""
    replaced = (command.reads[0][0], "f32") if command.in_place else None
    for index, output in enumerate(outputs):
        mine = span(lowered, *output)
        for other in (*outputs[:index], *inputs):
            theirs = span(lowered, *other)
            if other == replaced and output == (command.writes[0][0], "f32") and mine == theirs:
                continue
            assert mine.stop <= theirs.start or theirs.stop <= mine.start, command.name


def span(lowered: Lowered, symbol: Symbol, form: Form) -> slice:
    start = lowered.tensors[symbol][form]
    return slice(start, start + form_bytes(form, symbol.width, ROWS))


def test_gate_up_and_their_activation_become_one_command() -> None:
    ops = CpuOps()
    x = ops.embed(BATCH, q8(64, 100))
    ops.logits(BATCH, ops.linear(ops.gated_activation(ops.linear(x, q8(64, 96, 96)), "silu"), q8(96, 64)), q8(64, 100))
    lowered = lower(ops.commands, ROWS)
    assert names(lowered.commands) == ["embed", "gated_linear", "linear", "convert", "select_rows", "logits_linear"]
    assert lowered.commands[1].writes[0][0].width == 96
    assert lowered.commands[1].writes[0][1] == {"q8"}


def test_halves_that_are_not_whole_segments_are_not_fused() -> None:
    ops = CpuOps()
    x = ops.embed(BATCH, q8(64, 100))
    ops.gated_activation(ops.linear(x, q8(64, 192)), "silu")
    assert names(fused(ops.commands)) == ["embed", "linear", "gated_activation"]


def test_a_product_that_is_read_twice_is_not_fused() -> None:
    ops = CpuOps()
    wide = ops.linear(ops.embed(BATCH, q8(64, 100)), q8(64, 32, 32))
    ops.add(wide, wide)
    ops.gated_activation(wide, "silu")
    assert names(fused(ops.commands)) == ["embed", "linear", "add", "gated_activation"]


def test_attention_with_narrow_heads_is_converted_before_it_is_quantized() -> None:
    for head_dim, converted in ((32, False), (16, True)):
        spec = AttentionSpec(4, 2, head_dim, 0.25, RopeSpec(head_dim, 10_000.0))
        layer: AttentionLayer[CpuWeight] = AttentionLayer(0, spec)
        ops = CpuOps()
        qkv = ops.linear(ops.embed(BATCH, q8(64, 100)), q8(64, 8 * head_dim))
        attended = ops.paged_attention(BATCH, ops.rope_and_store_kv(BATCH, qkv, layer), layer)
        ops.linear(attended, q8(4 * head_dim, 64))
        lowered = lower(ops.commands, ROWS)
        assert ("convert" in names(lowered.commands)) == converted
        attention = next(command for command in lowered.commands if command.name == "paged_attention")
        assert attention.writes[0][1] == ({"f32"} if converted else {"q8"})


def test_one_tensor_for_readers_of_several_forms() -> None:
    ops = CpuOps()
    x = ops.embed(BATCH, q8(64, 100))
    for forms in (["q8"], ["bf16"], ["q8", "f32"]):
        ops.linear(x, matrix(64, [64], cast(list[Form], forms)))
    lowered = lower(ops.commands, ROWS)
    assert names(lowered.commands) == ["embed"] + ["linear"] * 3
    assert set(lowered.tensors[x]) == {"f32", "bf16", "q8"}


def test_the_residual_stream_stays_where_it_is() -> None:
    lowered = lowered_model("llama", ("q8",))
    stream = [command.writes[0][0] for command in lowered.commands if command.name in ("embed", "add_rms_norm")]
    assert len(stream) == 5
    assert len({lowered.tensors[symbol]["f32"] for symbol in stream}) == 1


def test_a_stream_that_is_read_again_is_not_overwritten() -> None:
    ops = CpuOps()
    x, y = ops.embed(BATCH, q8(64, 100)), ops.embed(BATCH, q8(64, 100))
    total, _ = ops.add_rms_norm(x, y, GAIN, 1e-5)
    ops.add(x, total)
    lowered = lower(ops.commands, ROWS)
    assert lowered.tensors[total]["f32"] != lowered.tensors[x]["f32"]


def test_a_total_of_one_tensor_with_itself_gets_a_place_of_its_own() -> None:
    ops = CpuOps()
    x = ops.embed(BATCH, q8(64, 100))
    total, _ = ops.add_rms_norm(x, x, GAIN, 1e-5)
    lowered = lower(ops.commands, ROWS)
    assert lowered.tensors[total]["f32"] != lowered.tensors[x]["f32"]


def test_equal_ropes_are_declared_once() -> None:
    for name, kinds in (("llama", 1), ("gemma3", 2), ("gpt2", 0)):
        program = emitted(name, ("q8",))
        assert len(program.ropes) == kinds
        numbers = [call[1][4] for call in program.calls if call[0] == "rope_and_store_kv"]
        assert set(numbers) == (set(range(kinds)) or {-1})


def test_commands_carry_what_the_model_says() -> None:
    program = emitted("gemma3", ("bf16",))
    spec, _ = fake_model(GEMMA3, ("bf16",))
    calls = dict(reversed(program.calls))
    assert calls["embed"][2] == spec.embedding_scale
    *_, scale, window = calls["paged_attention"]
    assert (scale, window) == (spec.layers[0].attention.scale, spec.layers[0].attention.window)
    q_norm, k_norm, eps = calls["rope_and_store_kv"][5:]
    assert (q_norm.shape, k_norm.shape, eps) == ((8,), (8,), spec.norm_eps)
    assert calls["gated_linear"][3] == "gelu_tanh"
    assert program.calls[-1][0] == "logits_linear"


def test_norms_name_the_stream_and_what_is_added() -> None:
    program = emitted("gpt2", ("q8",))
    (out, x, _, _, _, y, total) = next(
        call[1] for call in program.calls if call[0] == "layer_norm" and len(call[1]) > 5
    )
    assert len({out, x, y, total}) == 4
    assert program.tensors[total] == program.tensors[x]  # the same place
    assert program.tensors[out][1].keys() == {"q8"}


def emitted(name: str, forms: Sequence[Form]) -> FakeProgram:
    program = FakeProgram()
    emit(lowered_model(name, forms), cast(Any, program))
    return program


def test_an_output_that_nobody_reads_is_written_in_float32() -> None:
    lowered = lowered_model("llama", ("q8",))
    last_norm = [command for command in lowered.commands if command.name == "add_rms_norm"][-1]
    assert last_norm.writes[0][1] == F32
