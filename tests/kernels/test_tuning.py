"""The choice of kernels and tiles: what is shipped, what is worked out, and how it is measured."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources

import pytest
import torch

from pagoda.ops.cuda import tuning
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.tune import Launch, Shape, candidates, main, measured
from pagoda.ops.cuda.tuning import Tiling, choose, fits, parsed, table
from pagoda.planning.cuda_workspace import most_sums
from tests.kernels.products import machine_for

SHAPES = [(12288, 4096), (4096, 11008), (32000, 4096), (152064, 3584), (1024, 2048), (576, 1536), (128, 64), (30, 8)]


def gpu(multiprocessors: int, capability: tuple[int, int], name: str = "") -> Machine:
    machine = machine_for(torch.bfloat16)
    return replace(machine, multiprocessors=multiprocessors, capability=capability, name=name)


@pytest.mark.parametrize(("multiprocessors", "capability"), [(132, (9, 0)), (142, (8, 9)), (108, (8, 0)), (4, (7, 5))])
def test_what_is_worked_out_fits(multiprocessors: int, capability: tuple[int, int]) -> None:
    machine = gpu(multiprocessors, capability)
    for shape in SHAPES:
        for is_gated in (False, True):
            for rows in (1, 2, 3, 16, 17, 64, 65, 5000):
                tiling = choose(shape, rows, machine, is_gated=is_gated)
                assert tiling.kernel == ("gemv" if rows == 1 else "tiled")
                assert fits(tiling, shape, rows, is_gated=is_gated)
                halves = 2 if is_gated else 1
                stage = (halves * tiling.outputs + tiling.rows) * tiling.inputs * 2
                assert rows == 1 or stage * tiling.num_stages <= (
                    163 << 10 if capability in {(9, 0), (8, 0)} else 99 << 10
                )


@pytest.mark.parametrize("rows", [1, 16])
def test_what_is_tried_leaves_no_more_sums_than_there_is_room_for(rows: int) -> None:
    shape = Shape(4096, 11008)
    for tiling in candidates(shape, rows, gpu(132, (9, 0))):
        assert -(-shape.outputs // tiling.outputs) <= most_sums(shape.outputs)


def test_few_outputs_still_fill_the_gpu() -> None:
    machine = gpu(132, (9, 0))
    for shape in [(4096, 4096), (4096, 11008), (1024, 3072)]:
        for rows in (1, 16):
            tiling = choose(shape, rows, machine)
            assert shape[0] // tiling.outputs * tiling.splits >= 128


def test_parts_of_sums_are_few_beside_the_weights_where_tiles_fill_the_gpu() -> None:
    machine = gpu(132, (9, 0))
    splits = {rows: choose((22016, 4096), rows, machine, is_gated=True).splits for rows in (16, 32, 64)}
    assert splits[64] == splits[32] == 1
    assert splits[16] > 1


def test_the_shipped_tables_can_be_used() -> None:
    files = [file for file in (resources.files(tuning.__package__) / "tuned").iterdir() if file.name.endswith(".json")]
    assert files
    for file in files:
        name = json.loads(file.read_text("utf-8"))["device"]
        assert file.name == f"{tuning.file_name(name)}.json"
        for (outputs, inputs, rows, is_gated), tilings in table(name).items():
            assert rows in (1, 2, 4, 8, 16, 32, 64)
            assert tilings
            for tiling in tilings:
                assert tiling.kernel == "blas" or fits(tiling, (outputs, inputs), rows, is_gated=is_gated)


def test_a_measured_kernel_is_taken_where_it_can_be_used() -> None:
    machine = gpu(132, (9, 0), "NVIDIA H200")
    assert choose((4096, 11008), 20, machine, can_use_blas=True) == Tiling("blas")
    assert choose((4096, 11008), 20, machine).kernel == "tiled"
    assert choose((4096, 11008), 16, machine, can_use_blas=True).kernel == "tiled"
    assert choose((4096, 11008), 20, replace(machine, dtype=torch.float32), can_use_blas=True).kernel == "tiled"
    assert choose((4096, 11008), 20, replace(machine, name="another"), can_use_blas=True).kernel == "tiled"


@pytest.mark.parametrize(("shape", "rows"), [(Shape(24, 40), 2), (Shape(32, 40, is_gated=True), 1)])
def test_the_fastest_comes_first(shape: Shape, rows: int) -> None:
    machine = machine_for(torch.float16)
    taken: list[float] = []

    def seconds(launches: Sequence[Launch]) -> float:
        assert len(launches) == 2
        for launch in launches:
            launch()
        taken.append(random.random())
        return taken[-1]

    document = measured([shape], [rows], machine, seconds, weight_bytes=2 * shape.outputs * shape.inputs * 2)
    document = json.loads(json.dumps(document))
    (entry,) = document["products"]
    tilings = parsed(document)[shape.outputs, shape.inputs, rows, shape.is_gated]
    *of_tiles, of_library = taken
    assert len(of_tiles) > 1
    assert entry["microseconds"] == [round(time * 5e5, 2) for time in sorted([min(of_tiles), of_library])]
    kernels = ["gemv" if rows == 1 else "tiled", "blas"]
    assert [tiling.kernel for tiling in tilings] == (kernels if min(of_tiles) < of_library else kernels[::-1])


def test_tiles_that_compute_something_else_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Tiling("gemv", 1, 8, 16)
    monkeypatch.setattr("pagoda.ops.cuda.tune.candidates", lambda *_: [wrong, replace(wrong, outputs=4)])
    multiply = measured.__globals__["multiply"]

    def sometimes_wrong(x, values, epilogue, machine, tiling) -> None:  # type: ignore[no-untyped-def]
        multiply(x, values, epilogue, machine, tiling)
        if tiling == wrong:
            epilogue.out[0, 0] += 1

    monkeypatch.setattr("pagoda.ops.cuda.tune.multiply", sometimes_wrong)
    document = measured([Shape(8, 16)], [1], machine_for(torch.float16), lambda launches: float(len(launches)), 1)
    assert wrong not in parsed(document)[8, 16, 1, False]
    assert replace(wrong, outputs=4) in parsed(document)[8, 16, 1, False]


@pytest.mark.parametrize("arguments", [["12x"], ["3x4:gate"], ["3x4", "--rows", "3"], ["--rows", "1,,2"]])
def test_the_command_refuses_what_it_cannot_read(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tune", *arguments, "--output", "/nonexistent/out"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert arguments[-1] in capsys.readouterr().err
