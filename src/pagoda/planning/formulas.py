"""The plan's formulas with their numbers put in, in the order they build on each other.

Values come from the functions that the plan itself was made with, never from the text: a text that no longer says what they
do shows a wrong equation, and a test works every one of them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from pagoda.planning.costs import experts_touched
from pagoda.planning.deployment import Deployment
from pagoda.planning.formats import FORMATS
from pagoda.planning.gpu_holding import SCALED
from pagoda.planning.holding import format_name, weight_size
from pagoda.planning.kv_format import KVFormat, kv_formats, kv_size, kv_tokens_held
from pagoda.planning.latent import absorbed_flops, latent_flops
from pagoda.planning.ledger import binary_size, decimal_size
from pagoda.planning.mask import visible_keys
from pagoda.planning.memory import kv_block_bytes, kv_bytes_per_token, kv_bytes_seen, num_blocks_for
from pagoda.planning.model_spec import LatentSpec, ModelSpec
from pagoda.planning.plan import Formula


def formulas(deployment: Deployment, requests: int, compute_bound_from: int | None) -> tuple[Formula, ...]:
    """requests: how many fit. All figures are of all devices together, unless a name says otherwise."""
    return (
        *_memory(deployment, requests),
        *_decode(deployment, compute_bound_from),
        *_prefill(deployment),
        *_links(deployment),
    )


def _memory(deployment: Deployment, requests: int) -> Iterator[Formula]:
    question, holding = deployment.question, deployment.holding
    count = question.num_devices
    each = " on each device" if count > 1 else ""
    context, block_size, concurrency = question.context, question.block_size, question.concurrency
    blocks = num_blocks_for(context, block_size)
    block = kv_block_bytes(deployment.spec, block_size, holding.kv_held)
    token = kv_bytes_per_token(deployment.spec, holding.kv_held)
    if question.parameters is None:
        yield Formula("parameters", _parameter_terms(question.spec), question.spec.num_parameters, "parameters")
    yield Formula(f"weights{each}", _weight_terms(deployment), holding.weight_bytes, "B")
    yield Formula(f"K and V of a token{each}", _kv_terms(deployment), token, "B/token")
    yield Formula(f"a block of {block_size} tokens{each}", f"{block_size} × {token:,} B", block, "B")
    request = blocks * block
    whole = f"{blocks:,} blocks × {block:,} B ({context:,} tokens in blocks of {block_size}; {binary_size(request)})"
    yield Formula(f"K and V of a request{each}", whole, request, "B")
    cache = concurrency * request
    sizes = f"({binary_size(cache)}, {decimal_size(cache)})"
    yield Formula(f"K and V of all requests{each}", f"{_requests(concurrency)} × {request:,} B {sizes}", cache, "B")
    seen = concurrency * kv_bytes_seen(deployment.spec, holding.kv_held, context, block_size)
    if seen < cache:
        terms = f"{_requests(concurrency)} × ({_seen_terms(deployment)})"
        yield Formula(f"K and V that windows still see{each}", terms, seen, "B")
    workspace = deployment.demand(concurrency, context).workspace(concurrency * blocks)
    in_use = holding.weight_bytes + workspace + cache
    total = f"weights {holding.weight_bytes:,} + workspace {workspace:,} + K and V {cache:,}"
    yield Formula(f"memory in use{each}", total, in_use, "B")
    yield Formula("K and V of the memory in use", f"100 × {cache:,} ÷ {in_use:,}", 100 * cache / in_use, "%")
    memory, budget = question.device.memory_bytes, deployment.budget_bytes
    yield Formula(f"memory that may be used{each}", f"{question.memory_fraction:g} × {memory:,} B", budget, "B")
    yield Formula(f"left{each}", f"{budget:,} − {in_use:,}", budget - in_use, "B")
    if requests:
        largest = deployment.demand(requests, context).workspace(requests * blocks)
        room = f"({budget:,} − {holding.weight_bytes:,} − workspace {largest:,}) ÷ {request:,} B, rounded down"
        yield Formula(f"requests of {context:,} tokens that fit", room, requests, "requests")


def _decode(deployment: Deployment, compute_bound_from: int | None) -> Iterator[Formula]:
    question = deployment.question
    context, batch, count = question.context, question.concurrency, question.num_devices
    one, step = deployment.decode_cost(1, context), deployment.decode_cost(batch, context)
    bound = deployment.decode_bound(batch, context)
    peak, rate = deployment.peak * count, deployment.bandwidth * count
    products = one.flops - one.attention_flops
    yield Formula("products of a token", f"2 × {products // 2:,} weights", products, "FLOP/token")
    kinds = {layer.feed_forward.experts for layer in deployment.spec.layers if layer.feed_forward.experts}
    for experts in sorted(kinds, key=lambda experts: experts.count):
        terms = f"{experts.count} × (1 − (1 − {experts.per_token} ÷ {experts.count})^{batch})"
        yield Formula(
            f"experts a layer that a step of {batch:,} reads, expected",
            terms,
            experts_touched(experts, batch),
            "experts",
        )
    yield Formula(
        "compute of these",
        f"{products:,} FLOP ÷ {_rate(peak, 'FLOP/s')} ({deployment.compute_format})",
        1e3 * products / peak,
        "ms",
    )
    yield Formula(
        "reading weights", f"{step.weight_bytes:,} B ÷ {_rate(rate, 'B/s')}", 1e3 * step.weight_bytes / rate, "ms"
    )
    if not question.weights_only:
        terms = _attention_terms(deployment.spec, context, count)
        yield Formula("attention of a token", terms, one.attention_flops, "FLOP/token")
        moved = bound.kv_bytes
        yield Formula(
            f"reading and writing K and V of {_requests(batch)}",
            f"{moved:,} B ÷ {_rate(rate, 'B/s')}",
            1e3 * moved / rate,
            "ms",
        )
    yield Formula(
        f"decode step of {batch:,}, compute",
        f"{batch:,} × {one.flops:,} FLOP ÷ {_rate(peak, 'FLOP/s')}",
        1e3 * bound.compute_seconds,
        "ms",
    )
    yield Formula(
        f"decode step of {batch:,}, memory",
        f"{step.num_bytes:,} B ÷ {_rate(rate, 'B/s')}",
        1e3 * bound.memory_seconds,
        "ms",
    )
    yield Formula("intensity", f"{step.flops:,} FLOP ÷ {step.num_bytes:,} B", bound.intensity, "FLOP/B")
    yield Formula("ridge", f"{_rate(peak, 'FLOP/s')} ÷ {_rate(rate, 'B/s')}", deployment.ridge, "FLOP/B")
    if compute_bound_from is not None:
        at = deployment.decode_bound(compute_bound_from, context)
        terms = (
            f"smallest batch whose compute ({1e3 * at.compute_seconds:.4g} ms) is not less than its memory time "
            f"({1e3 * at.memory_seconds:.4g} ms)"
        )
        yield Formula("decode is bound by compute from", terms, compute_bound_from, "requests")
    else:
        kv, flops = one.kv_read_bytes + one.kv_written_bytes, one.flops
        terms = f"({kv:,} B ÷ {_rate(rate, 'B/s')}) ÷ ({flops:,} FLOP ÷ {_rate(peak, 'FLOP/s')})"
        yield Formula("a request's K and V against its compute", terms, kv / rate / (flops / peak), "times as long")


def _prefill(deployment: Deployment) -> Iterator[Formula]:
    question = deployment.question
    cost = deployment.prefill_cost(0, question.context, ends=True)
    peak, rate = deployment.peak * question.num_devices, deployment.bandwidth * question.num_devices
    products = f"{cost.flops - cost.attention_flops:,} + attention {cost.attention_flops:,}"
    yield Formula(f"prompt of {question.context:,} tokens", products, cost.flops, "FLOP")
    yield Formula("prefill, compute", f"{cost.flops:,} FLOP ÷ {_rate(peak, 'FLOP/s')}", 1e3 * cost.flops / peak, "ms")
    yield Formula("prefill, memory", f"{cost.num_bytes:,} B ÷ {_rate(rate, 'B/s')}", 1e3 * cost.num_bytes / rate, "ms")


def _links(deployment: Deployment) -> Iterator[Formula]:
    links, batch = deployment.links, deployment.question.concurrency
    if links.num_devices == 1:
        return
    share = f"{links.num_devices - 1}/{links.num_devices}"
    width = f"× {links.element_bytes} B"
    terms = (
        f"({links.num_reductions} sums × 2 × {share} × {batch:,} tokens × {links.hidden_size:,} {width} "
        f"+ logits {share} × {batch:,} × {links.vocab_size:,} {width}) ÷ {_rate(links.bandwidth, 'B/s')}"
    )
    if links.latency:
        terms += f" + {2 * links.num_reductions + 1} × {links.num_devices - 1} × {links.latency:g} s"
    yield Formula(f"links in a decode step of {batch:,}", terms, 1e3 * links.seconds(batch, batch), "ms")


def _parameter_terms(spec: ModelSpec) -> str:
    outside = [f"{weight.name} {weight.num_elements:,}" for weight in spec.weights if weight.layer is None]
    layers: Counter[int] = Counter()
    for weight in spec.weights:
        if weight.layer is not None:
            layers[weight.layer] += weight.num_elements
    kinds = Counter(layers.values())
    return " + ".join([*(f"{_layers(count)} × {size:,}" for size, count in kinds.items()), *outside])


def _weight_terms(deployment: Deployment) -> str:
    """By the formats that weights are held in: elements × bytes of one; a packed one's bytes as they are."""
    holding, question = deployment.holding, deployment.question
    elements: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for weight in deployment.spec.weights:
        name = format_name(holding.format_of, weight)
        elements[name] += weight.num_elements
        sizes[name] += weight_size(weight, holding.format_of)
    if question.parameters is not None:
        own = question.spec.num_parameters
        if len(elements) == 1:
            (name,) = elements
            if sizes[name] == elements[name] * FORMATS[name].block_bytes and question.num_devices == 1:
                return f"{question.parameters:,} × {FORMATS[name].block_bytes} B"
        return f"{sum(sizes.values()):,} B × {question.parameters:,} ÷ {own:,} parameters"
    return " + ".join(_format_terms(name, elements[name], sizes[name]) for name in elements)


