"""`pagoda inspect` in the terminal: the report as tables."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from pagoda.cli.printed import printed
from pagoda.planning.ledger import binary_size, decimal_size

LEAST_WIDTH = 100
# How the CPU holds weights; a number format speaks for itself.
HELD = {"stored": "as stored", "int8": "dense ones as int8", "int4": "dense ones as int4"}


def show(report: dict[str, Any]) -> None:
    """Prints the report of `inspection.inspect_checkpoint` on stdout."""
    memory = report["memory"]
    sequences = "1 sequence" if memory["batch"] == 1 else f"{memory['batch']:,} sequences"
    held = HELD.get(memory["dtype"], memory["dtype"])
    computed = f"{sequences} of {memory['context']:,} tokens, {held}"
    with printed(LEAST_WIDTH, markup=True) as console:
        console.print(_facts(report))
        console.print(_flow(f"One decode step: the last token of {computed}", report["decode_step"]))
        console.print(_flow(f"Prefill: all tokens of {computed}", report["prefill"]))
        console.print(
            "FLOPs count matrix products and attention. Bytes are the least that must move: each weight once a step, "
            "K and V of each sequence once; activations as the ops pass them on."
        )


def _facts(report: dict[str, Any]) -> Table:
    architecture, parameters, memory = report["architecture"], report["parameters"], report["memory"]
    table = Table(box=None, show_header=False, pad_edge=False, title=report["model"], title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column()

    def row(name: str, value: str) -> None:
        table.add_row(name, value)

    row("architecture", f"{architecture['family']}, {architecture['num_layers']:,} layers ({report['kind']} files)")
    for layer in architecture["layers"]:
        row("", f"{layer['count']:,} × {_layer(layer)}")
    row("hidden size", f"{architecture['hidden_size']:,}")
    row("vocabulary", f"{architecture['vocab_size']:,}" + (", tied head" if architecture["tied_embeddings"] else ""))
    row("context", f"{architecture['context_length']:,} tokens")
    row("parameters", f"{parameters['total']:,}")
    for part, count in parameters["by_part"].items():
        row("", f"{part.replace('_', '-')} {count:,} ({100 * count / parameters['total']:.1f}%)")
    formats = ", ".join(f"{name} ×{entry['tensors']:,}" for name, entry in report["files"]["formats"].items())
    row("formats", formats)
    row("tensors in files", _size(report["files"]["tensor_bytes"]))
    row("weights in memory", f"{_size(memory['weight_bytes'])}, {HELD.get(memory['dtype'], memory['dtype'])}")
    row(
        "KV cache",
        f"{memory['kv_bytes_per_token']:,} B a token ({memory['kv_dtype']}), {_size(memory['kv_bytes_total'])} for all",
    )
    row("workspace", f"at most {_size(memory['workspace_bytes'])}")
    return table


def _layer(layer: dict[str, Any]) -> str:
    attention, feed_forward = layer["attention"], layer["feed_forward"]
    parts = [
        f"{attention['num_heads']:,} heads and {attention['num_kv_heads']:,} KV heads of {attention['head_dim']:,}"
    ]
    if attention["window"] is not None:
        parts.append(f"window {attention['window']:,}")
    if attention["qk_norm"]:
        parts.append("q/k norm")
    if attention["rope"] is not None:
        parts.append(_rope(attention["rope"]))
    gated = "gated " if feed_forward["gated"] else ""
    parts.append(f"{gated}{feed_forward['activation']} feed-forward of {feed_forward['intermediate_size']:,}")
    return ", ".join(parts)


def _rope(rope: dict[str, Any]) -> str:
    text = f"RoPE base {rope['base']:,.0f}"
    if rope["linear_factor"] != 1.0:
        text += f" ÷ {rope['linear_factor']:g}"
    if rope["llama3"] is not None:
        text += f" (llama3 × {rope['llama3']['factor']:g})"
    return text + (" (frequencies from the file)" if rope["divisors"] is not None else "")


def _flow(title: str, step: dict[str, Any]) -> Table:
    """One step by part, and its sum."""
    table = Table(title=title, title_justify="left", title_style="bold", show_footer=True)
    parts = step["parts"]
    table.add_column("part", "all", no_wrap=True)
    table.add_column("×", justify="right", no_wrap=True)
    table.add_column("FLOPs", scaled_flops(step["flops"]), justify="right", no_wrap=True)
    names = ("weight_bytes", "kv_read_bytes", "kv_written_bytes", "activation_bytes")
    for name, header in zip(names, ("weights", "KV read", "KV written", "activations"), strict=True):
        table.add_column(header, binary_size(sum(part[name] for part in parts)), justify="right", no_wrap=True)
    for part in parts:
        sizes = [binary_size(part[name]) if part[name] else "" for name in names]
        table.add_row(part["name"], f"{part['count']:,}", scaled_flops(part["flops"]) if part["flops"] else "", *sizes)
    return table


def scaled_flops(flops: int) -> str:
    """In powers of 1000: 13_214_000_000 → "13.21 GFLOP"."""
    return decimal_size(flops).removesuffix("B").replace("k", "K") + "FLOP"


def _size(num_bytes: int) -> str:
    return f"{binary_size(num_bytes)} ({decimal_size(num_bytes)}, {num_bytes:,} B)"
