"""Tensor parallelism (Megatron-LM, arXiv:1909.08053): every device holds a share of each layer's heads and inner columns.

Q, K, V, gate and up are split by outputs, output and down by inputs, tables and head by rows of the vocabulary. Norms are on
every device, and K and V heads that are fewer than the devices on several; so is the latent of multi-head latent attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pagoda.errors import InvalidValueError
from pagoda.planning.hardware import Hardware
from pagoda.planning.model_spec import LayerSpec, ModelSpec, WeightSpec

# A layer's weights by the last part of their names, a bias's without `_bias`: split by outputs, or by inputs.
_BY_INPUTS = ("attention_output", "down")  # also of experts
_ON_EVERY_DEVICE = ("router", "q_a", "kv_a", "positions")


def shard(spec: ModelSpec, num_devices: int) -> ModelSpec:
    """What one device computes. Its vocab_size stays whole: logits are gathered.

    Raises `InvalidValueError` where heads or inner columns cannot be split evenly.
    """
    if num_devices == 1:
        return spec
    for layer in set(spec.layers):
        _check(layer, num_devices)
    layers = {layer: _share_of(layer, num_devices) for layer in set(spec.layers)}
    return replace(
        spec,
        layers=tuple(layers[layer] for layer in spec.layers),
        weights=tuple(_split(weight, spec, num_devices) for weight in spec.weights),
    )


def _check(layer: LayerSpec, num_devices: int) -> None:
    attention, ffn = layer.attention, layer.feed_forward
    heads, kv_heads = attention.num_heads, attention.num_kv_heads
    if heads % num_devices:
        raise InvalidValueError("--devices", num_devices, f"a divisor of the {heads} attention heads")
    if attention.latent is None and kv_heads % num_devices and num_devices % kv_heads:
        raise InvalidValueError("--devices", num_devices, f"a divisor or a multiple of the {kv_heads} K/V heads")
    for inner in (ffn.intermediate_size, ffn.experts.shared_size if ffn.experts else 0):
        if inner % num_devices:
            limit = f"a divisor of the {inner:,} inner columns of the feed-forward network"
            raise InvalidValueError("--devices", num_devices, limit)


def _share_of(layer: LayerSpec, num_devices: int) -> LayerSpec:
    attention, ffn, experts = layer.attention, layer.feed_forward, layer.feed_forward.experts
    if experts is not None:
        experts = replace(experts, shared_size=experts.shared_size // num_devices)
    return replace(
        layer,
        attention=replace(
            attention,
            num_heads=attention.num_heads // num_devices,
            num_kv_heads=max(1, attention.num_kv_heads // num_devices),
        ),
        feed_forward=replace(ffn, intermediate_size=ffn.intermediate_size // num_devices, experts=experts),
    )


def _split(weight: WeightSpec, spec: ModelSpec, num_devices: int) -> WeightSpec:
    name = weight.name.rpartition(".")[2]
    bias = name.endswith("_bias")
    name = name.removesuffix("_bias")
    if weight.part == "norm" or name in _ON_EVERY_DEVICE or (bias and name.endswith(_BY_INPUTS)):
        return weight  # a bias of a product split by inputs is added once, after the sum
    kept = num_devices
    if name in ("k", "v") and weight.layer is not None:
        kept = min(num_devices, spec.layers[weight.layer].attention.num_kv_heads)
    if name == "qkv" and weight.layer is not None:
        return _split_qkv(weight, spec.layers[weight.layer], num_devices)
    axis = len(weight.shape) - 1 if name.endswith(_BY_INPUTS) else max(0, len(weight.shape) - 2)
    shape = list(weight.shape)
    shape[axis] = -(-shape[axis] // kept)
    return replace(weight, shape=tuple(shape))


def _split_qkv(weight: WeightSpec, layer: LayerSpec, num_devices: int) -> WeightSpec:
    attention = _share_of(layer, num_devices).attention
    outputs = (attention.num_heads + 2 * attention.num_kv_heads) * attention.head_dim
    return replace(weight, shape=(outputs, *weight.shape[1:]))


@dataclass(frozen=True, slots=True)
class Communication:
    """What the devices of a group send each other in a step.

    Two all-reduces a layer (after attention and after the feed-forward network) and one after the embedding, of tokens ×
    hidden × element_bytes; a gather of logits, of rows × vocab_size × element_bytes. In a ring of n devices an all-reduce of
    so many bytes takes 2 (n − 1) / n × bytes / bandwidth and 2 (n − 1) latencies, a gather half of that (Thakur, Rabenseifner
    and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005).
    """

    num_devices: int
    bandwidth: float
    latency: float
    num_reductions: int
    hidden_size: int
    vocab_size: int
    element_bytes: int

    def seconds(self, num_tokens: int, num_logit_rows: int) -> float:
        if self.num_devices == 1:
            return 0.0
        reductions = self.num_reductions * 2 * self._pass(num_tokens * self.hidden_size * self.element_bytes)
        return reductions + self._pass(num_logit_rows * self.vocab_size * self.element_bytes)

    def _pass(self, num_bytes: int) -> float:
        """Once round the ring: n − 1 steps of an n-th."""
        steps = self.num_devices - 1
        return steps * (num_bytes / self.num_devices / self.bandwidth + self.latency)


def communication(spec: ModelSpec, device: Hardware, num_devices: int, element_bytes: int) -> Communication:
    """element_bytes: of activations. Raises `InvalidValueError` if several devices have no known link."""
    if num_devices > 1 and device.link_bandwidth is None:
        limit = f"one with a link to others (link=…) for --devices {num_devices}"
        raise InvalidValueError("--device", device.name, limit)
    return Communication(
        num_devices,
        device.link_bandwidth or 1.0,
        device.link_latency,
        2 * spec.num_layers + 1,
        spec.hidden_size,
        spec.vocab_size,
        element_bytes,
    )
