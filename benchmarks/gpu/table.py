"""What was measured, as a table for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# vLLM 0.23.0 on an H200, measured: decode of LLaMA-7B's shape at contexts of 512 to 640 tokens, ms a step by batch; prompt
# tokens a second; start to the first token, its import included.
VLLM_STEP_MS = {1: 4.57, 16: 5.85, 64: 9.77, 256: 28.3}
VLLM_PREFILL = {"prefill 1 x 2048": 41_900, "prefill 64 x 512": 47_000}


def table(results: Mapping[str, Any]) -> str:
    return "\n".join(_lines(results["sizes"], results["stages"])) + "\n"


def _lines(sizes: str, stages: Mapping[str, Any]) -> Iterator[str]:
    yield f"{_machine(_figures(stages, 'environment'))}   ({sizes} sizes)"
    ceilings = _figures(stages, "ceilings")
    for name, unit in (
        ("read_bytes_per_second", "TB/s read"),
        ("copied_bytes_per_second", "TB/s copied, read and written"),
        ("upload_bytes_per_second", "TB/s from pinned memory"),
        ("bf16_flops_per_second", "TFLOP/s in bf16"),
    ):
        if name in ceilings:
            yield f"  {ceilings[name] / 1e12:9.3f} {unit}"
    for name, stage in stages.items():
        yield ""
        yield f"{name}: {stage['outcome']}, {stage['seconds']} s"
        yield from _stage(name, stage["figures"])
        if words := stage.get("words", "").strip():
            yield f"  {words.splitlines()[-1]}"


def _figures(stages: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    figures: Mapping[str, Any] = stages.get(name, {}).get("figures", {})
    return figures


def _machine(found: Mapping[str, Any]) -> str:
    versions = found.get("packages", {})
    parts = [found.get("gpu", "no GPU"), *(f"{name} {versions.get(name)}" for name in ("torch", "triton"))]
    return ", ".join((*parts, f"Python {found.get('python')}"))


def _stage(name: str, figures: Mapping[str, Any]) -> Iterator[str]:
    if "start_to_first_token_seconds" in figures:
        yield f"  {figures['start_to_first_token_seconds']:9.2f} s from the start to the first token"
        yield f"  {figures['load_seconds']:9.2f} s of loading, weights {figures['weight_bytes'] / 1e9:.2f} GB"
    decodes = {key: value for key, value in figures.items() if "decode " in key}
    if decodes:
        yield "    batch   ms/step   limit   of it   tokens/s   wall ms   forward   host ms   vLLM ms"
    for key, value in decodes.items():
        is_compared = name == "bf16" and key.startswith("decode")
        yield _decode(int(key.rpartition(" ")[2]), value, is_compared=is_compared) + key.rpartition("decode")[0]
    for key, value in figures.items():
        if key.startswith("prefill "):
            peer = f"   vLLM {VLLM_PREFILL[key]:,}" if name == "bf16" and key in VLLM_PREFILL else ""
            yield f"  {key}: {value['tokens_per_second']:,.0f} tokens/s{peer}"
        elif key.startswith("profile ") and "kernels" in value:
            yield f"  {key}: {value['device_ms_per_step']:.3f} ms of the device a step"
            for kernel in value["kernels"][:8]:
                yield f"    {kernel['us_per_step']:9.1f} us {kernel['calls_per_step']:6.1f} x {kernel['name']}"
    for load in figures.get("left_out", ()):
        yield f"  left out: {load}"
    if figures.get("graphs"):
        yield f"  graphs of decode: {figures['graphs']['captured']} {figures['graphs']['problem'] or ''}"
    if figures.get("allocations"):
        yield f"  allocations while measuring: {figures['allocations']}"
    for entry in figures.get("products", ()):
        shape = f"{entry['outputs']} x {entry['inputs']}{', gate' if entry['is_gated'] else ''}, {entry['rows']} rows"
        yield f"  {shape}: {entry['microseconds']} us, {entry['tilings'][:1]}"
    yield from _agreement(figures)
    yield from _tests(figures)


def _decode(batch: int, found: Mapping[str, Any], *, is_compared: bool) -> str:
    limit, fraction = found["limit_ms"], found["fraction_of_limit"]
    peer = VLLM_STEP_MS.get(batch) if is_compared else None
    return (
        f"    {batch:5} {found['step_ms']:9.3f} {'' if limit is None else f'{limit:.3f}':>7} "
        f"{'' if fraction is None else f'{fraction:.0%}':>7} {found['tokens_per_second']:10,.0f} "
        f"{found['wall_ms']:9.3f} {_milliseconds(found['forward_ms'])} {_milliseconds(found['host_ms'])} "
        f"{'' if peer is None else peer:>9} "
    )


def _agreement(figures: Mapping[str, Any]) -> Iterator[str]:
    for dtype in ("float32", "bfloat16"):
        for kind, found in figures.get(dtype, {}).items():
            yield (
                f"  {dtype} {kind}: log-probabilities differ by {found['mean']:.2g}, at most {found['largest']:.2g}; "
                f"another best token at {found['other_best']} of {found['positions']} positions, "
                f"at most {found['largest_margin']:.2g} less likely"
            )


def _milliseconds(value: float | None) -> str:
    return f"{'' if value is None else f'{value:.3f}':>9}"


def _tests(figures: Mapping[str, Any]) -> Iterator[str]:
    if "not_run" in figures:
        yield f"  not run: {figures['not_run']}"
    if "files" not in figures:
        return
    yield "  " + ", ".join(f"{figures.get(kind, '?')} {kind}" for kind in ("passed", "failed", "skipped"))
    for name, outcome in figures["files"].items():
        if outcome["words"]:
            yield f"    {name}: {outcome['words'].strip().splitlines()[-1]}"
