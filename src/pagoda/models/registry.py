"""Which families there are. A new one is a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagoda.errors import UnsupportedModelError
from pagoda.models.family import Family
from pagoda.models.gemma3 import Gemma3Family
from pagoda.models.gpt2 import Gpt2Family
from pagoda.models.llama import LlamaFamily

FAMILIES: tuple[Family, ...] = (
    LlamaFamily(),
    Gpt2Family(),
    Gemma3Family(),
)


def family_for(config: Mapping[str, Any]) -> Family:
    """The family of the config's `model_type`.

    Raises `UnsupportedModelError`, which lists the known ones; also for weights quantized in a way that is not known.
    """
    quantization = config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else quantization
        raise UnsupportedModelError("quantization method", method, ("none", "the formats of GGUF files"))
    known = {model_type: family for family in FAMILIES for model_type in family.model_types}
    name = config.get("model_type")
    if not isinstance(name, str) or name not in known:
        raise UnsupportedModelError("architecture", name, known)
    return known[name]
