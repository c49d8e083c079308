"""`pagoda serve`: its options, and what it refuses before anything is served."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pagoda.cli.options import option_name, with_derived_options
from pagoda.config import ServerConfig, knobs
from pagoda.errors import InvalidValueError
from tests.cli.conftest import Pagoda


def configured(*arguments: str) -> ServerConfig:
    got: list[Any] = []

    @with_derived_options
    def command(*, server: ServerConfig) -> None:
        got.append(server)

    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    (config,) = got
    assert isinstance(config, ServerConfig)
    return config


def test_every_setting_of_the_server_is_an_option(pagoda: Pagoda) -> None:
    shown = pagoda("serve", "--help").stdout
    for name in knobs(ServerConfig):
        assert option_name(name) + " " in shown
    assert "--max-num-seqs" in shown
    assert "--no-allow-unauthenticated" not in shown


def test_help_comes_before_anything_heavy() -> None:
    program = """
import sys
from pagoda.cli.main import main
sys.argv = ["pagoda", "serve", "--help"]
try:
    main()
except SystemExit:
    pass
print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "fastapi", "uvicorn", "starlette", "prometheus_client"}))
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


def test_without_options_everything_has_its_default() -> None:
    assert configured() == ServerConfig()


def test_values_of_every_kind_arrive() -> None:
    assert configured(
        "--port", "0", "--allow-unauthenticated", "--allowed-hosts", "a,b", "--host", "::1"
    ) == ServerConfig(port=0, allow_unauthenticated=True, allowed_hosts="a,b", host="::1")


def test_a_port_out_of_range_is_refused_naming_the_option() -> None:
    with pytest.raises(InvalidValueError) as caught:
        configured("--port", "65536")
    assert caught.value.field == "--port"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--host", "0.0.0.0"], "--allow-unauthenticated"),
        (["--host", "no-such-host.invalid"], "--host"),
        (["--allowed-hosts", "*"], "--allowed-hosts"),
        (["--port", "-1"], "--port"),
        (["no/such/folder", "--port", "0"], "no/such/folder"),
    ],
)
def test_a_start_that_is_refused_is_one_sentence(pagoda: Pagoda, arguments: list[str], named: str) -> None:
    refused = pagoda("serve", *arguments)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert len(refused.stderr.splitlines()) == 1
    assert named in refused.stderr


def test_a_taken_port_is_refused_before_the_model_is_read(pagoda: Pagoda, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = pagoda("serve", tmp_path, "--port", str(port))
    assert refused.returncode == 2
    assert refused.stderr == (
        f"pagoda: --port: {port} on 127.0.0.1 is taken by another program; give another port, or 0 for any free one\n"
    )
