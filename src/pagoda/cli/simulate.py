"""`pagoda simulate`: latency, throughput and cost under load, before anything is bought or loaded."""

from __future__ import annotations

from typing import Annotated

import typer

from pagoda.cli.options import with_derived_options
from pagoda.simulation.settings import SimulationSettings


@with_derived_options
def simulate(
    *,
    settings: SimulationSettings,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Say what users of a deployment will see under load.

    The engine's own scheduler and KV blocks run on a virtual clock. No weight is read and nothing is computed: what a step
    takes is a timer's word, and the report says which. TTFT, TPOT and end-to-end latency are those that a load generator
    measures.
    """
    from pagoda.cli.simulation import simulation_report
    from pagoda.progress import TerminalProgress

    with TerminalProgress() as bars:
        report = simulation_report(settings, bars)
    if json_:
        from pagoda.cli.console import print_json

        print_json(report)
    else:
        from pagoda.cli.simulation_view import show

        show(report)
