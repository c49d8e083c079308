"""`pagoda simulate`: one JSON object or readable tables, the same for the same seed, and one sentence for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pagoda.cli.planning_question import Typed, ask
from pagoda.planning.calibrated_time import CalibratedTimer
from pagoda.planning.deployment import deploy
from tests.cli.conftest import Pagoda

# So slow that a tiny model is busy with some twenty requests a second.
DEVICE = "flops=1e8,bandwidth=1e8,memory=1e9"
LIGHT = ("--rate", "20", "--requests", "50", "--prompt-tokens", "16:64", "--output-tokens", "8")
TRACE = "".join(
    json.dumps(
        {"time": 0.05 * number, "prompt_tokens": 20 + number % 7, "output_tokens": 5, "prefix": "abc"[number % 3]}
    )
    + "\n"
    for number in range(30)
)


@pytest.fixture
def simulated(pagoda: Pagoda, tiny_model: Path) -> Any:
    def run(*options: str, device: str = DEVICE) -> dict[str, Any]:
        done = pagoda("simulate", tiny_model, "--device", device, "--json", *options)
        assert done.returncode == 0, done.stderr
        assert (done.stdout.count("\n"), done.stderr) == (1, "")
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    return run


@pytest.fixture
def refusal(pagoda: Pagoda, tiny_model: Path) -> Any:
    def run(*options: str) -> str:
        done = pagoda("simulate", tiny_model, "--device", DEVICE, *options)
        assert (done.returncode, done.stdout) == (2, ""), done.stdout
        assert done.stderr.count("\n") == 1
        return done.stderr

    return run


def test_the_report(simulated: Any) -> None:
    report = simulated(*LIGHT, "--slo", "ttft=5,e2e=9", "--price-per-hour", "3.6")
    assert (report["requests"], report["refused"], report["output_tokens"]) == (50, 0, 400)
    for name in ("ttft", "tpot", "e2e"):
        spread = report[f"{name}_seconds"]
        assert 0 < spread["p50"] <= spread["p90"] <= spread["p95"] <= spread["p99"]
    assert report["slo"] == {
        **{"ttft": 5.0, "tpot": None, "e2e": 9.0, "percentile": 99.0},
        **{"attainment": 1.0, "kept": True, "goodput": report["requests_per_second"]},
    }
    assert report["cost"]["per_million_output_tokens"] == pytest.approx(1e6 * 0.001 * report["seconds"] / 400)
    assert 0 < report["utilisation"] <= 1
    assert report["load"]["rate"] == 20
    assert report["cluster"]["num_blocks"] == report["kv"]["num_blocks"] > 0
    assert report["clock"]["source"]


def test_the_same_seed_is_the_same_report_and_another_is_another(pagoda: Pagoda, tiny_model: Path) -> None:
    def printed(seed: str) -> str:
        return pagoda("simulate", tiny_model, "--device", DEVICE, "--json", *LIGHT, "--seed", seed).stdout

    assert printed("3") == printed("3") != printed("4")


def test_the_blocks_are_those_of_the_engine_s_memory_formula(simulated: Any) -> None:
    whole = simulated(*LIGHT)["memory"]
    # Room for half of the cache that could be used.
    usable = (whole["weight_bytes"] + whole["workspace_bytes"] + whole["kv_bytes"] // 2) / 0.9
    memory = simulated(*LIGHT, device=f"flops=1e8,bandwidth=1e8,memory={usable:.0f}")["memory"]
    used = memory["weight_bytes"] + memory["workspace_bytes"] + memory["kv_bytes"]
    assert used <= 0.9 * usable < used + 16 * memory["kv_bytes_per_token"]
    assert memory["kv_bytes"] < whole["kv_bytes"]
    fixed = simulated(*LIGHT, "--num-kv-blocks", "7", "--max-model-len", "100")
    assert (fixed["kv"]["num_blocks"], fixed["memory"]["max_model_len"]) == (7, 100)
    assert fixed["memory"]["kv_bytes"] == 7 * 16 * fixed["memory"]["kv_bytes_per_token"]


def test_a_trace_at_its_own_rate_and_at_another(simulated: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(TRACE)
    own = simulated("--trace", str(path))
    assert (own["load"]["requests"], own["requests"]) == (30, 30)
    assert own["load"]["rate"] == pytest.approx(20.0)
    fast = simulated(
        "--trace", str(path), "--rate", "40", "--requests", "10", "--replicas", "3", "--routing", "prefix-aware"
    )
    assert (fast["requests"], fast["load"]["speed"]) == (10, pytest.approx(2.0))


def test_a_prefix_cache_computes_a_prefix_once(simulated: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    line = {"prompt_tokens": 64, "output_tokens": 4, "prefix": "a", "prefix_tokens": 48}
    path.write_text("".join(json.dumps({"time": 10.0 * number, **line}) + "\n" for number in range(5)))
    cached, plain = (simulated("--trace", str(path), *options) for options in ((), ("--no-prefix-cache",)))
    assert (plain["found_tokens"], cached["found_tokens"]) == (0, 4 * 48)
    assert cached["ttft_seconds"]["p50"] < plain["ttft_seconds"]["p50"]
    contiguous = simulated("--trace", str(path), "--allocation", "contiguous")
    compared = simulated("--trace", str(path), "--compare", "allocation")["variants"]
    assert [report["found_tokens"] for report in (contiguous, *compared)] == [0, 0, 0]


def test_drawn_prompts_share_nothing_so_their_cache_is_off_unless_asked_for(simulated: Any) -> None:
    options = ("--rate", "20", "--requests", "30", "--output-tokens", "8")
    plain, cached = simulated(*options), simulated(*options, "--prefix-cache")
    assert [report["cluster"]["prefix_cache"] for report in (plain, cached)] == [False, True]
    assert (plain["found_tokens"], cached["found_tokens"]) == (0, 0)
    assert cached["ttft_seconds"] == plain["ttft_seconds"]


def test_what_is_longer_than_the_model_takes_is_refused_by_the_engine_and_counted(simulated: Any) -> None:
    report = simulated(
        "--rate", "20", "--requests", "40", "--prompt-tokens", "200:300", "--output-tokens", "8", "--slo", "e2e=99"
    )
    assert report["requests"] + report["refused"] == 40
    assert report["slo"]["attainment"] == report["requests"] / 40 < 1


def test_a_slower_clock_is_slower(simulated: Any) -> None:
    bound, half = (simulated(*LIGHT, "--rate", "0.01", "--efficiency", share) for share in ("1", "0.5"))
    assert (bound["clock"]["kind"], half["clock"]["kind"]) == ("bound", "bound")
    # Requests come one at a time, and all of a step's time is the roofline's.
    assert half["tpot_seconds"]["mean"] == pytest.approx(2 * bound["tpot_seconds"]["mean"])


def calibrated(tiny_model: Path, path: Path, factor: int = 1) -> Path:
    """Every step takes a quarter of a second, and a request half a second before it. factor: makes it another model's."""
    flops = deploy(ask(Typed(model=str(tiny_model), device=DEVICE))).costs.flops_per_token
    timer = CalibratedTimer(
        **{"model": "tiny", "machine": "a sundial", "version": "1", "flops_per_token": flops * factor},
        **{"product_flops": (1.0, 1e18), "product_seconds": (0.25, 0.25), "request_seconds": 0.5, "spread": (0.9, 1.2)},
        **{"seconds_per_kv_byte": 0.0, "seconds_per_attention_flop": 0.0, "seconds_per_row": 0.0},
    )
    timer.save(path)
    return path


