"""`pagoda plan` through the real command: the textbook's figures, the JSON that others build on, and one sentence for what
is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pagoda.cli import this_machine
from pagoda.planning.calibrated_time import CalibratedTimer
from pagoda.planning.deployment import deploy
from pagoda.planning.formats import FORMATS
from pagoda.runner.host_cores import usable_cores
from tests.cli.command import run
from tests.cli.conftest import Pagoda
from tests.planning.questions import textbook
from tests.tiny_model import HEAD_DIM, KV_HEADS, LAYERS

TEXTBOOK = ("--device", "flops=312e12,bandwidth=2e12,memory=80e9", "--weight-format", "fp16")
CONTRACT = {
    "weight_bytes", "kv_bytes_per_token", "kv_bytes_total", "decode_compute_ms", "decode_memory_ms", "decode_bound",
    "prefill_ms", "max_concurrency", "max_context", "fits", "decode_estimate_ms",
}  # fmt: skip


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine whose limits are known, so that `--device this` measures nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PAGODA_CPU_ISA", raising=False)
    ceilings = dict.fromkeys(FORMATS, 6e11)
    report = {"threads": usable_cores(), "instruction_set": "avx2", "read_bandwidth": 3e10, "peak_operations": {}}
    this_machine.save_limits({**report, "format_ceilings": ceilings})


def planned(pagoda: Pagoda, *arguments: str | Path) -> dict[str, Any]:
    finished = pagoda("plan", *arguments, "--json")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.count("\n") == 1
    report: dict[str, Any] = json.loads(finished.stdout)
    return report


def refusal(pagoda: Pagoda, *arguments: str | Path) -> str:
    finished = pagoda("plan", *arguments)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith("pagoda: ")
    assert finished.stderr.count("\n") == 1
    return finished.stderr[len("pagoda: ") : -1]


def test_the_textbooks_decode_token(pagoda: Pagoda) -> None:
    report = planned(pagoda, "llama-7b", "--parameters", "7e9", *TEXTBOOK, "--weights-only")
    assert report["weight_bytes"] == 14_000_000_000
    assert report["decode_flops"] == 14_000_000_000
    assert round(report["decode_compute_ms"], 4) == 0.0449
    assert round(report["decode_memory_ms"], 2) == 7.00
    assert report["decode_bound"] == "memory"
    assert (report["decode_kv_bytes"], report["weights_only"]) == (0, True)
    assert report["ridge"] == 156


def test_the_textbooks_cache(pagoda: Pagoda) -> None:
    one = planned(pagoda, "llama-7b", "--parameters", "7B", *TEXTBOOK)
    assert (one["kv_bytes_per_token"], one["kv_bytes_total"]) == (524_288, 1 << 30)
    many = planned(pagoda, "llama-7b", "--parameters", "7000000000", *TEXTBOOK, "--concurrency", "16")
    assert many["kv_bytes_total"] == 16 << 30
    assert many["kv_share_of_memory_in_use"] > 0.5
    # K and V are read as well as the weights, and told apart.
    assert many["decode_memory_ms"] == pytest.approx(1e3 * (14e9 + many["decode_kv_bytes"]) / 2e12)
    assert many["decode_kv_bytes"] == pytest.approx(16 << 30, rel=1e-3)


def test_the_exact_model_on_the_datasheet(pagoda: Pagoda) -> None:
    report = planned(pagoda, "llama-7b", "--device", "a100-40g", "--weights-only")
    assert report["parameters"] == 6_738_415_616
    assert report["weight_bytes"] == 2 * 6_738_415_616
    # One row of the table of 32,000 is read, not all of it.
    assert report["decode_weight_bytes"] == 2 * (6_738_415_616 - 31_999 * 4096)
    assert report["decode_memory_ms"] == pytest.approx(1e3 * report["decode_weight_bytes"] / 1555e9)
    assert "A100" in report["device"]["source"]


@pytest.mark.parametrize("json_", [True, False])
def test_the_roofline_of_any_pair(pagoda: Pagoda, json_: bool) -> None:
    finished = pagoda("plan", "--roofline", "flop=14e9,bytes=14e9", *TEXTBOOK, *(["--json"] if json_ else []))
    assert (finished.returncode, finished.stderr) == (0, "")
    if not json_:
        for figure in ("0.0449 ms", "7.00 ms", "memory binds", "1.00 FLOP/B", "156"):
            assert figure in finished.stdout
        return
    report = json.loads(finished.stdout)
    assert (round(report["compute_ms"], 4), round(report["memory_ms"], 2)) == (0.0449, 7.0)
    assert (report["bound"], report["intensity"], report["ridge"]) == ("memory", 1.0, 156.0)


def test_the_roofline_where_compute_binds(pagoda: Pagoda) -> None:
    finished = pagoda(
        "plan", "--roofline", "bytes=1e9,flop=1e15", "--device", "h100-sxm", "--weight-format", "fp8", "--json"
    )
    report = json.loads(finished.stdout)
    assert report["bound"] == "compute"
    assert report["compute_ms"] == pytest.approx(1e18 / 1979e12)


def test_json_holds_the_contract_and_is_consistent(pagoda: Pagoda, tiny_model: Path) -> None:
    report = planned(pagoda, tiny_model, "--context", "100", "--concurrency", "3")
    assert report.keys() >= CONTRACT
    assert report["kv_bytes_per_token"] == LAYERS * 2 * KV_HEADS * HEAD_DIM * 2
    assert report["kv_bytes_total"] == 3 * 112 * report["kv_bytes_per_token"]  # blocks of 16
    assert report["left_bytes"] == report["budget_bytes"] - report["bytes_in_use"]
    assert report["fits"] is True
    estimate = report["decode_estimate_ms"]
    assert report["decode_least_ms"] < estimate["low"] < estimate["expected"] < estimate["high"]
    assert report["estimate_source"]
    batches = [point["batch"] for point in report["throughput"]]
    assert batches == sorted(batches)
    assert {1, 3} <= set(batches)
    # A plan for the device it runs on says what the engine would allocate.
    assert report["serve_command"].startswith(f"pagoda serve {tiny_model} ")


def test_the_command_names_what_can_be_served(pagoda: Pagoda, tiny_model: Path, tmp_path: Path) -> None:
    assert planned(pagoda, "qwen3-0.6b")["serve_command"].startswith("pagoda serve Qwen/Qwen3-0.6B --device cpu")
    config = tmp_path / "config.json"
    config.write_bytes((tiny_model / "config.json").read_bytes())
    for model in (config, tmp_path):
        report = planned(pagoda, model)
        assert report["serve_command"].startswith("pagoda serve MODEL --device cpu")
        assert "MODEL in the command stands for the model with its weights" in report["recommendation"]


def test_what_was_measured_of_this_model_is_the_estimate(pagoda: Pagoda, tmp_path: Path, tiny_model: Path) -> None:
    timer = CalibratedTimer(
        model="llama-7b",
        flops_per_token=deploy(textbook()).costs.flops_per_token,
        machine="a bench",
        version="0.1.0",
        product_flops=(1e9, 1e15),
        product_seconds=(0.5, 1.5),
        seconds_per_kv_byte=0.0,
        seconds_per_attention_flop=0.0,
        seconds_per_row=0.0,
        request_seconds=0.0,
        spread=(0.5, 2.0),
    )
    timer.save(tmp_path / "times.json")
    report = planned(pagoda, "llama-7b", *TEXTBOOK, "--calibration", tmp_path / "times.json")
    estimate = report["decode_estimate_ms"]
    assert estimate["expected"] == pytest.approx(500, rel=1e-3)
    assert (estimate["low"], estimate["high"]) == (0.5 * estimate["expected"], 2 * estimate["expected"])
    assert "llama-7b on a bench" in report["estimate_source"]
    assert "llama-7b's" in refusal(pagoda, tiny_model, *TEXTBOOK[:2], "--calibration", tmp_path / "times.json")


def test_a_configuration_alone_is_enough(pagoda: Pagoda, tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((tiny_model / "config.json").read_bytes())
    whole, alone, file = (
        planned(pagoda, path, "--device", "l4") for path in (tiny_model, tmp_path, tmp_path / "config.json")
    )
    assert whole["parameters"] == alone["parameters"] == file["parameters"]
    assert whole["weight_bytes"] == alone["weight_bytes"] == file["weight_bytes"]


def test_the_terminal_report_and_its_formulas(pagoda: Pagoda) -> None:
    with_formulas = pagoda("plan", "llama-7b", *TEXTBOOK, "--concurrency", "16").stdout
    assert "2 × 32 layers × 32 heads × 128 × 2 B = 524,288 B/token" in with_formulas
    for part in (
        "Fits: 16 requests",
        "GiB = 2^30 B",
        "GB = 10^9 B",
        "bound",
        "estimate",
        "Recommendation",
        "pagoda serve huggyllama/llama-7b",
    ):
        assert part in with_formulas
    without = pagoda("plan", "llama-7b", *TEXTBOOK, "--no-formulas").stdout
    assert "× 128 × 2 B" not in without


def test_what_does_not_fit_is_loud_and_has_remedies(pagoda: Pagoda) -> None:
    shown = pagoda("plan", "llama-3-70b", "--device", "rtx-4090")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[3].startswith("DOES NOT FIT: 1 request of 2,048 tokens needs")
    report = planned(pagoda, "llama-3-70b", "--device", "rtx-4090")
    assert (report["fits"], report["max_concurrency"], report["max_context"]) == (False, 0, 0)
    assert report["left_bytes"] < 0
    assert report["remedies"]
    # Each remedy is what it says: typed, it fits.
    for remedy in report["remedies"]:
        again = planned(pagoda, "llama-3-70b", "--device", "rtx-4090", *remedy["option"].split())
        assert again["fits"] is True, remedy


def test_devices_are_planned_with_what_they_say_to_each_other(pagoda: Pagoda) -> None:
    one, four = (planned(pagoda, "llama-3-8b", "--device", "h100-sxm", "--devices", count) for count in ("1", "4"))
    assert one["decode_communication_ms"] == 0 < four["decode_communication_ms"]
    assert four["memory_bytes"] == 4 * one["memory_bytes"]
    assert four["decode_memory_ms"] == pytest.approx(one["decode_memory_ms"] / 4, rel=0.01)
    assert "links" in pagoda("plan", "llama-3-8b", "--device", "h100-sxm", "--devices", "4").stdout


def test_page_and_picture_are_written(pagoda: Pagoda, tmp_path: Path) -> None:
    page, picture = tmp_path / "plan.html", tmp_path / "plan.png"
    page.write_text("x" * 10**6)
    finished = pagoda("plan", "llama-3-8b", "--device", "a100-80g", "--json", "--html", page, "--png", picture)
    assert finished.returncode == 0
    assert json.loads(finished.stdout)["model"] == "llama-3-8b"
    assert finished.stderr == f"Written: {page}\nWritten: {picture}\n"
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.endswith("</html>")
    assert "llama-3-8b on a100-80g" in text
    assert picture.read_bytes().startswith(b"\x89PNG")


WRONG_FIGURE = "a number above 0 and up to 1e+30"
COUNT = "a whole number from 1 to 1,000,000,000,000,000, such as 7e9 or 7B"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--parameters", "-7e9"], f"--parameters: got '-7e9', must be {COUNT}"),
        (["--parameters", "nan"], f"--parameters: got 'nan', must be {COUNT}"),
        (["--parameters", "1e400000000"], f"--parameters: got '1e400000000', must be {COUNT}"),
        (["--parameters", "0"], f"--parameters: got '0', must be {COUNT}"),
        (["--parameters", ""], f"--parameters: got '', must be {COUNT}"),
        (["--parameters", "7.5"], f"--parameters: got '7.5', must be {COUNT}"),
        (["--parameters", "٣"], f"--parameters: got '٣', must be {COUNT}"),
        (["--parameters", "B"], f"--parameters: got 'B', must be {COUNT}"),
        (["--context", "0"], "--context: got 0, must be an integer of at least 1"),
        (["--context", "2049"], "--context: got 2049, must be at most 2,048, the context length the model was made for"),
        (["--concurrency", "-1"], "--concurrency: got -1, must be an integer of at least 1"),
        (["--devices", "0"], "--devices: got 0, must be an integer of at least 1"),
        (["--devices", "3"], "--devices: got 3, must be a divisor of the 32 attention heads"),
        (["--block-size", "0"], "--block-size: got 0, must be an integer of at least 1"),
        (["--max-batched-tokens", "0"], "--max-batched-tokens: got 0, must be an integer from 1 to 1,048,576"),
        (["--memory-fraction", "nan"], "--memory-fraction: got nan, must be a finite number from 0.01 to 1.0"),
        (["--memory-fraction", "1e400"], "--memory-fraction: got inf, must be a finite number from 0.01 to 1.0"),
        (["--memory-fraction", "0"], "--memory-fraction: got 0.0, must be a finite number from 0.01 to 1.0"),
        (["--revision", "main"], "--revision: got 'main', must be left out for 'llama-7b': only hub models have revisions"),
    ],
)  # fmt: skip
def test_a_wrong_figure_is_refused_by_its_option(pagoda: Pagoda, arguments: list[str], sentence: str) -> None:
    assert refusal(pagoda, "llama-7b", "--device", "a100-80g", *arguments) == sentence


@pytest.mark.parametrize(
    ("arguments", "beginning"),
    [
        (["--weight-format", "int3"], "--weight-format: got 'int3', must be one of "),
        (["--weight-format", ""], "--weight-format: got '', must be one of "),
        (["--kv-format", "int3"], "--kv-format: got 'int3', must be bf16 or int8 on the CPU"),
        (["--kv-format", "", "--device", "l4"], "--kv-format: got '', must be one of "),
        (["--kv-format", ""], "--kv-format: got '', must be bf16 or int8 on the CPU"),
        (["--kv-format", "int3", "--device", "l4"], "--kv-format: got 'int3', must be one of "),
        (["--device", "a100"], "--device: got 'a100', must be this, one of "),
        (["--device", ""], "--device: got '', must be this, one of "),
        (["--device", "flops=-1,bandwidth=2e12,memory=80e9"], "--device (flops): got 'flops=-1', must be a number above 0"),
        (["--device", "flops=nan,bandwidth=2e12,memory=80e9"], "--device (flops): got 'flops=nan', must be a number above 0"),
        (["--device", "flops=1e400,bandwidth=2e12,memory=8e9"], "--device (flops): got 'flops=1e400', must be a number"),
        (["--calibration", "/no/such/file"], "/no/such/file"),
        (["--html", "/no/folder/plan.html"], "--html: got '/no/folder/plan.html', must be a file that can be written"),
        (["--png", "/"], "--png: got '/', must be an ordinary file"),
        (["--html", ""], "--html: got '', must be the name of a file"),
    ],
)  # fmt: skip
def test_what_is_unknown_or_cannot_be_is_refused(pagoda: Pagoda, arguments: list[str], beginning: str) -> None:
    assert refusal(pagoda, "llama-7b", *arguments).startswith(beginning)


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ("flop=1", "--roofline: got 'flop=1', must be each of flop, bytes once, as in flop=14e9,bytes=14e9"),
        ("flop=1,flop=2", "--roofline: got 'flop=2', must be each of flop, bytes once, as in flop=14e9,bytes=14e9"),
        ("", "--roofline: got '', must be each of flop, bytes once, as in flop=14e9,bytes=14e9"),
        ("flop=0,bytes=1", f"--roofline (flop): got '0', must be {WRONG_FIGURE}"),
        ("flop=-1,bytes=1", f"--roofline (flop): got '-1', must be {WRONG_FIGURE}"),
        ("flop=1,bytes=nan", f"--roofline (bytes): got 'nan', must be {WRONG_FIGURE}"),
        ("flop=1,bytes=1e400", f"--roofline (bytes): got '1e400', must be {WRONG_FIGURE}"),
        ("flop=1,bytes=x", f"--roofline (bytes): got 'x', must be {WRONG_FIGURE}"),
    ],
)
def test_a_wrong_pair_is_refused(pagoda: Pagoda, figures: str, sentence: str) -> None:
    assert refusal(pagoda, "--roofline", figures, "--device", "l4") == sentence


@pytest.mark.parametrize("arguments", [("--concurrency", "many"), ("--memory-fraction", "many")])
def test_what_is_no_number_is_refused_by_option_and_value(pagoda: Pagoda, arguments: tuple[str, str]) -> None:
    said = refusal(pagoda, "llama-7b", *arguments)
    assert arguments[0] in said
    assert "'many'" in said


def test_what_does_not_go_together_is_refused(pagoda: Pagoda) -> None:
    assert "MODEL is missing" in refusal(pagoda)
    assert refusal(pagoda, "llama-7b", "--roofline", "flop=1,bytes=1").startswith(
        "MODEL: got 'llama-7b', must be left out"
    )
    assert "another file" in refusal(pagoda, "llama-7b", "--html", "same", "--png", "./same")
    assert not Path("same").exists()


def test_an_unknown_model_is_refused_and_leaves_no_file(pagoda: Pagoda, tmp_path: Path) -> None:
    said = refusal(pagoda, "llama-3-8", "--html", tmp_path / "plan.html")
    assert "llama-3-8b" in said
    assert list(tmp_path.glob("*.html")) == []


def test_without_matplotlib_a_picture_is_refused_before_any_work(
    pagoda: Pagoda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagoda.cli.charts_png.find_spec", lambda name: None)
    assert refusal(pagoda, "llama-7b", "--png", "x.png").endswith("pip install 'matplotlib>=3.9'")
    assert not Path("x.png").exists()


@pytest.mark.parametrize("model", ["llama-3-8b", "TINY"])
def test_no_network_and_nothing_heavy_is_imported(tiny_model: Path, model: str) -> None:
    """A process in which every socket fails, and which says what it has imported."""
    script = (
        "import socket, sys\n"
        "def refused(*a, **k): raise AssertionError('network')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refused\n"
        "from pagoda.cli.main import app\n"
        "app(sys.argv[1:], standalone_mode=False)\n"
        "print(sorted({'torch', 'rich', 'jinja2', 'matplotlib', 'huggingface_hub'} & set(sys.modules)), file=sys.stderr)"
    )
    name = str(tiny_model) if model == "TINY" else model
    finished = run([sys.executable, "-c", script], "plan", name, "--json", "--device", "l4")
    assert (finished.returncode, finished.stderr) == (0, "[]\n")
    assert json.loads(finished.stdout)["fits"] is True
