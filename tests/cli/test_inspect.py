"""`pagoda inspect`: one JSON object or readable tables, from headers alone, and one sentence for what is wrong."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pagoda.cli.inspect import inspect
from pagoda.errors import InvalidValueError, ModelFileError
from tests.cli.command import pagoda, run
from tests.tiny_model import HEAD_DIM, HIDDEN, INTERMEDIATE, KV_HEADS, LAYERS, VOCAB_SIZE, write_tiny_model

LAYER_PARAMETERS = HIDDEN * (HIDDEN * 2 + 2 * KV_HEADS * HEAD_DIM + 3 * INTERMEDIATE + 2)
PARAMETERS = VOCAB_SIZE * HIDDEN + LAYERS * LAYER_PARAMETERS + HIDDEN


def inspected(capsys: pytest.CaptureFixture[str], model: Path | str, **options: Any) -> dict[str, Any]:
    inspect(str(model), json=True, **options)
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 1
    assert printed.err == ""
    report: dict[str, Any] = json.loads(printed.out)
    return report


def test_json_describes_the_model(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = inspected(capsys, tiny_model, context=100, batch=3, dtype="bfloat16")
    assert report["architecture"]["num_layers"] == LAYERS
    assert report["architecture"]["layers"][0]["count"] == LAYERS
    assert report["parameters"]["total"] == sum(report["parameters"]["by_part"].values()) == PARAMETERS
    memory = report["memory"]
    assert memory["weight_bytes"] == 2 * PARAMETERS + 2 * report["parameters"]["by_part"]["norm"]
    assert memory["kv_bytes_per_token"] == LAYERS * 2 * KV_HEADS * HEAD_DIM * 2
    assert memory["kv_bytes_total"] == 300 * memory["kv_bytes_per_token"]
    assert report["files"]["formats"].keys() == {"F32"}
    assert report["files"]["tensor_bytes"] == memory["weight_bytes_as_stored"] == 4 * PARAMETERS


def test_by_default_the_model_is_as_the_cpu_holds_it(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored, int8 = (inspected(capsys, tiny_model, quantization=name)["memory"] for name in ("none", "int8"))
    assert (stored["dtype"], int8["dtype"]) == ("stored", "int8")
    assert stored["weight_bytes_as_stored"] <= stored["weight_bytes"] < 1.1 * stored["weight_bytes_as_stored"]
    assert int8["weight_bytes"] < 0.5 * stored["weight_bytes"]
    assert stored["kv_dtype"] == int8["kv_dtype"] == "bfloat16"
    assert stored["kv_bytes_per_token"] == int8["kv_bytes_per_token"] == LAYERS * 2 * KV_HEADS * HEAD_DIM * 2


def test_the_cache_may_be_int8(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = inspected(capsys, tiny_model, kv_cache_dtype="int8")["memory"]
    assert (memory["kv_dtype"], memory["dtype"]) == ("int8", "stored")
    assert memory["kv_bytes_per_token"] == LAYERS * 2 * KV_HEADS * (HEAD_DIM + 2)


@pytest.mark.parametrize("step", ["decode_step", "prefill"])
def test_the_parts_sum_to_the_step(tiny_model: Path, capsys: pytest.CaptureFixture[str], step: str) -> None:
    report = inspected(capsys, tiny_model, context=100, batch=3)[step]
    assert report["num_tokens"] == {"decode_step": 3, "prefill": 300}[step]
    for figure in ("flops", "weight_bytes", "kv_read_bytes", "kv_written_bytes"):
        assert sum(part[figure] for part in report["parts"]) == report[figure] > 0
    assert report["bytes"] == report["weight_bytes"] + report["kv_read_bytes"] + report["kv_written_bytes"]


def test_tables_name_every_part(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inspect(str(tiny_model))
    shown = capsys.readouterr().out
    assert f"{PARAMETERS:,}" in shown
    for part in ("embedding", "q, k, v", "attention scores", "gate, up", "down", "head", "sampling", "One decode step"):
        assert part in shown
    assert "…" not in shown


def test_no_torch_and_no_weight_is_read(tiny_model: Path) -> None:
    script = (
        "import sys; from pagoda.cli.inspect import inspect; from pagoda.loading.huggingface import HuggingFaceCheckpoint\n"
        "del HuggingFaceCheckpoint.read\n"
        "inspect(sys.argv[1], json=True); assert 'torch' not in sys.modules"
    )
    finished = run([sys.executable, "-c", script], tiny_model)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"context": 257}, "--context: got 257, must be an integer from 1 to 256"),
        ({"context": 0}, "--context: got 0, must be an integer from 1 to 256"),
        ({"batch": 0}, "--batch: got 0, must be an integer from 1 to 4,096"),
        ({"dtype": "int3"}, "--dtype: got 'int3', must be one of auto, float32, bfloat16, float16"),
        ({"quantization": "int3"}, "--quantization: got 'int3', must be one of none, int8, int4"),
        (
            {"quantization": "int8", "dtype": "float32"},
            "--quantization: got 'int8', must be none with --dtype float32, which is torch's",
        ),
        (
            {"kv_cache_dtype": "int8", "dtype": "float32"},
            "--kv-cache-dtype: got 'int8', must be auto with --dtype float32, which is torch's",
        ),
    ],
)
def test_a_wrong_option_is_refused_by_name(tiny_model: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        inspect(str(tiny_model), **options)
    assert str(refused.value) == sentence


def test_the_command_takes_the_same_options_and_refuses_in_one_sentence(tiny_model: Path) -> None:
    good = pagoda("inspect", tiny_model, "--json", "--context", "7", "--batch", "2", "--dtype", "float16")
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["memory"]["kv_bytes_total"] == 2 * 7 * LAYERS * 2 * KV_HEADS * HEAD_DIM * 2
    bad = pagoda("inspect", tiny_model, "--context", "257")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "pagoda: --context: got 257, must be an integer from 1 to 256\n"


def test_a_missing_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="nothing"):
        inspect(str(tmp_path / "nothing"))


@pytest.mark.smollm2
def test_the_embedded_default_is_inspected(capsys: pytest.CaptureFixture[str]) -> None:
    report = inspected(capsys, "smollm2")
    assert {name: entry["tensors"] for name, entry in report["files"]["formats"].items()} == {
        "Q4_1": 210,
        "Q8_0": 1,
        "F32": 61,
    }
    assert report["parameters"]["total"] == 134_515_008
    assert report["memory"]["kv_bytes_per_token"] == 23_040
    inspect("smollm2")
    assert "Q4_1 ×210" in capsys.readouterr().out


def test_a_wrong_configuration_names_the_model(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "rope_theta": 1e308}))
    with pytest.raises(ModelFileError, match=r"/tiny: the model's config: rope_theta: got 1e\+308, must be"):
        inspect(str(model))
