"""`pagoda plan`: what a model will need on a device and how fast it can be, before anything is bought, loaded or measured."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from pagoda.errors import InvalidValueError, PagodaError

if TYPE_CHECKING:
    from pagoda.planning.plan import Plan


def plan(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A hub id, a local directory or config.json, a .gguf file, smollm2, or a published shape such as "
            "llama-3-8b. Needed but for --roofline.",
        ),
    ] = None,
    *,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    device: Annotated[
        str,
        typer.Option(
            help="this (the machine's CPU, as measured), an id such as a100-80g, or figures: "
            "flops=312e12,bandwidth=2e12,memory=80e9."
        ),
    ] = "this",
    devices: Annotated[int, typer.Option(help="So many of them, by tensor parallelism.")] = 1,
    context: Annotated[
        int | None,
        typer.Option(help="Tokens of each request. Default: 2,048, or the model's own limit if that is less."),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Requests at once.")] = 1,
    parameters: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Reckon with so many instead of the model's own: 7e9, 7B.")
    ] = None,
    weight_format: Annotated[
        str | None, typer.Option(help="bf16, fp16, fp8, int8, int4, … Default: as the files are stored.")
    ] = None,
    kv_format: Annotated[str | None, typer.Option(help="Of K and V: bf16, fp8, … Default: as the engine does.")] = None,
    memory_fraction: Annotated[float, typer.Option(help="Share of the memory that may be used.")] = 0.9,
    block_size: Annotated[int, typer.Option(help="Tokens of a KV block.")] = 16,
    max_batched_tokens: Annotated[int, typer.Option(help="Most tokens of a step; longer prompts go in chunks.")] = 512,
    weights_only: Annotated[bool, typer.Option("--weights-only", help="Leave K and V out of the decode step.")] = False,
    calibration: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="What `pagoda bench calibrate` saved of this model, to estimate by."),
    ] = None,
    roofline: Annotated[
        str | None,
        typer.Option(metavar="flop=N,bytes=N", help="No model: the two times of any pair of numbers on the device."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="The report as one page with charts.")] = None,
    png: Annotated[str | None, typer.Option(metavar="FILE", help="The charts as a picture (needs matplotlib).")] = None,
    formulas: Annotated[bool, typer.Option(help="Show how each figure is worked out.")] = True,
) -> None:
    """Say what a model will need on a device, and how fast it can be.

    Memory, requests that fit, time and throughput, from a model's configuration alone. Bounds are what the hardware permits;
    estimates are what an engine is expected to do. No weight is read.
    """
    if roofline is not None:
        for name, value in (("MODEL", model), ("--html", html), ("--png", png), ("--calibration", calibration)):
            if value is not None:
                raise InvalidValueError(name, value, "left out with --roofline")
        from pagoda.cli.plan_roofline import show_roofline

        show_roofline(roofline, device, weight_format or "bf16", json)
        return
    if model is None:
        raise PagodaError("MODEL is missing: name one, such as llama-3-8b or a directory (or use --roofline)")

    from pagoda.cli.output_file import output_file
    from pagoda.cli.planning_question import Typed, ask
    from pagoda.planning.planner import make_plan

    if png is not None:
        from pagoda.cli.charts_png import check_matplotlib

        check_matplotlib()
        if html is not None and os.path.realpath(png) == os.path.realpath(html):
            raise InvalidValueError("--png", png, "another file than that of --html")
    with output_file("--html", html) as page, output_file("--png", png) as picture:
        answer = make_plan(
            ask(
                Typed(
                    model=model,
                    revision=revision,
                    device=device,
                    devices=devices,
                    context=context,
                    concurrency=concurrency,
                    parameters=parameters,
                    weight_format=weight_format,
                    kv_format=kv_format,
                    memory_fraction=memory_fraction,
                    block_size=block_size,
                    max_batched_tokens=max_batched_tokens,
                    weights_only=weights_only,
                    calibration=calibration,
                )
            )
        )
        if page is not None:
            from pagoda.cli.plan_html import plan_page

            page.write(plan_page(answer).encode())
        if picture is not None:
            from pagoda.cli.plan_png import plan_picture

            picture.write(plan_picture(answer))
    _show(answer, json=json, formulas=formulas)
    for file in (page, picture):
        if file is not None:
            from pagoda.cli.console import note

            note(f"Written: {file.path}")


def _show(answer: Plan, *, json: bool, formulas: bool) -> None:
    if json:
        from pagoda.cli.console import print_json
        from pagoda.cli.planning_report import plan_report

        print_json(plan_report(answer))
    else:
        from pagoda.cli.plan_view import show

        show(answer, formulas)
