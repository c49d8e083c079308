"""One plain recommendation, and the `pagoda serve` command that realises it as far as Pagoda can serve it today."""

from __future__ import annotations

import shlex
from dataclasses import replace

from pagoda.config import default_of
from pagoda.planning.capacity import max_concurrency
from pagoda.planning.cpu_formats import stored_dense
from pagoda.planning.deployment import Deployment
from pagoda.planning.format_changes import narrow_kv_format
from pagoda.planning.formats import DENSE_FORMATS, QUANTIZED
from pagoda.planning.gpu_holding import DENSE
from pagoda.planning.ledger import binary_size
from pagoda.planning.memory import refusal
from pagoda.planning.plan import StepBound
from pagoda.planning.remedies import Tried


def recommendation(
    deployment: Deployment, decode: StepBound, requests: int, compute_bound_from: int | None, tried: tuple[Tried, ...]
) -> str:
    """requests: how many fit at once. tried: the remedies, where what is asked does not fit."""
    question = deployment.question
    if requests >= question.concurrency:
        said, realised = _advice(deployment, decode, requests, compute_bound_from), deployment
    else:
        said, realised = _refused(deployment, tried), tried[0].deployment if tried else deployment
    missing = not_served(realised)
    return f"{said} Pagoda cannot serve this yet: it lacks {' and '.join(missing)}." if missing else said


def not_served(deployment: Deployment) -> list[str]:
    """What of it no option of `pagoda serve` can bring about today."""
    question, missing = deployment.question, []
    layers = {(layer.feed_forward.experts is None, layer.attention.latent is None) for layer in deployment.spec.layers}
    if any(not dense for dense, _ in layers):
        missing.append("mixtures of experts")
    if any(not plain for _, plain in layers):
        missing.append("multi-head latent attention")
    if question.num_devices > 1:
        missing.append("tensor parallelism")
    if question.threads is None and deployment.weight_format not in DENSE:
        missing.append(f"weights in {deployment.weight_format} on a GPU")
    if question.threads is None and question.kv_format not in (None, *DENSE):
        missing.append(f"K and V in {deployment.kv_format}")
    return missing


def serve_command(deployment: Deployment) -> str:
    """With options that exist only; what they cannot say, `not_served` tells."""
    question = deployment.question
    words = ["pagoda", "serve", question.model, "--device", "cpu" if question.threads else "cuda"]
    if question.threads is None:
        dtypes = {
            DENSE[typed]: dtype for dtype, name in DENSE_FORMATS.items() for typed in DENSE if DENSE[typed] == name
        }
        words += ["--dtype", dtypes[DENSE.get(deployment.weight_format, "BF16")]]
    elif question.weight_format in QUANTIZED and stored_dense(question.spec, question.stored):
        words += ["--quantization", question.weight_format]
    words += ["--max-model-len", str(question.context), "--max-num-seqs", str(min(question.concurrency, 4096))]
    tokens = max(question.max_batched_tokens, question.concurrency)
    for name, value in (
        ("max_batched_tokens", tokens),
        ("block_size", question.block_size),
        ("memory_fraction", question.memory_fraction),
    ):
        if value != default_of(name):
            words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)


def _advice(deployment: Deployment, decode: StepBound, requests: int, compute_bound_from: int | None) -> str:
    question = deployment.question
    requests_fit = f"{requests:,} requests" if requests > 1 else "1 request"
    fits = f"It fits: up to {requests_fit} of {question.context:,} tokens at once"
    if decode.limit == "communication":
        return f"{fits}; a decode step waits for the links between devices most of all, so fewer devices may be faster."
    if decode.limit == "compute":
        return (
            f"{fits}; decode is bound by compute already, so more requests at once make each slower and all no faster."
        )
    reading = "K and V" if decode.kv_bytes > decode.weight_bytes else "weights"
    share = max(decode.kv_bytes, decode.weight_bytes) / (decode.kv_bytes + decode.weight_bytes)
    said = f"{fits}; decode is bound by memory, and {share:.0%} of what a step reads are {reading}, so "
    if reading == "K and V":
        narrow = narrow_kv_format(question.device)
        if question.threads is None and deployment.kv_format in DENSE:
            return f"{said}K and V in {narrow} would gain most."
        return f"{said}shorter contexts would gain most."
    best = min(requests, compute_bound_from or requests)
    if best > question.concurrency:
        gain = deployment.decode_bound(best, question.context)
        times = best / gain.seconds / (question.concurrency / decode.seconds)
        return f"{said}more requests at once cost little: {best:,} give up to {times:.1f} times the tokens a second."
    return f"{said}narrower weights would gain most."


def _refused(deployment: Deployment, tried: tuple[Tried, ...]) -> str:
    question = deployment.question
    if question.threads is not None and max_concurrency(deployment) == 0:
        # What the engine will say when it is started, in its words.
        demand = replace(deployment.demand(question.concurrency, question.context), num_kv_blocks=None)
        return _sentence(refusal(demand, question.device.memory_bytes, question.memory_fraction))
    demand = deployment.demand(question.concurrency, question.context)
    needed, budget = demand.total(demand.least_blocks), deployment.budget_bytes
    each = " on each device" if question.num_devices > 1 else ""
    said = f"It does not fit: {binary_size(needed)}{each} are needed, {binary_size(budget)} may be used"
    if not tried:
        return f"{said}, and nothing tried changes that."
    return f"{said}; {tried[0].remedy.option} is the smallest change that helps: {tried[0].remedy.sentence}."


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:] + "."