def test_the_clock_is_what_was_measured(simulated: Any, tiny_model: Path, tmp_path: Path) -> None:
    report = simulated(*LIGHT, "--rate", "0.01", "--calibration", str(calibrated(tiny_model, tmp_path / "times.json")))
    assert report["clock"]["kind"] == "calibrated"
    assert "a sundial" in report["clock"]["source"]
    assert (report["ttft_seconds"]["p50"], report["tpot_seconds"]["p50"]) == pytest.approx((0.5 + 0.25, 0.25))


def test_what_was_measured_of_another_model_is_refused(refusal: Any, tiny_model: Path, tmp_path: Path) -> None:
    path = calibrated(tiny_model, tmp_path / "times.json", factor=2)
    assert "these are tiny's: measure this one" in refusal(*LIGHT, "--calibration", str(path))
    path.write_text("{}")
    assert str(path) in refusal(*LIGHT, "--calibration", str(path))


def test_the_limit(simulated: Any) -> None:
    report = simulated(*LIGHT, "--find-limit", "--slo", "ttft=0.2", "--slo-percentile", "90")
    limit = report["limit"]
    assert limit["kept_rate"] < limit["broken_rate"] <= 1.02 * limit["kept_rate"]
    assert report["load"]["rate"] == limit["kept_rate"]
    assert report["slo"]["kept"]
    assert {trial["rate"]: trial["kept"] for trial in limit["trials"]}[limit["broken_rate"]] is False


