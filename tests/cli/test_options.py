import dataclasses
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pagoda.cli.options import option_name, with_derived_options
from pagoda.config import EngineConfig, knobs
from pagoda.errors import InvalidValueError
from pagoda.sampling_params import SamplingParams


def run(*arguments: str) -> tuple[EngineConfig, SamplingParams, str]:
    """The objects that a command gets for these arguments."""
    got: list[Any] = []

    @with_derived_options
    def command(*, name: str = "nobody", sampling: SamplingParams, config: EngineConfig) -> None:
        got.extend([config, sampling, name])

    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return got[0], got[1], got[2]


def help_text() -> str:
    @with_derived_options
    def command(*, sampling: SamplingParams, config: EngineConfig) -> None:
        """Does something."""

    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)
    return " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())


def test_without_options_everything_has_its_default() -> None:
    assert run() == (EngineConfig(), SamplingParams(), "nobody")


def test_every_field_of_both_has_an_option_with_help() -> None:
    shown = help_text()
    for name, (_, knob, _) in knobs().items():
        assert option_name(name) in shown
        assert knob.help in shown
    for field in dataclasses.fields(SamplingParams):
        assert option_name(field.name) + " " in shown
    assert "Keep the k most likely tokens" in shown
    assert "From 1 to 4,096" in shown
    assert "auto|cpu|cuda" in shown


def test_values_of_every_kind_arrive() -> None:
    config, sampling, name = run(
        *("some/model", "--name", "me", "--threads", "2", "--memory-fraction", "0.25", "--dtype", "bfloat16"),
        *(
            "--temperature",
            "0",
            "--top-k",
            "5",
            "--stop",
            "a",
            "--stop",
            "b c",
            "--stop-token-ids",
            "7",
            "--ignore-eos",
        ),
        *("--logit-bias", '{"42": -5}', "--max-tokens", "9"),
    )
    assert config == EngineConfig(model="some/model", threads=2, memory_fraction=0.25, dtype="bfloat16")
    assert sampling == SamplingParams(
        temperature=0.0,
        top_k=5,
        stop=("a", "b c"),
        stop_token_ids=(7,),
        ignore_eos=True,
        logit_bias={42: -5.0},
        max_tokens=9,
    )
    assert name == "me"


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["--top-p", "2"], "--top-p"),
        (["--temperature", "nan"], "--temperature"),
        (["--stop", ""], "--stop[0]"),
        (["--max-num-seqs", "0"], "--max-num-seqs"),
        (["--dtype", "int3"], "--dtype"),
        (["--logit-bias", "{"], "--logit-bias"),
        (["--logit-bias", "[1]"], "--logit-bias"),
        (["--min-tokens", "5", "--max-tokens", "4"], "--min-tokens"),
    ],
)
def test_a_value_out_of_range_is_refused_naming_the_option(arguments: list[str], option: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        run(*arguments)
    assert caught.value.field == option
