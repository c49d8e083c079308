"""What other formats of weights and of the KV cache would change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pagoda.planning.capacity import max_concurrency
from pagoda.planning.deployment import Deployment, deploy
from pagoda.planning.gpu_holding import DENSE
from pagoda.planning.memory import kv_bytes_per_token
from pagoda.planning.native_holding import has_int8_heads
from pagoda.planning.plan import FormatChange


def format_changes(deployment: Deployment) -> tuple[FormatChange, ...]:
    """The formats asked for first, then all others that the device's kind of engine has, all else equal."""
    question = deployment.question
    own = (deployment.weight_format, deployment.kv_format)
    others = [pair for pair in _pairs(deployment) if pair != own]
    tried = [deploy(replace(question, weight_format=weights, kv_format=kv)) for weights, kv in others]
    return tuple(_change(candidate) for candidate in (deployment, *tried))


def weight_formats(deployment: Deployment) -> tuple[str, ...]:
    """From the widest to the narrowest."""
    dense = deployment.weight_format if deployment.weight_format in DENSE else "bf16"
    return (dense, "int8", "int4") if deployment.question.threads else (dense, "fp8", "int8", "int4")


def kv_formats(deployment: Deployment) -> tuple[str, ...]:
    """From the widest to the narrowest: the activations' own, and the one of 8 bits that the engine has there."""
    if deployment.question.threads:
        return ("bf16", "int8") if has_int8_heads(deployment.spec) else ("bf16",)
    dense = deployment.kv_format if deployment.kv_format in DENSE else "bf16"
    return dense, "fp8"


def _pairs(deployment: Deployment) -> Iterator[tuple[str, str]]:
    for weights in weight_formats(deployment):
        for kv in kv_formats(deployment):
            yield weights, kv


def _change(candidate: Deployment) -> FormatChange:
    question = candidate.question
    return FormatChange(
        weight_format=candidate.weight_format,
        kv_format=candidate.kv_format,
        weight_bytes=candidate.holding.weight_bytes * question.num_devices,
        kv_bytes_per_token=kv_bytes_per_token(candidate.spec, candidate.holding.kv_held) * question.num_devices,
        max_concurrency=max_concurrency(candidate),
        decode=candidate.decode_bound(question.concurrency, question.context),
        fits=candidate.fits(question.concurrency, question.context),
    )
