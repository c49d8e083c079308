"""The GPU's programs: what lowering joins, that it changes no result, and that no two tensors that live at once overlap."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from pagoda.ops.cuda.program import Program
from pagoda.ops.cuda.symbols import Symbol
from pagoda.runner.batch import Batch
from tests.parity.configs import CONFIGS, tiny_model
from tests.parity.cuda import CudaSteps, cuda_step
from tests.parity.harness import BLOCK_SIZE

PROMPTS = [list(range(3, 40)), list(range(50, 55)), [9]]


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def steps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CudaSteps:
    """A tiny model after its prompts, so that a step of one token each may follow."""
    directory: Path = tmp_path_factory.mktemp(request.param)
    tiny_model(request.param).save_pretrained(directory)
    steps = CudaSteps(directory, PROMPTS, max(map(len, PROMPTS)) + 1)
    for sequence in steps.sequences:
        sequence.append(7)
    steps.step({row: len(prompt) for row, prompt in enumerate(PROMPTS)})
    return steps


def decode_batch(steps: CudaSteps) -> Batch:
    lengths = np.array([len(prompt) + 1 for prompt in PROMPTS])
    positions, rows = lengths - 1, np.arange(len(PROMPTS))
    return Batch(
        input_ids=np.full(len(rows), 7, np.int64),
        positions=positions,
        slot_mapping=steps.table[rows, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE,
        query_start_loc=np.arange(len(rows) + 1, dtype=np.int32),
        seq_lens=lengths.astype(np.int32),
        block_table=steps.table.astype(np.int32),
        logit_rows=rows,
        new_blocks=np.zeros(0, np.int64),
    )


def test_all_programs_agree_on_a_step_of_one_token_each(steps: CudaSteps) -> None:
    step, model = cuda_step(decode_batch(steps)), steps.model
    with torch.inference_mode():
        logits = {
            name: program.run(step).clone()
            for name, program in (("mixed", model.mixed), ("decode", model.decode), ("few", model.few))
        }
    spread = logits["mixed"].max() - logits["mixed"].min()
    for name in ("decode", "few"):
        assert (logits[name] - logits["mixed"]).abs().max() <= 1e-5 * spread, name


def test_a_layer_of_a_few_rows_is_five_kernels(tmp_path: Path) -> None:
    tiny_model("llama-gqa").save_pretrained(tmp_path)
    model = CudaSteps(tmp_path, PROMPTS, 64).model

    few, mixed = ([name for name in names(program) if name != "Angles"] for program in (model.few, model.mixed))
    # The first norm has no product before it; rows are selected twice, of the last norm and of its sums of squares.
    layer = ["Product", "DecodeAttention", "Product", "Product", "Product"]
    assert few == ["Embed", "Norm", *layer * 3, "SelectRows", "SelectRows", "Product"]
    layer = ["Product", "RopeAndStore", "Attention", "Product", "Norm", "Product", "Gate", "Product", "Norm"]
    assert mixed == ["Embed", "Norm", *layer * 3, "SelectRows", "Product"]


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.float32, "few"), (torch.bfloat16, "few"), (torch.float16, "decode")]
)
def test_a_norm_is_not_finished_late_where_it_might_overflow(tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    tiny_model("llama-gqa").save_pretrained(tmp_path)
    steps = CudaSteps(tmp_path, PROMPTS, 64, dtype)

    assert steps.model.program_for(cuda_step(decode_batch(steps))) is getattr(steps.model, name)


def test_what_has_a_bias_or_another_reader_is_not_joined(tmp_path: Path) -> None:
    tiny_model("gpt2").save_pretrained(tmp_path / "gpt2")
    tiny_model("gemma3").save_pretrained(tmp_path / "gemma3")

    for name in ("gpt2", "gemma3"):  # layer norms; norms between a product and the addition
        model = CudaSteps(tmp_path / name, PROMPTS, 64).model
        assert names(model.few) == names(model.decode)


def names(program: Program) -> list[str]:
    return [type(command).__name__ for command in program.commands]


def test_tensors_that_live_at_once_do_not_overlap(steps: CudaSteps) -> None:
    for program in (steps.model.mixed, steps.model.decode, steps.model.few):
        lives: dict[Symbol, tuple[int, int]] = {}
        for index, command in enumerate(program.commands):
            for symbol in (*command.reads, *command.writes):
                lives[symbol] = (lives.get(symbol, (index, 0))[0], index)
        for (one, life), (other, its_life) in itertools.combinations(lives.items(), 2):
            if life[0] <= its_life[1] and its_life[0] <= life[1]:
                span, its_span = program.places[one], program.places[other]
                assert span.stop <= its_span.start or its_span.stop <= span.start
        assert all(span.stop <= program.arena_bytes for span in program.places.values())
