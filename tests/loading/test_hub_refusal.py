"""A hub model that cannot run is refused before its weights are downloaded."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pagoda.config import EngineConfig
from pagoda.engine.build import Engine
from pagoda.errors import DoesNotFitError, ModelFileError, PagodaError, UnsupportedModelError
from pagoda.loading import hub_header
from pagoda.loading.resolve import open_checkpoint
from pagoda.models.registry import family_for
from pagoda.planning.holding import torch_holding
from pagoda.planning.memory import plan_memory
from tests.loading.fake_hub import FakeHub, go_offline, serving
from tests.loading.files import F32, gguf_bytes, pair, string_pair, tensor, tiny_gguf, tiny_safetensors, u32_pair
from tests.loading.test_gguf_checkpoint import part

HUGE = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
}
WEIGHT_BYTES = 1 << 16
ROWS = [tensor("token_embd.weight", (64, WEIGHT_BYTES // 256))]


def huge_gguf(architecture: str = "llama", type_number: int = 0) -> bytes:
    """A header of about 1 kB that claims a model of 70B parameters, and 64 KiB of weights."""
    numbers = {
        "embedding_length": 8192,
        "block_count": 80,
        "attention.head_count": 64,
        "attention.head_count_kv": 8,
        "feed_forward_length": 28672,
        "context_length": 4096,
    }
    pairs = [string_pair("general.architecture", architecture), string_pair("general.name", "x" * 600)]
    pairs += [u32_pair(f"{architecture}.{name}", value) for name, value in numbers.items()]
    pairs += [pair(f"{architecture}.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5))]
    return gguf_bytes(pairs, [tensor("token_embd.weight", (64, WEIGHT_BYTES // 256), type_number)], bytes(WEIGHT_BYTES))


HEADER_BYTES = len(huge_gguf()) - WEIGHT_BYTES
SPLIT = [part(0, 2, [], b"", 1), part(1, 2, ROWS, bytes(WEIGHT_BYTES))]
REPOSITORIES = {
    "org/huge": {
        "config.json": json.dumps({**HUGE, "rope_theta": 5000}).encode(),
        "tokenizer.json": b"{}",
        "model.safetensors": tiny_safetensors(),
    },
    "org/unknown": {"config.json": b'{"model_type": "mamba"}', "model.safetensors": tiny_safetensors()},
    "org/no-config": {"model.safetensors": tiny_safetensors()},
    "org/bad-config": {"config.json": b'{"model_type": 3}', "model.safetensors": tiny_safetensors()},
    "org/huge-gguf": {"m.gguf": huge_gguf()},
    "org/unknown-gguf": {"m.gguf": huge_gguf("mamba")},
    "org/format-gguf": {"m.gguf": huge_gguf(type_number=999)},
    "org/lying-gguf": {"m.gguf": gguf_bytes(num_pairs=1 << 40, data=bytes(WEIGHT_BYTES))},
    "org/tiny-gguf": {"m.gguf": tiny_gguf()},
    "org/split": {f"m-{number:05}-of-00002.gguf": SPLIT[number - 1] for number in (1, 2)},
}
GGUFS = ["org/huge-gguf", "org/split"]


class RefusedError(PagodaError):
    """Not by the files, but by the one who wanted them."""


class Judge:
    """Refuses every model, or none, and remembers what it was shown."""

    def __init__(self, refuses: bool = True) -> None:
        self.refuses = refuses
        self.seen: list[Mapping[str, Any]] = []

    def __call__(self, config: Mapping[str, Any]) -> None:
        self.seen.append(config)
        if self.refuses:
            raise RefusedError("no")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(hub_header, "FIRST_RANGE_BYTES", 200)
    with serving(REPOSITORIES, tmp_path / "cache", monkeypatch) as server:
        yield server


def refused(model: str) -> Judge:
    judge = Judge()
    with pytest.raises(RefusedError):
        open_checkpoint(model, None, judge)
    return judge


def can_run(config: Mapping[str, Any]) -> None:
    plan_memory(torch_holding(family_for(config).spec(config), 4), EngineConfig(model="m"), usable_bytes=1 << 30)


@pytest.mark.parametrize("model", ["org/huge", "org/huge-gguf"])
def test_what_does_not_fit_is_refused_with_figures(fake: FakeHub, model: str) -> None:
    with pytest.raises(DoesNotFitError, match=r"\d"):
        open_checkpoint(model, None, can_run)
    assert not any(name.endswith((".safetensors", ".gguf")) for name in fake.downloaded)


@pytest.mark.parametrize("model", ["org/unknown", "org/unknown-gguf"])
def test_an_unknown_architecture(fake: FakeHub, model: str) -> None:
    with pytest.raises(UnsupportedModelError, match="mamba"):
        open_checkpoint(model, None, can_run)
    assert not any(name.endswith((".safetensors", ".gguf")) for name in fake.downloaded)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [("org/unknown", "mamba"), ("org/unknown-gguf", "mamba"), ("org/huge", "99999"), ("org/huge-gguf", "99999")],
)
def test_the_engine_refuses_before_weights_are_downloaded(fake: FakeHub, model: str, sentence: str) -> None:
    with pytest.raises(PagodaError) as caught:
        Engine(EngineConfig(model=model, device="cpu", threads=1, max_model_len=99_999))
    assert sentence in str(caught.value)
    assert not any(name.endswith((".safetensors", ".gguf")) for name in fake.downloaded)


def test_of_a_directory_only_the_small_files_are_fetched(fake: FakeHub) -> None:
    judge = refused("org/huge")
    assert fake.downloaded == ["config.json", "tokenizer.json"]
    assert fake.looked_into == []
    assert judge.seen[0]["rope_theta"] == 5000.0
    assert judge.seen[0]["rope_scaling"] is None  # what only a normalised configuration has


def test_of_a_gguf_only_ranges_up_to_the_one_with_the_headers_end(fake: FakeHub) -> None:
    judge = refused("org/huge-gguf")
    assert fake.downloaded == []
    starts = [start for _, start, _ in fake.looked_into]
    ends = [end for _, _, end in fake.looked_into]
    assert starts == [0, *ends[:-1]]
    assert starts[-1] < HEADER_BYTES <= ends[-1] <= 2 * HEADER_BYTES
    assert judge.seen[0]["num_hidden_layers"] == 80
    assert judge.seen[0]["vocab_size"] == WEIGHT_BYTES // 256


def test_of_a_split_gguf_every_parts_header(fake: FakeHub) -> None:
    assert refused("org/split").seen[0]["vocab_size"] == WEIGHT_BYTES // 256  # the second part has that tensor
    assert fake.downloaded == []
    assert {name for name, _, _ in fake.looked_into} == set(REPOSITORIES["org/split"])
    assert max(end for _, _, end in fake.looked_into) <= 400


@pytest.mark.parametrize("model", ["org/huge", *GGUFS])
def test_the_configuration_is_the_same_before_and_after(fake: FakeHub, model: str) -> None:
    judge = Judge(refuses=False)
    checkpoint = open_checkpoint(model, None, judge)
    assert judge.seen == [checkpoint.config, checkpoint.config]
    assert set(fake.downloaded) == set(REPOSITORIES[model])


@pytest.mark.parametrize("model", ["org/huge", *GGUFS])
def test_what_was_refused_can_be_had_later(fake: FakeHub, model: str) -> None:
    refused(model)
    assert open_checkpoint(model).name == model


@pytest.mark.parametrize("model", ["org/huge", *GGUFS])
@pytest.mark.parametrize("offline", [False, True])
def test_what_is_cached_is_judged_from_the_cache(
    fake: FakeHub, monkeypatch: pytest.MonkeyPatch, model: str, offline: bool
) -> None:
    open_checkpoint(model)
    if offline:
        go_offline(monkeypatch)
    before = len(fake.asked), fake.downloaded, fake.looked_into
    assert len(refused(model).seen) == 1
    assert (fake.downloaded, fake.looked_into) == before[1:]
    assert not offline or len(fake.asked) == before[0]


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("org/no-config", "hub model org/no-config: has no config.json"),
        ("org/bad-config", "model_type is 3, a string is needed"),
        ("org/lying-gguf", r"org/lying-gguf/m\.gguf: claims 1,099,511,627,776 metadata pairs"),
        ("org/format-gguf", r"org/format-gguf/m\.gguf: tensor 'token_embd\.weight' has the unknown type number 999"),
    ],
)
def test_wrong_files_need_no_judge(fake: FakeHub, model: str, sentence: str) -> None:
    with pytest.raises(ModelFileError, match=sentence):
        open_checkpoint(model)
    assert set(fake.downloaded) <= {"config.json"}
    assert all(end <= 200 or "lying" not in model for _, _, end in fake.looked_into)


def test_a_file_shorter_than_the_first_range(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_header, "FIRST_RANGE_BYTES", 1 << 20)
    refused("org/tiny-gguf")
    assert fake.looked_into == [("m.gguf", 0, len(tiny_gguf()))]


def test_a_hub_without_ranges_is_interrupted(fake: FakeHub) -> None:
    fake.range_status = 200
    assert refused("org/huge-gguf").seen[0]["num_hidden_layers"] == 80
    assert fake.downloaded == []


def test_redirections_are_followed(fake: FakeHub) -> None:
    fake.redirected = True
    assert refused("org/huge-gguf").seen[0]["num_hidden_layers"] == 80
    assert any(line.startswith("GET /elsewhere/") for line in fake.asked)
    assert fake.downloaded == []


def no_ranges(status: int) -> Callable[[FakeHub, pytest.MonkeyPatch], None]:
    return lambda fake, patch: setattr(fake, "range_status", status)


@pytest.mark.parametrize(
    "hinder",
    [
        no_ranges(403),
        no_ranges(416),
        no_ranges(500),
        lambda fake, patch: patch.setattr(hub_header, "MAX_HEADER_BYTES", 300),
        lambda fake, patch: setattr(fake, "shift", 1),
        lambda fake, patch: setattr(fake, "shorten", 1),
        lambda fake, patch: setattr(fake, "torn", True),
    ],
    ids=["forbidden", "not satisfiable", "failure", "long header", "another range", "short range", "torn range"],
)
def test_where_the_header_cannot_be_had_the_file_is_judged(
    fake: FakeHub, monkeypatch: pytest.MonkeyPatch, hinder: Callable[[FakeHub, pytest.MonkeyPatch], None]
) -> None:
    hinder(fake, monkeypatch)
    judge = refused("org/huge-gguf")
    assert len(judge.seen) == 1
    assert fake.downloaded == ["m.gguf"]


def test_all_parts_share_one_limit(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = len(SPLIT[0]) + 50
    monkeypatch.setattr(hub_header, "MAX_HEADER_BYTES", limit)
    refused("org/split")
    assert sum(end - start for _, start, end in fake.looked_into) <= limit
    assert len(fake.downloaded) == 2
