"""What `pagoda inspect` finds out, as plain data: the object that `--json` prints and the terminal view shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pagoda.loading.checkpoint import Checkpoint
from pagoda.models.family import Family
from pagoda.models.weights import check_inventory
from pagoda.planning.costs import CostModel
from pagoda.planning.data_flow import data_flow, summed_over_layers
from pagoda.planning.formats import element_bytes
from pagoda.planning.holding import Holding, torch_holding, weight_bytes
from pagoda.planning.memory import kv_bytes_per_token
from pagoda.planning.model_spec import LayerSpec, ModelSpec
from pagoda.planning.native_holding import native_holding

FLOAT32 = 4


def inspect_checkpoint(
    checkpoint: Checkpoint,
    family: Family,
    spec: ModelSpec,
    *,
    context: int,
    batch: int,
    dtype: str | None,
    quantization: str | None,
    kv_dtype: str,
    threads: int,
) -> dict[str, Any]:
    """Everything about one model, for `batch` sequences of `context` tokens. Sizes are bytes.

    dtype: that torch computes in ("bfloat16", …), or None: as the CPU's native kernels hold the model, with so many
    threads, and with what is stored dense quantized ("int8", "int4") or not (None), and the KV cache in
    kv_dtype ("bfloat16", "int8").
    Raises what `check_inventory` raises: a model that could not be loaded is not described as if it could.
    """
    stored = check_inventory(checkpoint, family, spec)
    formats = {weight: checkpoint.tensors[tensor].format for weight, tensor in stored.items()}
    if dtype is None:
        holding = native_holding(spec, formats, quantization, threads, kv_dtype)
    else:
        holding = torch_holding(spec, element_bytes(dtype))
    # Between the native commands most is float32.
    activations = FLOAT32 if dtype is None else element_bytes(dtype)
    kv_bytes = kv_bytes_per_token(spec, holding.kv_held)
    return {
        "model": checkpoint.name,
        "kind": checkpoint.kind,
        "architecture": _architecture(spec),
        "parameters": _parameters(spec),
        "files": _files(checkpoint),
        "memory": {
            "dtype": dtype or quantization or "stored",
            "kv_dtype": dtype or kv_dtype,
            "context": context,
            "batch": batch,
            "weight_bytes": holding.weight_bytes,
            "weight_bytes_as_stored": weight_bytes(spec, formats),
            "kv_bytes_per_token": kv_bytes,
            "kv_bytes_total": kv_bytes * context * batch,
            "workspace_bytes": holding.workspace(
                max_batched_tokens=max(batch, min(512, context)), max_num_seqs=batch, max_model_len=context
            ),
        },
        "decode_step": _step(holding, [(context - 1, 1)] * batch, activations),
        "prefill": _step(holding, [(0, context)] * batch, activations),
    }


def _architecture(spec: ModelSpec) -> dict[str, Any]:
    return {
        "family": spec.family,
        "num_layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "vocab_size": spec.vocab_size,
        "context_length": spec.context_length,
        "norm_eps": spec.norm_eps,
        "tied_embeddings": spec.tied_embeddings,
        "learned_positions": spec.learned_positions,
        # Layers are few kinds repeated; each kind once, with how many layers are of it.
        "layers": [{"count": count, **_layer(layer)} for layer, count in Counter(spec.layers).items()],
    }


def _layer(layer: LayerSpec) -> dict[str, Any]:
    described = asdict(layer)
    rope = described["attention"]["rope"]
    if rope is not None and rope["divisors"] is not None:
        rope["divisors"] = list(rope["divisors"])
    return described


def _parameters(spec: ModelSpec) -> dict[str, Any]:
    by_part: Counter[str] = Counter()
    for weight in spec.weights:
        by_part[weight.part] += weight.num_elements
    return {"total": spec.num_parameters, "by_part": dict(by_part)}


def _files(checkpoint: Checkpoint) -> dict[str, Any]:
    """Every tensor of the files, the ignored ones included."""
    formats: dict[str, dict[str, int]] = {}
    for tensor in checkpoint.tensors.values():
        entry = formats.setdefault(tensor.format, {"tensors": 0, "bytes": 0})
        entry["tensors"] += 1
        entry["bytes"] += tensor.num_bytes
    ordered = sorted(formats.items(), key=lambda item: -item[1]["bytes"])
    return {"tensor_bytes": sum(entry["bytes"] for entry in formats.values()), "formats": dict(ordered)}


def _step(holding: Holding, rows: Sequence[tuple[int, int]], activations: int) -> dict[str, Any]:
    """One step: its cost, and the same by part. activations: bytes of one of their numbers."""
    spec, held, kv = holding.spec, holding.format_of, holding.kv_held
    cost = CostModel(spec, held, kv).step_cost(rows)
    parts = data_flow(spec, rows, format_of=held, element_bytes=activations, kv_held=kv)
    layers = Counter(part.name for part in parts)
    return {
        "num_tokens": cost.num_tokens,
        "flops": cost.flops,
        "bytes": cost.num_bytes,
        "weight_bytes": cost.weight_bytes,
        "kv_read_bytes": cost.kv_read_bytes,
        "kv_written_bytes": cost.kv_written_bytes,
        "parts": [
            {
                "name": part.name,
                "count": layers[part.name],
                "flops": part.flops,
                "weight_bytes": part.weight_bytes,
                "kv_read_bytes": part.kv_read_bytes,
                "kv_written_bytes": part.kv_written_bytes,
                "activation_bytes": part.activation_bytes,
            }
            for part in summed_over_layers(parts)
        ],
    }
