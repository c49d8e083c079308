"""What MODEL means where nothing is loaded: `describe_model` says what planning and simulation need to know of it."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagoda import checks
from pagoda.errors import InvalidValueError, ModelFileError, UnsupportedModelError, shown
from pagoda.loading.checkpoint import TensorInfo
from pagoda.loading.fp8 import fp8_scheme
from pagoda.loading.outline import Outline, read_outline
from pagoda.loading.resolve import existing_path
from pagoda.models.named_shapes import NAMED_SHAPES
from pagoda.models.registry import family_for, runs, spec_for
from pagoda.models.weights import check_inventory
from pagoda.planning.formats import DENSE_FORMATS, weight_format
from pagoda.planning.gpu_holding import gpu_format
from pagoda.planning.holding import FormatOf
from pagoda.planning.model_spec import ModelSpec

KINDS = "a local directory, a config.json, a .gguf file, a hub id (org/name), smollm2, or a named shape"


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """name: as it was given. source: where its dimensions are from, in words.

    stored: the formats of its files by each weight's canonical name; one for all where only a configuration is known, or
        where the architecture can only be planned (that of most bytes).
    runnable: whether this version can run the architecture.
    served_as: what `pagoda serve` would be given: the name, or a named shape's repository; None where there are no weights.
    file_bytes: of the weights, where known.
    """

    name: str
    source: str
    spec: ModelSpec
    stored: FormatOf
    runnable: bool
    served_as: str | None
    file_bytes: int | None = None

    @property
    def context_length(self) -> int:
        """The longest sequence the model was made for, in tokens."""
        return self.spec.context_length


def describe_model(model: str, revision: str | None = None) -> ModelDescription:
    """model: one of `KINDS`; what exists on disk goes first. revision: branch, tag or commit of a hub model.

    Only a hub id uses the network, for its configuration or a GGUF's header.
    Raises `ModelFileError` or `UnsupportedModelError` for files that are wrong or of an unknown kind, and for an unknown
    name, with those that are like it; `InvalidValueError` for a revision of what has none.
    """
    checks.text("model", model, 4096)
    local = existing_path(model) is not None
    if revision is not None and (local or "/" not in model):
        raise InvalidValueError("revision", revision, f"left out for {shown(model)}: only hub models have revisions")
    if not local and model in NAMED_SHAPES:
        return _named(model)
    try:
        outline = read_outline(model, revision)
    except ModelFileError as error:
        like = [] if local else _like(model)
        if not like:
            raise
        raise ModelFileError(f"{error}; the named shape {like[0]} can be planned without the hub") from None
    if outline is None:
        raise ModelFileError(_unknown(model))
    return _described(outline)


def _named(name: str) -> ModelDescription:
    shape = NAMED_SHAPES[name]
    spec = spec_for(shape.config)
    return ModelDescription(
        name,
        f"published dimensions: {shape.source}",
        spec,
        _declared(shape.config, spec),
        runnable=runs(shape.config),
        served_as=shape.repository,
    )


def _described(outline: Outline) -> ModelDescription:
    try:
        spec = spec_for(outline.config)
        stored = _stored(outline, spec)
    except ModelFileError as error:
        raise ModelFileError(f"{outline.name}: {error}") from None
    return ModelDescription(
        outline.name,
        "the headers of its files" if outline.tensors else "its configuration",
        spec,
        stored,
        runnable=runs(outline.config),
        served_as=None if outline.file_bytes is None else outline.name,
        file_bytes=outline.file_bytes,
    )


def _stored(outline: Outline, spec: ModelSpec) -> FormatOf:
    if outline.tensors and runs(outline.config):
        names = check_inventory(outline, family_for(outline.config), spec)
        return {weight: outline.tensors[tensor].format for weight, tensor in names.items()}
    if not outline.tensors or outline.config.get("quantization_config"):
        return _declared(outline.config, spec)
    return _main_format(outline.tensors)


def _main_format(tensors: Mapping[str, TensorInfo]) -> str:
    """The format that most bytes are in. Raises `UnsupportedModelError` if it is not known."""
    num_bytes: Counter[str] = Counter()
    for tensor in tensors.values():
        num_bytes[tensor.format] += tensor.num_bytes
    return weight_format(num_bytes.most_common(1)[0][0]).name


def _declared(config: Mapping[str, Any], spec: ModelSpec) -> FormatOf:
    """What a configuration says of its weights: one dense format for all (without a word float32, as in the library that
    wrote it), or matrices of the layers quantized. Other sizes of groups than 128 are not told apart.

    Raises `UnsupportedModelError` for what is not known.
    """
    quantization = config.get("quantization_config")
    if quantization:
        described = quantization if isinstance(quantization, Mapping) else {"quant_method": quantization}
        return gpu_format(spec, "BF16", "fp8" if fp8_scheme(config) else _quantized(described))
    dtype = config.get("dtype") or "float32"
    if not isinstance(dtype, str) or dtype not in DENSE_FORMATS:
        raise UnsupportedModelError("dtype", dtype, DENSE_FORMATS)
    return DENSE_FORMATS[dtype]


def _quantized(described: Mapping[str, Any]) -> str:
    """The name of the format in `gpu_holding`. Raises `UnsupportedModelError`."""
    method, bits = described.get("quant_method"), described.get("bits")
    if method == "fp8":
        return "fp8"
    if method in ("gptq", "awq") and bits in (4, 8):
        return f"int{int(bits)}"
    what = method if bits is None else f"{shown(method)} of {shown(bits)} bits"
    raise UnsupportedModelError("quantization method", what, ("fp8", "gptq or awq of 4 or 8 bits", "GGUF files"))


def _unknown(model: str) -> str:
    like = _like(model)
    meant = f"; did you mean {' or '.join(like)}?" if like else ";"
    return (
        f"model {shown(model)}: there is no file or directory of that name, and it is not a named shape{meant} "
        f"MODEL is {KINDS} ({', '.join(NAMED_SHAPES)})"
    )


def _like(model: str) -> list[str]:
    """Named shapes that are written much alike; of a hub id its name counts."""
    return difflib.get_close_matches(model.rpartition("/")[2].lower(), NAMED_SHAPES, n=3)
