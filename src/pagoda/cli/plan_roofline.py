"""`pagoda plan --roofline flop=…,bytes=…`: the least time of any pair of numbers on a device."""

from __future__ import annotations

from pagoda.cli.console import print_json
from pagoda.cli.plan_text import duration, significant
from pagoda.cli.planning_question import named_device
from pagoda.cli.streams import put
from pagoda.cli.typed_figures import parse_pairs


def show_roofline(figures: str, device: str, number_format: str, json: bool) -> None:
    """Prints both times, which one binds, the intensity and the ridge. Raises `InvalidValueError`."""
    from pagoda.planning.roofline import roofline

    flop, num_bytes = parse_pairs("--roofline", figures, ("flop", "bytes"))
    hardware, _ = named_device(device)
    found = roofline(flop, num_bytes, hardware, number_format)
    if json:
        print_json(
            {
                "device": hardware.name,
                "format": number_format,
                "flop": flop,
                "bytes": num_bytes,
                "compute_ms": 1e3 * found.compute_seconds,
                "memory_ms": 1e3 * found.memory_seconds,
                "bound": found.limit,
                "bound_ms": 1e3 * max(found.compute_seconds, found.memory_seconds),
                "intensity": found.intensity,
                "ridge": found.ridge,
            }
        )
        return
    rows = (
        ("device", f"{hardware.name} ({hardware.source})" if hardware.source else hardware.name),
        ("compute", f"{duration(found.compute_seconds)}   {flop:,.0f} FLOP in {number_format}"),
        ("memory", f"{duration(found.memory_seconds)}   {num_bytes:,.0f} B"),
        ("bound", f"{duration(max(found.compute_seconds, found.memory_seconds))}   {found.limit} binds"),
        ("intensity", f"{significant(found.intensity)} FLOP/B, the ridge is at {significant(found.ridge)}"),
    )
    put("".join(f"{name:<10} {value}\n" for name, value in rows))