def _format_terms(name: str, elements: int, size: int) -> str:
    if size % elements == 0:
        return f"{elements:,} × {size // elements} B ({name})"
    blocks = {kind.name: (kind.group, kind.group_bytes) for kind in SCALED.values()}
    blocks |= {kind.name: (kind.block_elements, kind.block_bytes) for kind in FORMATS.values()}
    group, group_bytes = blocks[name]
    exact = elements * group_bytes // group
    each = f"{elements:,} × {group_bytes} B" + (f" ÷ {group}" if group > 1 else "")
    return f"{each} ({name})" if exact == size else f"{each} ({name}) + {size - exact:,} B of scales and padding"


def _kv_terms(deployment: Deployment) -> str:
    keys, values = kv_formats(deployment.holding.kv_held)
    kinds: Counter[tuple[LatentSpec | None, int, int]] = Counter()
    for layer in deployment.spec.layers:
        attention = layer.attention
        kinds[attention.latent, attention.num_kv_heads, attention.head_dim] += 1
    terms = []
    for (latent, heads, dim), count in kinds.items():
        if latent is not None:
            terms.append(f"{_layers(count)} × {_row(f'({latent.kv_rank} + {latent.rope_dim})', keys)}")
        elif keys is values:
            terms.append(f"2 × {_layers(count)} × {heads} heads × {_row(str(dim), keys)}")
        else:
            terms.append(f"{_layers(count)} × {heads} heads × ({_row(str(dim), keys)} + {_row(str(dim), values)})")
    return " + ".join(terms)


