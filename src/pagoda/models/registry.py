"""Which families there are. A new one is a line here; one that can only be planned is a line in `planned.PLANNED`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagoda.errors import UnsupportedModelError
from pagoda.loading.fp8 import check_quantization
from pagoda.models.family import Family
from pagoda.models.gemma3 import Gemma3Family
from pagoda.models.gpt2 import Gpt2Family
from pagoda.models.llama import LlamaFamily
from pagoda.models.planned import PLANNED
from pagoda.planning.model_spec import ModelSpec

FAMILIES: tuple[Family, ...] = (
    LlamaFamily(),
    Gpt2Family(),
    Gemma3Family(),
)


def family_for(config: Mapping[str, Any]) -> Family:
    """The family of the config's `model_type`.

    Raises `UnsupportedModelError`, which lists the known ones; also for weights quantized in a way that is not known, and for
    an architecture that can only be planned.
    """
    check_quantization(config)
    name = config.get("model_type")
    family = _RUNNING.get(name) if isinstance(name, str) else None
    if family is None:
        planned = "`pagoda plan` knows this architecture, but running"
        raise UnsupportedModelError(planned if _planned(config) else "architecture", name, _RUNNING)
    return family


def spec_for(config: Mapping[str, Any]) -> ModelSpec:
    """The model a config describes, whether it can be run or only planned. How its weights are quantized does not matter.

    Raises what `Family.spec` does, `UnsupportedModelError` for an architecture that is not known either way.
    """
    planned, name = _planned(config), config.get("model_type")
    if planned is not None:
        return PLANNED[planned]({**config, "model_type": planned})
    if not isinstance(name, str) or name not in _RUNNING:
        raise UnsupportedModelError("architecture", name, [*_RUNNING, *PLANNED])
    return _RUNNING[name].spec(config)


def runs(config: Mapping[str, Any]) -> bool:
    """Whether `family_for` has a family for it."""
    try:
        family_for(config)
    except UnsupportedModelError:
        return False
    return _planned(config) is None


_RUNNING = {model_type: family for family in FAMILIES for model_type in family.model_types}


def _planned(config: Mapping[str, Any]) -> str | None:
    """The name in `PLANNED` of an architecture that can only be planned."""
    name = config.get("model_type")
    if name == "llama" and config.get("num_local_experts"):
        return "mixtral"  # whose GGUF files call themselves llama
    if name == "qwen3moe":
        return "qwen3_moe"  # GGUF's name
    return name if isinstance(name, str) and name in PLANNED else None
