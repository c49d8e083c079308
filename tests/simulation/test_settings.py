"""What can be asked of a simulation, and what cannot be meant together."""

from __future__ import annotations

from typing import Any

import pytest

from pagoda.config import knobs
from pagoda.errors import InvalidValueError
from pagoda.simulation.cluster import CHOICES, ClusterConfig
from pagoda.simulation.settings import SimulationSettings
from pagoda.simulation.slo import Slo


def test_a_rate_is_enough() -> None:
    settings = SimulationSettings(rate=2.0)
    assert (settings.sizes, settings.objective) == ((1,), None)


def test_every_setting_has_a_help_text() -> None:
    for name, (_, knob, _) in knobs(SimulationSettings).items():
        assert knob.help.endswith("."), name


def test_what_can_be_compared_is_what_a_cluster_can_be() -> None:
    for field, choices in CHOICES.items():
        assert ClusterConfig.__dataclass_fields__[field].default in choices


def test_values_are_made_of_text() -> None:
    settings = SimulationSettings(rate=1, search=True, slo="ttft=1,e2e=9", slo_percentile=90, devices="1,2,8")
    assert settings.sizes == (1, 2, 8)
    assert settings.objective == Slo(ttft=1.0, e2e=9.0, percentile=90.0)


@pytest.mark.parametrize(
    ("fields", "field", "limit"),
    [
        ({}, "rate", "given"),
        ({"rate": -1.0}, "rate", "from 1e-06"),
        ({"rate": 1.0, "arrivals": "at-once"}, "rate", "left out where all"),
        ({"arrivals": "at-once", "duration": 5.0}, "duration", "left out where all"),
        ({"arrivals": "at-once", "find_limit": True, "slo": "ttft=1"}, "find_limit", "left out where all"),
        ({"trace": "t", "prompt_tokens": "9"}, "prompt_tokens", "left out with --trace"),
        ({"trace": "t", "seed": 1}, "seed", "left out with --trace"),
        ({"rate": 1.0, "routing": "prefix-aware"}, "routing", "round-robin or least-loaded"),
        ({"trace": "t", "prefix_cache": True, "allocation": "contiguous"}, "prefix_cache", "nothing is shared"),
        ({"trace": "t", "prefix_cache": True, "compare": "allocation"}, "prefix_cache", "nothing is shared"),
        ({"rate": 1.0, "routing": "random"}, "routing", "one of round-robin"),
        (
            {"rate": 1.0, "replicas": 2, "prefill_replicas": 2, "transfer_bandwidth": 1e9},
            "prefill_replicas",
            "less than",
        ),
        ({"rate": 1.0, "replicas": 2, "prefill_replicas": 1}, "transfer_bandwidth", "given with"),
        ({"rate": 1.0, "transfer_bandwidth": 1e9}, "transfer_bandwidth", "left out without"),
        ({"rate": 1.0, "find_limit": True}, "find_limit", "left out without --slo"),
        ({"rate": 1.0, "search": True}, "search", "left out without --slo"),
        ({"rate": 1.0, "search": True, "slo": "ttft=1", "replicas": 3}, "replicas", "left out with --search"),
        ({"rate": 1.0, "most_replicas": 3}, "most_replicas", "left out without --search"),
        (
            {"rate": 1.0, "find_limit": True, "slo": "ttft=1", "compare": "order"},
            "compare",
            "left out with --find-limit",
        ),
        ({"rate": 1.0, "compare": "seed"}, "compare", "one of allocation, batching, order, routing"),
        ({"rate": 1.0, "calibration": "f", "efficiency": 0.5}, "efficiency", "there is one clock"),
        ({"rate": 1.0, "max_batched_tokens": 64, "max_prefill_chunk": 65}, "max_prefill_chunk", "at most"),
        ({"rate": 1.0, "replicas": 0}, "replicas", "from 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, Any], field: str, limit: str) -> None:
    with pytest.raises(InvalidValueError, match=limit) as refused:
        SimulationSettings(**fields)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("devices", "search"), [("0", False), ("x", False), ("1,2", False), ("1,,2", True), ("-1", True), ("1,2.5", True)]
)
def test_numbers_of_devices(devices: str, search: bool) -> None:
    settings = SimulationSettings(rate=1.0, devices=devices, search=search, slo="ttft=1")
    with pytest.raises(InvalidValueError, match=r"^--devices: got"):
        _ = settings.sizes