def _seen_terms(deployment: Deployment) -> str:
    """Tokens in whole blocks × bytes of a token in all layers of a window."""
    question = deployment.question
    sizes: Counter[int | None] = Counter()
    for layer in deployment.spec.layers:
        sizes[layer.attention.window] += kv_size(layer.attention, deployment.holding.kv_held)
    return " + ".join(
        f"{kv_tokens_held(window, question.context, question.block_size):,} tokens × {size:,} B"
        for window, size in sizes.items()
    )


def _row(elements: str, kind: KVFormat) -> str:
    """Of one token and head: "128 × 2 B", or "(128 × 1 B + 2 B)" with a scale."""
    size = f"{elements} × {kind.element_bits / 8:g} B"
    return f"({size} + {kind.scale_bytes} B)" if kind.scale_bytes else size


def _attention_terms(spec: ModelSpec, context: int, num_devices: int) -> str:
    kinds = Counter(replace(layer.attention, rope=None) for layer in spec.layers)
    terms = []
    for attention, count in kinds.items():
        heads, keys = attention.num_heads * num_devices, visible_keys(context - 1, 1, attention.window)
        layers = f"{_layers(count)} × {heads} heads"
        latent = attention.latent
        if latent is None:
            terms.append(f"4 × {layers} × {attention.head_dim} × {keys:,} keys")
        elif latent_flops(attention, context - 1, 1) == absorbed_flops(attention, keys):
            terms.append(f"2 × {layers} × ({latent.kv_rank} + {latent.rope_dim} + {latent.kv_rank}) × {keys:,} keys")
        else:
            made = attention.head_dim - latent.rope_dim + latent.value_dim
            terms.append(
                f"2 × {layers} × (({attention.head_dim} + {latent.value_dim}) × {keys:,} keys "
                f"+ {latent.kv_rank} × {made} × {keys - 1:,} keys)"
            )
    return " + ".join(terms)


def _layers(count: int) -> str:
    return f"{count} layers" if count > 1 else "1 layer"


def _rate(value: float, unit: str) -> str:
    """As datasheets count, without losing a digit: "312 TFLOP/s"."""
    for power, prefix in ((12, "T"), (9, "G"), (6, "M")):
        if value >= 10**power:
            return f"{value / 10**power:.10g} {prefix}{unit}"
    return f"{value:.10g} {unit}"


def _requests(count: int) -> str:
    return f"{count:,} requests" if count > 1 else "1 request"
