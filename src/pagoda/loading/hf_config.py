"""config.json and generation_config.json brought to one vocabulary, whatever version of transformers wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagoda import checks
from pagoda.errors import InvalidValueError, ModelFileError, shown

# GPT-2's own names for what every other configuration calls by the second one (transformers' `attribute_map`).
_SYNONYMS = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "n_inner": "intermediate_size",
    "activation_function": "hidden_act",
    "torch_dtype": "dtype",
}
_SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def normalised_config(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The configuration in Hugging Face's standard names.

    - a multimodal model's `text_config` is lifted to the top;
    - GPT-2's names (`n_embd`, …) get the standard ones beside them, where they have a value;
    - RoPE, from older `rope_theta` and `rope_scaling` or newer `rope_parameters`, becomes `rope_theta` (a float; absent where
      the file has none) and `rope_scaling` (a dict with `rope_type`, or None); RoPE per layer type becomes these two, for
      full attention, and `rope_local_base_freq`, for sliding attention, and `rope_parameters` stays as it was;
    - `auto_map`, which names code in the repository, is dropped: no such code is ever run.

    Raises `ModelFileError`, beginning with `where`.
    """
    config = dict(raw)
    text = config.pop("text_config", None)
    if isinstance(text, Mapping):
        config.update(text)
        if "architectures" in raw:
            config["architectures"] = raw["architectures"]
    config.pop("auto_map", None)
    if not isinstance(config.get("model_type"), str):
        raise ModelFileError(f"{where}: model_type is {shown(config.get('model_type'))}, a string is needed")
    for old, new in _SYNONYMS.items():
        if config.get(old) is not None:
            config.setdefault(new, config[old])
    try:
        _normalise_rope(config)
    except InvalidValueError as error:
        raise ModelFileError(f"{where}: {error}") from None
    return config


def normalised_generation_config(
    raw: Mapping[str, Any], config: Mapping[str, Any], where: str, config_where: str
) -> dict[str, Any]:
    """The generation configuration, its special ids taken from `config` where it lacks them, `eos_token_id` as a list.

    Raises `ModelFileError`, beginning with `where` or `config_where`, whichever file the fault is in.
    """
    result = dict(raw)
    for name in _SPECIAL_IDS:
        if result.get(name) is None and config.get(name) is not None:
            result[name] = config[name]
    eos = result.get("eos_token_id")
    if eos is not None:
        ids = eos if isinstance(eos, list) else [eos]
        try:
            result["eos_token_id"] = [checks.integer("eos_token_id", item, 0) for item in ids]
        except InvalidValueError as error:
            at_fault = config_where if raw.get("eos_token_id") is None else where
            raise ModelFileError(f"{at_fault}: {error}") from None
    return result


def _normalise_rope(config: dict[str, Any]) -> None:
    parameters = _dict_or_none("rope_parameters", config.get("rope_parameters"))
    if parameters and any(isinstance(value, Mapping) for value in parameters.values()):
        full = _dict_or_none("rope_parameters.full_attention", parameters.get("full_attention"))
        sliding = _dict_or_none("rope_parameters.sliding_attention", parameters.get("sliding_attention"))
        if sliding and "rope_theta" in sliding:
            config["rope_local_base_freq"] = sliding["rope_theta"]
        parameters = full or {}
    elif parameters is not None:
        del config["rope_parameters"]
    scaling = parameters if parameters is not None else _dict_or_none("rope_scaling", config.get("rope_scaling"))
    scaling = dict(scaling or {})
    theta = scaling.pop("rope_theta", config.get("rope_theta"))
    for name, value in (("rope_theta", theta), ("rope_local_base_freq", config.get("rope_local_base_freq"))):
        if value is not None:
            config[name] = checks.number(name, value)
    kind = scaling.pop("type", None)
    kind = checks.text("rope_scaling.rope_type", scaling.pop("rope_type", kind or "default"), 100)
    config["rope_scaling"] = None if kind == "default" else {"rope_type": kind, **scaling}


def _dict_or_none(name: str, value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise InvalidValueError(name, value, "an object or null")
    return value
