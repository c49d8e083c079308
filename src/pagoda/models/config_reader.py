"""Reading a model's configuration with suspicion: it comes from outside, and memory is planned by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn

from pagoda import checks
from pagoda.errors import InvalidValueError, ModelFileError, UnsupportedModelError, shown
from pagoda.planning.model_spec import Llama3RopeScaling, RopeSpec

ACTIVATIONS: Mapping[str, Literal["silu", "gelu_tanh"]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
}
ROPE_SCALINGS = ("default", "linear", "llama3")

# Far beyond any model there is. They only keep a hostile file from asking for absurd amounts of work or memory.
_MOST_LAYERS = 1024
_MOST = 1 << 24
_LONGEST_CONTEXT = 1 << 31
# Token choice sums integer weights of up to 2**40 a token (`sampling.torch_sampler`) in 64 bits.
_LARGEST_VOCABULARY = (1 << 22) - 1
# Beyond these the angles of RoPE leave what float32 can hold.
_LARGEST_ROPE_BASE = 1e12
_LARGEST_ROPE_FACTOR = 1e6


class ConfigReader:
    """Typed, checked access to a configuration in Hugging Face's names (see `loading.checkpoint.Checkpoint.config`).

    Every method raises `ModelFileError` naming the entry, its value and the limit.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def fail(self, message: str) -> NoReturn:
        raise ModelFileError(f"the model's config: {message}")

    def size(self, name: str, default: int | None = None, maximum: int = _MOST) -> int:
        """A positive integer; `default` where the entry is absent or null, else it must be there."""
        return self._integer(name, default, 1, maximum)

    def count(self, name: str, default: int, maximum: int = _MOST) -> int:
        """An integer of at least 0; `default` where the entry is absent or null."""
        return self._integer(name, default, 0, maximum)

    def num_layers(self) -> int:
        return self.size("num_hidden_layers", maximum=_MOST_LAYERS)

    def vocab_size(self) -> int:
        return self.size("vocab_size", maximum=_LARGEST_VOCABULARY)

    def context_length(self) -> int:
        return self.size("max_position_embeddings", maximum=_LONGEST_CONTEXT)

    def positive(self, name: str, default: float | None = None) -> float:
        """A finite number above zero."""
        value = self._present(name, default)
        try:
            number = checks.number(name, value)
        except InvalidValueError as error:
            self.fail(str(error))
        if number <= 0:
            self.fail(f"{name}: got {shown(value)}, must be above 0")
        return number

    def rope_base(self, name: str, default: float) -> float:
        return self._number(name, default, 1.0, _LARGEST_ROPE_BASE)

    def flag(self, name: str, default: bool) -> bool:
        try:
            return checks.boolean(name, self._present(name, default))
        except InvalidValueError as error:
            self.fail(str(error))

    def name(self, name: str, default: str | None = None) -> str:
        try:
            return checks.text(name, self._present(name, default), 200)
        except InvalidValueError as error:
            self.fail(str(error))

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Refuse settings (name → why) that would change what the model computes and are not implemented, if switched on."""
        for name, reason in reasons.items():
            if self.config.get(name):
                self.fail(f"{name} is {shown(self.config[name])}, but {reason}")

    def head_counts(self) -> tuple[int, int, int]:
        """(num_heads, num_kv_heads, head_dim), consistent with each other and the hidden size."""
        hidden, heads = self.size("hidden_size"), self.size("num_attention_heads")
        kv_heads = self.size("num_key_value_heads", default=heads)
        if heads % kv_heads:
            self.fail(f"num_attention_heads, {heads:,}, is not a multiple of num_key_value_heads, {kv_heads:,}")
        if self.config.get("head_dim") is None and hidden % heads:
            self.fail(f"hidden_size, {hidden:,}, is not a multiple of num_attention_heads, {heads:,}")
        head_dim = self.size("head_dim", default=max(1, hidden // heads))
        if heads * head_dim > _MOST:
            self.fail(f"num_attention_heads × head_dim is {heads * head_dim:,}, must be at most {_MOST:,}")
        return heads, kv_heads, head_dim

    def activation(self, name: str, default: str) -> Literal["silu", "gelu_tanh"]:
        """Raises `UnsupportedModelError` for one that is not known."""
        value = self.name(name, default)
        if value not in ACTIVATIONS:
            raise UnsupportedModelError("activation", value, ACTIVATIONS)
        return ACTIVATIONS[value]

    def windows(self, default_types: Sequence[bool]) -> list[int | None]:
        """Each layer's attention window: `layer_types` decides which layers have one, else `default_types` (True: it has)."""
        sliding = list(default_types)
        types = self.config.get("layer_types")
        if types is not None:
            known = {"sliding_attention": True, "full_attention": False}
            if not isinstance(types, (list, tuple)) or len(types) != len(sliding):
                self.fail(f"layer_types is {shown(types)}, must be a list of {len(sliding)} names")
            for kind in types:
                if not isinstance(kind, str) or kind not in known:
                    raise UnsupportedModelError("layer type", kind, known)
            sliding = [known[kind] for kind in types]
        if not any(sliding):
            return [None] * len(sliding)
        window = self.size("sliding_window", maximum=_LONGEST_CONTEXT)
        return [window if slides else None for slides in sliding]

    def rope(self, head_dim: int, default_base: float = 10_000.0) -> RopeSpec:
        """Raises `UnsupportedModelError` for a RoPE scaling that is not known."""
        dim = round(head_dim * self._number("partial_rotary_factor", 1.0, 0.0, 1.0))
        if dim < 2 or dim % 2:
            self.fail(f"RoPE over {dim} of {head_dim} elements of a head, must be an even number of at least 2 of them")
        base = self.rope_base("rope_theta", default_base)
        scaling = self.config.get("rope_scaling") or {"rope_type": "default"}
        if not isinstance(scaling, Mapping):
            self.fail(f"rope_scaling is {shown(scaling)}, must be an object or null")
        kind = scaling.get("rope_type", scaling.get("type"))
        if kind not in ROPE_SCALINGS:
            raise UnsupportedModelError("RoPE scaling", kind, ROPE_SCALINGS)
        parameters = ConfigReader({f"rope_scaling.{name}": value for name, value in scaling.items()})
        return RopeSpec(
            dim=dim,
            base=base,
            linear_factor=parameters._rope_factor("rope_scaling.factor") if kind == "linear" else 1.0,
            llama3=self._llama3(parameters) if kind == "llama3" else None,
            divisors=self._divisors(dim // 2),
        )

    def _llama3(self, parameters: ConfigReader) -> Llama3RopeScaling:
        low = parameters._rope_factor("rope_scaling.low_freq_factor")
        high = parameters._rope_factor("rope_scaling.high_freq_factor")
        if high <= low:
            self.fail(f"rope_scaling.high_freq_factor, {high}, must be above low_freq_factor, {low}")
        original = parameters.size("rope_scaling.original_max_position_embeddings", maximum=_LONGEST_CONTEXT)
        return Llama3RopeScaling(parameters._rope_factor("rope_scaling.factor"), low, high, original)

    def _divisors(self, count: int) -> tuple[float, ...] | None:
        values = self.config.get("rope_divisors")
        if values is None:
            return None
        if len(values) != count:
            self.fail(f"there are {len(values):,} RoPE divisors (rope_freqs), must be {count:,}")
        try:
            return tuple(checks.number("rope_divisors", float(value), 1e-6, 1e12) for value in values)
        except InvalidValueError as error:
            self.fail(str(error))

    def _rope_factor(self, name: str) -> float:
        return self._number(name, None, 1 / _LARGEST_ROPE_FACTOR, _LARGEST_ROPE_FACTOR)

    def _integer(self, name: str, default: int | None, minimum: int, maximum: int) -> int:
        try:
            return checks.integer(name, self._present(name, default), minimum, maximum)
        except InvalidValueError as error:
            self.fail(str(error))

    def _number(self, name: str, default: float | None, minimum: float, maximum: float) -> float:
        try:
            return checks.number(name, self._present(name, default), minimum, maximum)
        except InvalidValueError as error:
            self.fail(str(error))

    def _present(self, name: str, default: object) -> object:
        value = self.config.get(name)
        if value is None:
            value = default
        if value is None:
            self.fail(f"{name} is missing")
        return value
