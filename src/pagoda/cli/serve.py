"""`pagoda serve`: the OpenAI-compatible server."""

from __future__ import annotations

import dataclasses
import os
from typing import Annotated

import typer

from pagoda.cli.console import note, print_json
from pagoda.cli.options import option_name, with_derived_options
from pagoda.config import EngineConfig, ServerConfig
from pagoda.errors import InvalidValueError


@with_derived_options
def serve(
    *,
    json_: Annotated[
        bool, typer.Option("--json", help="When ready, print one JSON object: url, base_url, model, pid.")
    ] = False,
    server: ServerConfig,
    config: EngineConfig,
) -> None:
    """Serve a model behind the OpenAI API.

    SIGTERM or Ctrl-C ends it when what runs is finished, a second one at once.
    """
    from pagoda.server.hosts import host_names
    from pagoda.server.run import bind, run, url_of

    # Whatever can be refused is refused before a model is loaded.
    try:
        host_names(server.allowed_hosts)
    except InvalidValueError as error:
        raise InvalidValueError(option_name(error.field), error.value, error.limit) from None
    with bind(server) as listener:
        from pagoda.llm import AsyncLLM
        from pagoda.planning.ledger import format_held, format_ledger
        from pagoda.server.app import create_app
        from pagoda.server.metrics import ServerMetrics
        from pagoda.server.service import Service

        llm = AsyncLLM(on_plan=lambda plan: note(format_ledger(plan)), **dataclasses.asdict(config))
        note(f"Loaded: {format_held(llm.plan, llm.held)}.")
        try:
            service = Service(llm, server, ServerMetrics(llm, server.served_model_name or config.model))
            url = url_of(listener)

            def announce() -> None:
                note(f"Pagoda serves {service.model_name} at {url}/v1, on {llm.device}")
                if json_:
                    ready = {"url": url, "base_url": f"{url}/v1", "model": service.model_name, "pid": os.getpid()}
                    print_json(ready)

            run(create_app(service), service, listener, announce)
        finally:
            llm.close()
    note("Pagoda has finished what ran, and ends.")
