"""A GGUF file's metadata in Hugging Face's names. Nothing here knows a model family: the architecture's name is a prefix.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and gguf-py's `constants.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagoda.errors import ModelFileError, shown
from pagoda.loading.checkpoint import TensorInfo

_NAMES = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "context_length": "max_position_embeddings",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "v_head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
    "attention.sliding_window": "sliding_window",
    "attention.scale": "attention_scale",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "rope.dimension_count": "rope_dim",
    "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "logit_scale": "logit_scale",
    "residual_scale": "residual_multiplier",
    "embedding_scale": "embedding_multiplier",
}
_SCALING_NAMES = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "attn_factor": "attention_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_SAMPLING_NAMES = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
_TOKEN_IDS = {
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.padding_token_id": "pad_token_id",
}
# End of sequence, of turn, of message: generation stops at each of them.
_END_IDS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")


def gguf_config(metadata: Mapping[str, Any], tensors: Mapping[str, TensorInfo], where: str) -> dict[str, Any]:
    """The configuration, without `rope_divisors` (those are a tensor's values, which the checkpoint reads).

    `model_type` is GGUF's name of the architecture; that of `llama` covers Mistral as well. `vocab_size` counts the embedding
    table's rows. `head_dim`, where the file does not say it, is hidden_size / num_attention_heads. A per-layer list whose
    entries are all equal becomes that one number. Raises `ModelFileError`, beginning with `where`.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelFileError(f"{where}: general.architecture is {shown(architecture)}, a string is needed")
    config: dict[str, Any] = {"model_type": architecture, "tie_word_embeddings": "output.weight" not in tensors}
    for key, name in _NAMES.items():
        value = metadata.get(f"{architecture}.{key}")
        if value is not None:
            config[name] = _collapsed(value)
    embedding = tensors.get("token_embd.weight")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if embedding is not None and embedding.shape:
        config["vocab_size"] = embedding.shape[0]
    elif f"{architecture}.vocab_size" in metadata:
        config["vocab_size"] = metadata[f"{architecture}.vocab_size"]
    elif isinstance(tokens, list):
        config["vocab_size"] = len(tokens)
    config["rope_scaling"] = _rope_scaling(metadata, architecture)
    _add_head_sizes(config)
    pattern = metadata.get(f"{architecture}.attention.sliding_window_pattern")
    if isinstance(pattern, list):
        config["layer_types"] = ["sliding_attention" if local else "full_attention" for local in pattern]
    elif pattern is not None:
        config["sliding_window_pattern"] = pattern
    config.update(_token_ids(metadata))
    return config


def gguf_generation_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Special ids (`eos_token_id` a list, of all that end a text) and the recommended sampling, where the file has them."""
    result = _token_ids(metadata)
    for key, name in _SAMPLING_NAMES.items():
        if f"general.sampling.{key}" in metadata:
            result[name] = metadata[f"general.sampling.{key}"]
    return result


def _collapsed(value: Any) -> Any:
    if isinstance(value, list) and value and all(item == value[0] for item in value):
        return value[0]
    return value


def _add_head_sizes(config: dict[str, Any]) -> None:
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    if type(hidden) is int and type(heads) is int and heads > 0 and hidden % heads == 0:
        config.setdefault("head_dim", hidden // heads)
    if config.get("v_head_dim") == config.get("head_dim"):
        config.pop("v_head_dim", None)
    head_dim, rope_dim = config.get("head_dim"), config.pop("rope_dim", None)
    if type(rope_dim) is int and type(head_dim) is int and head_dim > 0 and rope_dim != head_dim:
        config["partial_rotary_factor"] = rope_dim / head_dim


def _rope_scaling(metadata: Mapping[str, Any], architecture: str) -> dict[str, Any] | None:
    prefix = f"{architecture}.rope."
    kind = metadata.get(prefix + "scaling.type")
    old_factor = metadata.get(prefix + "scale_linear")
    if kind is None and old_factor is not None:
        return None if old_factor == 1 else {"rope_type": "linear", "factor": old_factor}
    if kind is None or kind == "none":
        return None
    scaling: dict[str, Any] = {"rope_type": kind}
    for key, name in _SCALING_NAMES.items():
        if f"{prefix}scaling.{key}" in metadata:
            scaling[name] = metadata[f"{prefix}scaling.{key}"]
    return scaling


def _token_ids(metadata: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {name: metadata[key] for key, name in _TOKEN_IDS.items() if key in metadata}
    ends = [metadata[key] for key in _END_IDS if key in metadata]
    if ends:
        result["eos_token_id"] = list(dict.fromkeys(ends))
    return result
