"""EngineConfig and ServerConfig: every knob, typed, with its help text. The command line's options are derived from them,
as they are from any other dataclass whose fields have knobs."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints

from pagoda import checks
from pagoda.errors import InvalidValueError
from pagoda.sampling_params import MAX_N, MAX_STOP_STRINGS

DEFAULT_PRIORITY_AGEING = 10.0


@dataclass(frozen=True, slots=True)
class Knob:
    """What a field of a configuration means and which values it takes. `None`, where the type has it, is always valid."""

    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How to run one model. Immutable; checked when made.

    Raises `InvalidValueError`, naming field, value and limit.
    """

    model: Annotated[str, Knob("A hub id, a local directory, a .gguf file, or smollm2, the embedded default.")] = (
        "smollm2"
    )
    revision: Annotated[str | None, Knob("Branch, tag or commit of a hub model.")] = None
    device: Annotated[
        str,
        Knob(
            "Where to run: the CPU's native kernels, an NVIDIA GPU, or the reference, torch's plain operations on the CPU; "
            "auto is cuda where there is such a device, else cpu.",
            choices=("auto", "cpu", "cuda", "reference"),
        ),
    ] = "auto"
    dtype: Annotated[
        str,
        Knob(
            "Number format of activations, and of weights and KV cache where nothing else is said of them, on cuda (auto: "
            "bfloat16) and reference (auto: float32); cpu takes auto only: weights as they are stored.",
            choices=("auto", "float32", "bfloat16", "float16"),
        ),
    ] = "auto"
    quantization: Annotated[
        str,
        Knob(
            "Quantize weights that are stored dense while they are loaded: int8 or int4 on cpu and cuda, fp8 on cuda.",
            choices=("none", "int8", "int4", "fp8"),
        ),
    ] = "none"
    kv_cache_dtype: Annotated[
        str,
        Knob(
            "Number format of the KV cache (auto: bfloat16 on cpu, elsewhere as dtype). Half the memory: int8 on cpu, codes "
            "with a scale for each token and K/V head; fp8 on cuda, E4M3 without scales.",
            choices=("auto", "bfloat16", "int8", "fp8"),
        ),
    ] = "auto"
    deterministic: Annotated[
        bool,
        Knob(
            "Each request's results are the same, bit for bit, whatever else runs: on cuda by slower kernels, on cpu always, "
            "with this or without."
        ),
    ] = False
    max_model_len: Annotated[
        int | None,
        Knob(
            "Longest sequence, prompt and output, in tokens. Default: the model's own limit, or what the cache holds.",
            2,
        ),
    ] = None
    max_num_seqs: Annotated[int, Knob("How many sequences may run at once.", 1, 4096)] = 64
    max_batched_tokens: Annotated[
        int, Knob("Token budget of one step: longer prompts are computed in chunks.", 1, 1 << 20)
    ] = 512
    max_prefill_chunk: Annotated[
        int | None,
        Knob("Most tokens of one prompt in a step while others wait. Default: half of max_batched_tokens.", 1),
    ] = None
    max_waiting: Annotated[
        int,
        Knob("How many sequences may wait, beyond those that run; more are refused.", 1, 1_000_000),
    ] = 16_384
    policy: Annotated[str, Knob("Who goes first.", choices=("fcfs", "priority"))] = "fcfs"
    priority_ageing: Annotated[
        float | None,
        Knob(
            "Policy priority: seconds of waiting that weigh as much as one level of priority, which bounds the wait. "
            f"Default: {DEFAULT_PRIORITY_AGEING:g}.",
            0.001,
        ),
    ] = None
    block_size: Annotated[int, Knob("Tokens in one KV block; on the CPU a multiple of 16.", 1, 1024)] = 16
    num_kv_blocks: Annotated[
        int | None, Knob("Exactly so many KV blocks. Default: what memory_fraction leaves room for.", 1)
    ] = None
    kv_allocation: Annotated[
        str,
        Knob(
            "How KV blocks are given out: paged, one by one wherever there are free ones; or contiguous, for comparison: a "
            "request waits for one run of consecutive blocks that holds its prompt and max_tokens.",
            choices=("paged", "contiguous"),
        ),
    ] = "paged"
    prefix_cache: Annotated[
        bool | None,
        Knob(
            "Keep K and V of texts, so that a request which begins like another is not computed again. Default: yes, but with "
            "contiguous allocation, which cannot."
        ),
    ] = None
    memory_fraction: Annotated[
        float,
        Knob(
            "Share of the memory this process may use (or of the GPU's) for weights, KV cache and workspace.", 0.01, 1.0
        ),
    ] = 0.6
    threads: Annotated[
        int | None, Knob("CPU threads. Default: one per physical core this process may use.", 1, 1024)
    ] = None
    generation_config: Annotated[
        str,
        Knob(
            "Whether the model's generation_config sets the defaults of sampling parameters.", choices=("auto", "none")
        ),
    ] = "auto"
    chat_template: Annotated[str | None, Knob("A file with a Jinja chat template, instead of the model's own.")] = None
    max_n: Annotated[int, Knob("Most choices (n) of one request.", 1, MAX_N)] = MAX_N
    max_stop_strings: Annotated[int, Knob("Most stop strings of one request.", 1, MAX_STOP_STRINGS)] = MAX_STOP_STRINGS
    max_prompts: Annotated[int, Knob("Most prompts in one HTTP request.", 1, 100_000)] = 128
    max_body_bytes: Annotated[int, Knob("Largest body of an HTTP request, in bytes.", 1, 1 << 30)] = 4 << 20
    max_json_depth: Annotated[int, Knob("Deepest nesting of an HTTP request's JSON.", 2, 200)] = 32

    def __post_init__(self) -> None:
        check_knobs(self)
        if self.max_prefill_chunk is not None and self.max_prefill_chunk > self.max_batched_tokens:
            limit = f"at most max_batched_tokens ({self.max_batched_tokens:,})"
            raise InvalidValueError("max_prefill_chunk", self.max_prefill_chunk, limit)
        if self.priority_ageing is not None and self.policy != "priority":
            raise InvalidValueError("priority_ageing", self.priority_ageing, f"left out under policy {self.policy}")
        if self.prefix_cache and self.kv_allocation != "paged":
            limit = (
                f"off or left out with kv_allocation {self.kv_allocation}, where each run of blocks is one request's"
            )
            raise InvalidValueError("prefix_cache", self.prefix_cache, limit)

    @property
    def has_prefix_cache(self) -> bool:
        """`prefix_cache` with its default resolved."""
        return self.kv_allocation == "paged" if self.prefix_cache is None else self.prefix_cache

    @property
    def prefill_chunk(self) -> int:
        """Most tokens of one prompt in a step while others wait; `max_prefill_chunk` with its default resolved."""
        return self.max_prefill_chunk or max(1, self.max_batched_tokens // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """How `pagoda serve` listens, and to whom. Immutable; checked when made. Raises `InvalidValueError`."""

    host: Annotated[str, Knob("Address to listen on. Another one than loopback needs --allow-unauthenticated.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Knob("Port to listen on; 0 takes any free one.", 0, 65_535)] = 8000
    served_model_name: Annotated[str | None, Knob("Name of the model in the API. Default: MODEL as given.")] = None
    allowed_hosts: Annotated[
        str, Knob("Host names, comma-separated, under which clients may reach the server, besides those of loopback.")
    ] = ""
    allow_unauthenticated: Annotated[
        bool, Knob("Serve on an address that others can reach, although there are no keys: anybody there may use it.")
    ] = False

    def __post_init__(self) -> None:
        check_knobs(self)


def check_knobs(config: Any) -> None:
    """Checks every field of a configuration against its knob. Raises `InvalidValueError`."""
    for name, (kind, knob, optional) in knobs(type(config)).items():
        value = getattr(config, name)
        if value is None and optional:
            continue
        if knob.choices:
            checks.choice(name, value, knob.choices)
        elif kind is bool:
            checks.boolean(name, value)
        elif kind is int:
            checks.integer(name, value, _whole(knob.minimum), _whole(knob.maximum))
        elif kind is float:
            object.__setattr__(config, name, checks.number(name, value, knob.minimum, knob.maximum))
        else:
            checks.text(name, value, 4096)


def knobs(config: type[Any] = EngineConfig) -> dict[str, tuple[type, Knob, bool]]:
    """Each field of a configuration: name → (type without None, its knob, whether None is allowed)."""
    hints: dict[str, Any] = get_type_hints(config, include_extras=True)
    table: dict[str, tuple[type, Knob, bool]] = {}
    for field in fields(config):
        annotated, knob = get_args(hints[field.name])
        options = get_args(annotated) or (annotated,)
        kind = next(option for option in options if option is not type(None))
        table[field.name] = (kind, knob, type(None) in options)
    return table


def default_of(name: str, config: type[Any] = EngineConfig) -> Any:
    """The default of one field, for help texts and derived options. Raises KeyError for an unknown field."""
    default = {field.name: field.default for field in fields(config)}[name]
    return None if default is MISSING else default


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)
