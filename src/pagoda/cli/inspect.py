"""`pagoda inspect`: what a model is and what running it takes, from its files' headers alone. No weight is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pagoda import checks
from pagoda.errors import InvalidValueError
from pagoda.planning.formats import DENSE_FORMATS, QUANTIZED
from pagoda.planning.native_formats import NATIVE_KV_FORMATS

DEFAULT_CONTEXT = 2048
DTYPES = ("auto", *DENSE_FORMATS)
QUANTIZATIONS = ("none", *QUANTIZED)
KV_DTYPES = ("auto", *NATIVE_KV_FORMATS)


def inspect(
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="A hub id, a local directory, a .gguf file, or smollm2.")
    ] = "smollm2",
    *,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    context: Annotated[
        int | None,
        typer.Option(help="Tokens of each sequence. Default: 2,048, or the model's own limit if that is less."),
    ] = None,
    batch: Annotated[int, typer.Option(help="Sequences at once.")] = 1,
    dtype: Annotated[
        str,
        typer.Option(
            metavar="|".join(DTYPES),
            help="Number format that torch computes in (device reference); auto: as on the CPU, where weights stay as they "
            "are stored.",
        ),
    ] = "auto",
    quantization: Annotated[
        str,
        typer.Option(metavar="|".join(QUANTIZATIONS), help="What the CPU makes of weights that are stored dense."),
    ] = "none",
    kv_cache_dtype: Annotated[
        str, typer.Option(metavar="|".join(KV_DTYPES), help="Number format of K and V on the CPU; auto: bfloat16.")
    ] = "auto",
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show what a model is and what running it takes.

    Architecture, parameters, formats and memory, and the decoder's data flow with its bytes and FLOPs.
    """
    from pagoda.cli.inspection import inspect_checkpoint
    from pagoda.loading.resolve import open_checkpoint
    from pagoda.models.registry import family_for
    from pagoda.runner.host_cores import usable_cores

    computed = None if checks.choice("--dtype", dtype, DTYPES) == "auto" else dtype
    wanted = None if checks.choice("--quantization", quantization, QUANTIZATIONS) == "none" else quantization
    if computed and wanted:
        raise InvalidValueError("--quantization", quantization, f"none with --dtype {dtype}, which is torch's")
    kv_dtype = "bfloat16" if checks.choice("--kv-cache-dtype", kv_cache_dtype, KV_DTYPES) == "auto" else kv_cache_dtype
    if computed and kv_cache_dtype != "auto":
        raise InvalidValueError("--kv-cache-dtype", kv_cache_dtype, f"auto with --dtype {dtype}, which is torch's")
    checks.integer("--batch", batch, 1, 4096)

    def accept(config: Mapping[str, Any]) -> None:
        family_for(config).spec(config)

    # What a model is can be wrong already; that is told before its weights are downloaded.
    checkpoint = open_checkpoint(model, revision, accept)
    try:
        family = family_for(checkpoint.config)
        spec = family.spec(checkpoint.config)
        length = min(DEFAULT_CONTEXT, spec.context_length) if context is None else context
        checks.integer("--context", length, 1, spec.context_length)
        report = inspect_checkpoint(
            checkpoint,
            family,
            spec,
            context=length,
            batch=batch,
            dtype=computed,
            quantization=wanted,
            kv_dtype=kv_dtype,
            threads=usable_cores(),
        )
    finally:
        checkpoint.close()
    if json:
        from pagoda.cli.console import print_json

        print_json(report)
    else:
        from pagoda.cli.inspection_view import show

        show(report)