def test_the_search(simulated: Any) -> None:
    linked = DEVICE + ",link=1e9"
    options = ("--slo", "ttft=0.2", "--search", "--devices", "1,2,3", "--price-per-hour", "2")
    report = simulated(*LIGHT, "--rate", "100", *options, device=linked)
    search = report["search"]
    best = search["best"]
    assert best["kept"]
    assert best["devices"] == best["replicas"] * best["devices_per_replica"] == report["cost"]["devices"]
    assert report["cluster"]["num_replicas"] == best["replicas"] > 1
    assert report["slo"]["attainment"] == best["attainment"]
    by_three = [each for each in search["candidates"] if each["devices_per_replica"] == 3]
    assert [each["attainment"] for each in by_three] == [None]
    assert "must be a divisor of" in by_three[0]["note"]


def test_variants_side_by_side(simulated: Any) -> None:
    expected = {
        "routing": ["round-robin", "least-loaded"],
        "allocation": ["paged", "contiguous"],
        "batching": ["continuous", "static"],
        "order": ["mixed", "prefill-first", "decode-first"],
    }
    for field, choices in expected.items():
        report = simulated(*LIGHT, "--replicas", "2", "--compare", field)
        assert [variant[field] for variant in report["variants"]] == choices
        assert all(variant["requests"] == 50 for variant in report["variants"])


def test_prompts_on_replicas_of_their_own(simulated: Any) -> None:
    report = simulated(*LIGHT, "--replicas", "3", "--prefill-replicas", "1", "--transfer-bandwidth", "1e9")
    assert report["requests"] == 50
    assert report["transferred_bytes"] > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            (),
            (
                "50 requests",
                "Poisson",
                "time to first token",
                "TTFT ≤ 500 ms for 99%",
                "a million output tokens",
                "clock",
            ),
        ),
        (("--find-limit",), ("Rates tried", "breaks at")),
        (("--search",), ("Devices tried", "The fewest devices")),
        (("--compare", "routing"), ("By routing", "least-loaded")),
    ],
)
def test_tables(pagoda: Pagoda, tiny_model: Path, options: tuple[str, ...], words: tuple[str, ...]) -> None:
    common = ("--device", DEVICE, "--slo", "ttft=0.5", "--price-per-hour", "1")
    done = pagoda("simulate", tiny_model, *common, *LIGHT, *options)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    for word in words:
        assert word in shown
    assert "…" not in shown


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "--rate: got None, must be given, in requests a second (or --trace, or --arrivals at-once)"),
        (("--rate", "-1"), "--rate: got -1.0, must be a finite number from 1e-06 to 1,000,000.0"),
        (("--rate", "1", "--arrivals", "sometimes"), "--arrivals: got 'sometimes', must be one of poisson, bursty"),
        (("--rate", "1", "--prompt-tokens", "-5"), "--prompt-tokens: got '-5', must be one of TOKENS, FROM:TO"),
        (("--rate", "1", "--slo", "ttft=-1"), "--slo (ttft): got -1.0, must be a finite number from"),
        (
            ("--rate", "1", "--max-model-len", "999"),
            "--max-model-len: got 999, must be at most 256, the context length",
        ),
        (("--rate", "1", "--devices", "2"), "--device: got "),
        (("--rate", "1", "--devices", "two"), "--devices: got 'two', must be a number from 1 to 9,999"),
        (("--rate", "1", "--routing", "prefix-aware"), "--routing: got 'prefix-aware', must be round-robin or"),
        (("--rate", "1", "--find-limit"), "--find-limit: got True, must be left out without --slo"),
        (
            ("--rate", "1", "--num-kv-blocks", "1", "--max-model-len", "99"),
            "--max-model-len: got 99, must be at most 16",
        ),
        (("--trace", "nothing.jsonl"), "--trace: nothing.jsonl cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_is_one_sentence(refusal: Any, options: tuple[str, ...], sentence: str) -> None:
    assert refusal(*options).startswith(f"pagoda: {sentence}")


def test_a_wrong_line_of_a_trace_is_named_whatever_its_file_is_called(
    refusal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seed.jsonl").write_text(TRACE + '{"time": 9, "prompt_tokens": -3, "output_tokens": 1}\n')
    sentence = "pagoda: line 31 of seed.jsonl: prompt_tokens: got -3, must be an integer from 1 to 16,777,216\n"
    assert refusal("--trace", "seed.jsonl") == sentence


def test_a_model_that_does_not_fit_says_what_would(refusal: Any, pagoda: Pagoda, tiny_model: Path) -> None:
    done = pagoda("simulate", tiny_model, "--device", "flops=1e8,bandwidth=1e8,memory=1e5", *LIGHT)
    assert done.returncode == 2
    assert done.stderr.startswith("pagoda: the model does not fit: weights")
