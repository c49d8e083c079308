"""What a step takes on a device that no calibration has met: its ceilings, and how near to them engines come.

    step + stages + tokens × elementwise work + rows × choosing
         + √((weights read)² + (products' operations)²) + √((K and V read)² + (attention's operations)²)

each in seconds. The roots are rooflines (Williams et al., CACM 52, 2009) with a rounded corner: where reading and computing
take as long, one hides only part of the other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import hypot

from pagoda.planning.costs import StepCost, head_weight, is_product
from pagoda.planning.hardware import Hardware
from pagoda.planning.holding import FormatOf, format_name
from pagoda.planning.model_spec import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What an engine makes of a device.

    weights, kv: fractions of the bandwidth at which it reads them, where nothing else holds it up.
    products, attention: fractions of the peaks, where there are many tokens.
    element_flops: what an element of an elementwise operation costs, as so many float32 operations at their peak.
    stage_seconds: of each of the `STAGES` of a layer, however little it does. step_seconds: outside of the layers.
    row_seconds: for each request of a step. request_seconds: see `StepTimer`.
    spread: see `StepTimer`. source: where the figures are from.
    """

    weights: float
    kv: float
    products: float
    attention: float
    element_flops: float
    stage_seconds: float
    step_seconds: float
    row_seconds: float
    request_seconds: float
    spread: tuple[float, float]
    source: str


STAGES = 8  # norm, Q/K/V, attention and its cache, O, norm, gate and up, down, and what joins them

# This engine's native kernels. The peaks are those that `pagoda bench limits` measures for each weight format.
NATIVE = Efficiency(
    weights=0.93,
    kv=0.85,
    products=0.88,
    attention=0.70,
    element_flops=48,
    stage_seconds=1.5e-6,
    step_seconds=0.1e-3,
    row_seconds=100e-6,  # nearly all of it the server's: text, JSON and HTTP of a token, which take from the same cores
    request_seconds=5e-3,
    spread=(0.8, 1.45),
    source="measured in a server on two cores: SmolLM2-135M Q4_1, a LLaMA of 1.7 billion parameters in Q4_0",
)

