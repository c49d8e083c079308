"""One plain recommendation, and the `pagoda serve` command that realises it as far as Pagoda can serve it today."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from pagoda.config import default_of
from pagoda.planning.cuda_formats import CUDA_QUANTIZATIONS
from pagoda.planning.deployment import Deployment
from pagoda.planning.devices import WITHOUT_KERNELS
from pagoda.planning.formats import DENSE_FORMATS, FP8_FORMATS, QUANTIZED
from pagoda.planning.gpu_holding import DENSE, activation_format
from pagoda.planning.holding import format_name
from pagoda.planning.ledger import binary_size
from pagoda.planning.memory import refusal
from pagoda.planning.plan import FormatChange, StepBound
from pagoda.planning.question import Question
from pagoda.planning.remedies import Tried

# Less than this times the tokens a second is not worth a recommendation.
WORTHWHILE = 1.2
# In the command instead of a model that has none.
NO_WEIGHTS = "MODEL"


def recommendation(
    deployment: Deployment, decode: StepBound, requests: int, formats: Sequence[FormatChange], tried: Sequence[Tried]
) -> str:
    """requests: how many fit at once. formats: the one asked for first. tried: remedies, where what is asked does not fit."""
    if deployment.fits(deployment.question.concurrency, deployment.question.context):
        said, realised = _advice(deployment, decode, requests, formats), deployment
    else:
        said, realised = _refused(deployment, requests, tried), tried[0].deployment if tried else deployment
    if missing := not_served(realised):
        said = f"{said} Pagoda cannot serve this yet: it lacks {_listed(missing)}."
    if deployment.question.served_as is None:
        said = (
            f"{said} Only a configuration is known: {NO_WEIGHTS} in the command stands for the model with its weights."
        )
    return said


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
    if question.device.name in WITHOUT_KERNELS:
        missing.append(f"kernels for {question.device.name}")
    # GPTQ, AWQ and the like, by the names that describing a model gives their formats.
    missing += [f"files with weights in {name}" for name in sorted(_stored_formats(question) & {"int4", "int8"})]
    is_other = question.weight_format not in (None, *_stored_formats(question))
    if question.threads is None and is_other and not _can_quantize(question):
        missing.append(f"weights in {question.weight_format} of files that are quantized")
    if question.threads is None and question.kv_format not in (None, "fp8", _activations(deployment)):
        missing.append(f"K and V in {deployment.kv_format} on a GPU")
    return missing


def serve_command(deployment: Deployment) -> str:
    """With options that exist only; what they cannot say, `not_served` tells."""
    question = deployment.question
    words = ["pagoda", "serve", question.served_as or NO_WEIGHTS]
    if question.revision is not None:
        words += ["--revision", question.revision]
    words += ["--device", "cpu" if question.threads else "cuda"]
    if question.threads is None:
        dtypes = {name: dtype for dtype, name in DENSE_FORMATS.items()}
        words += ["--dtype", dtypes[DENSE[_activations(deployment)]]]
    quantizations = QUANTIZED if question.threads else CUDA_QUANTIZATIONS
    if question.weight_format is not None and question.weight_format in quantizations and _can_quantize(question):
        words += ["--quantization", question.weight_format]
    narrow = "int8" if question.threads else "fp8"
    if question.kv_format == narrow:
        words += ["--kv-cache-dtype", narrow]
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


def _can_quantize(question: Question) -> bool:
    """Whether files hold matrices that can be quantized while they are loaded; those in fp8 on the CPU only."""
    quantizable = {*DENSE.values(), *(FP8_FORMATS if question.threads else ())}
    return not _stored_formats(question).isdisjoint(quantizable)


def _stored_formats(question: Question) -> set[str]:
    """Of the files' matrices in the layers."""
    return {
        format_name(question.stored, weight)
        for weight in question.spec.weights
        if len(weight.shape) > 1 and weight.layer is not None
    }


def _activations(deployment: Deployment) -> str:
    return activation_format(deployment.spec, deployment.holding.format_of)


def _advice(deployment: Deployment, decode: StepBound, requests: int, formats: Sequence[FormatChange]) -> str:
    question = deployment.question
    fits = "It fits: serve it as asked"
    if decode.limit == "communication":
        return f"{fits}; a decode step waits for links between devices most of all, so fewer devices may be as fast."
    if decode.limit == "compute":
        return f"{fits}; decode is bound by compute already, so more requests at once get no more tokens a second."
    most = deployment.decode_bound(requests, question.context)
    gain = requests / most.seconds / (question.concurrency / decode.seconds)
    if requests > question.concurrency and gain >= WORTHWHILE:
        return (
            f"{fits}; decode is bound by memory, and there is room for {requests:,} such requests at once, which get up to "
            f"{gain:.1f} times the tokens a second of {question.concurrency:,}."
        )
    narrower = _narrower(decode, formats)
    return f"{fits}; decode is bound by memory, and {narrower}." if narrower else f"{fits}."


def _narrower(decode: StepBound, formats: Sequence[FormatChange]) -> str:
    """What the one other format of weights, or of K and V, would bring that shortens the step most."""
    own = formats[0]
    single = [
        change
        for change in formats[1:]
        if (change.weight_format == own.weight_format) != (change.kv_format == own.kv_format)
    ]
    times = {change: decode.seconds / change.decode.seconds for change in single if change.decode}
    best = max(times, key=lambda change: times[change], default=None)
    if best is None or times[best] < WORTHWHILE:
        return ""
    what = f"K and V in {best.kv_format}" if best.kv_format != own.kv_format else f"weights in {best.weight_format}"
    return f"{what} would make a step up to {times[best]:.1f} times as fast"


def _refused(deployment: Deployment, requests: int, tried: Sequence[Tried]) -> str:
    question = deployment.question
    if question.threads is not None and not requests:
        # What the engine will say when it is started, in its words.
        demand = replace(deployment.demand(question.concurrency, question.context), num_kv_blocks=None)
        return _sentence(refusal(demand, question.device.memory_bytes, question.memory_fraction))
    needed, budget = deployment.needed(question.concurrency, question.context), deployment.budget_bytes
    each = " on each device" if question.num_devices > 1 else ""
    said = f"It does not fit: {binary_size(needed)}{each} are needed, {binary_size(budget)} may be used"
    if not tried:
        return f"{said}, and nothing tried changes that."
    first = tried[0].remedy
    return f"{said}; {first.option} is the smallest change that helps: {first.sentence}."


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:] + "."


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