# GPUs by their datasheets: an engine of today, its work on the host included. A step of one request read at 0.63 of the
# sheet's bandwidth, of 16 at 0.64, of 64 at 0.69, of 256 at 0.67; 64 prompts of 512 tokens were computed at 0.63 of the peak.
GPU = Efficiency(
    weights=0.66,
    kv=0.66,
    products=0.63,
    attention=0.35,
    element_flops=0,
    stage_seconds=0,
    step_seconds=0,
    row_seconds=0,
    request_seconds=5e-3,
    spread=(0.9, 1.1),
    source="measured: vLLM 0.23.0 on one H200 with a LLaMA of 7 billion parameters in bf16",
)
# What a GPU multiplies weights of each stored format in, the best that it has first.
_GPU_COMPUTE = {"F32": ("tf32", "float32"), "F16": ("float16",), "fp8": ("fp8", "bfloat16", "float16")}
_GPU_DEFAULT = ("bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimer:
    """The estimate's factors for one model on one device, all in seconds. A `StepTimer`."""

    per_step: float
    per_token: float
    per_row: float
    per_weight_byte: float
    per_product_flop: float
    per_kv_byte: float
    per_attention_flop: float
    request_seconds: float
    spread: tuple[float, float]
    source: str

    def seconds(self, cost: StepCost) -> float:
        products = hypot(
            self.per_weight_byte * cost.weight_bytes, self.per_product_flop * (cost.flops - cost.attention_flops)
        )
        attention = hypot(self.per_kv_byte * cost.kv_read_bytes, self.per_attention_flop * cost.attention_flops)
        return self.per_step + self.per_token * cost.num_tokens + self.per_row * cost.num_rows + products + attention


def engine_timer(spec: ModelSpec, format_of: FormatOf, hardware: Hardware, num_devices: int = 1) -> EngineTimer | None:
    """The estimate for a model held in these formats; None where a ceiling that it needs is not known.

    num_devices: of a tensor-parallel group, each with its share of everything but the small parts.
    """
    formats = product_formats(spec, format_of)
    if hardware.bandwidth is None:
        return None
    native = all(name in hardware.peak_flops for name in formats) and "BF16" in hardware.peak_flops
    efficiency = NATIVE if native else GPU
    if native:
        peaks = {name: hardware.peak_flops[name] for name in formats}
        attention_peak, element_peak = hardware.peak_flops["BF16"], hardware.peak_flops.get("F32", 0.0)
    else:
        found = {name: _gpu_peak(hardware, name) for name in formats}
        attention = _gpu_peak(hardware, "BF16")
        peaks = {name: peak for name, peak in found.items() if peak is not None}
        if len(peaks) < len(found) or attention is None:
            return None
        attention_peak, element_peak = attention, 0.0
    total = sum(formats.values())
    per_flop = sum(elements / total / peaks[name] for name, elements in formats.items())
    per_token = efficiency.element_flops * elementwise(spec) / element_peak if element_peak else 0.0
    links = _link_seconds(spec, hardware, num_devices)
    return EngineTimer(
        per_step=efficiency.step_seconds + STAGES * len(spec.layers) * efficiency.stage_seconds + links[0],
        per_token=per_token / num_devices + links[1],
        per_row=efficiency.row_seconds,
        per_weight_byte=1 / (efficiency.weights * hardware.bandwidth * num_devices),
        per_product_flop=per_flop / (efficiency.products * num_devices),
        per_kv_byte=1 / (efficiency.kv * hardware.bandwidth * num_devices),
        per_attention_flop=1 / (efficiency.attention * attention_peak * num_devices),
        request_seconds=efficiency.request_seconds,
        spread=efficiency.spread,
        source=efficiency.source,
    )


def product_formats(spec: ModelSpec, format_of: FormatOf) -> Counter[str]:
    """How many elements of all products' weights, the head's among them, are held in which format."""
    elements: Counter[str] = Counter()
    head = head_weight(spec)
    for weight in spec.weights:
        if is_product(weight) or weight is head:
            elements[format_name(format_of, weight)] += weight.num_elements
    return elements


def elementwise(spec: ModelSpec) -> int:
    """Elements that norms, RoPE, activations and sums of all layers go through for one token, about."""
    total = 0
    for layer in spec.layers:
        attention, feed_forward = layer.attention, layer.feed_forward
        networks = feed_forward.experts.per_token if feed_forward.experts else 1
        total += 2 * (attention.num_heads + attention.num_kv_heads) * attention.head_dim
        total += (3 if feed_forward.gated else 2) * feed_forward.intermediate_size * networks
        total += 4 * spec.hidden_size
    return total


def _gpu_peak(hardware: Hardware, format_name: str) -> float | None:
    for dtype in (*_GPU_COMPUTE.get(format_name, ()), *_GPU_DEFAULT):
        if dtype in hardware.peak_flops:
            return hardware.peak_flops[dtype]
    return None


def _link_seconds(spec: ModelSpec, hardware: Hardware, num_devices: int) -> tuple[float, float]:
    """Of a tensor-parallel group: (a step, a token) for two all-reduces a layer (Shoeybi et al., arXiv:1909.08053).

    A ring sends 2 (n - 1) / n of the bytes over each link, in 2 (n - 1) turns; activations of 2 bytes.
    """
    if num_devices == 1 or hardware.link_bandwidth is None:
        return 0.0, 0.0
    reduces, turns = 2 * len(spec.layers), 2 * (num_devices - 1)
    num_bytes = 2 * spec.hidden_size
    return reduces * turns * hardware.link_latency, reduces * turns / num_devices * num_bytes / hardware.link_bandwidth
