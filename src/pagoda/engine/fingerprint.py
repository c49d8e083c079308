"""The fingerprint of a loaded model: what `system_fingerprint` in every response says.

On the CPU: equal fingerprint and equal request, equal tokens (and equal log-probabilities, to the last bit). It covers

- the weights: every tensor's name, shape and format, and of its content `SAMPLES` pieces of `SAMPLE_BYTES` at even distances
  (of a small one, all). So it costs milliseconds however large the model is; an edit of a few numbers in a large tensor
  may escape it. Neither the files' names nor their times count;
- the model's configuration, its vocabulary and chat template, and its defaults of sampling parameters;
- Pagoda's version and the version of its packed formats; the device, its instruction set, how weights and the KV cache are
  held;
- with torch also its version and the settings that decide how it groups its sums: threads, the limits of a step, whether
  there is a prefix cache; on a GPU its name, Triton's version, and whether the deterministic kernels run.

It does not cover how many requests run, how memory is divided, or (on the CPU) threads, the limits of a step and the prefix
cache, which change nothing. Nor does it cover the compiler and the C library of a build, which may change last bits, or the
longest sequence allowed: where it is shorter, a text may end earlier.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import version

import numpy as np
import numpy.typing as npt

from pagoda.config import EngineConfig
from pagoda.loading.checkpoint import Checkpoint
from pagoda.runner.device import Device
from pagoda.version import __version__

# Raised whenever packing or a kernel changes so that numbers may differ from those of an earlier build.
PACKING_VERSION = 1
SAMPLES = 16
SAMPLE_BYTES = 64
_VOCABULARY_FILES = ("tokenizer.json", "tokenizer_config.json")
_TORCH_SETTINGS = ("block_size", "max_batched_tokens", "max_num_seqs", "max_prefill_chunk", "prefix_cache")


def fingerprint(
    checkpoint: Checkpoint,
    config: EngineConfig,
    device: Device,
    chat_template: str | None,
    defaults: Mapping[str, object],
) -> str:
    """Such as "fp_2c1f04a9b7e3". chat_template: in force. defaults: of sampling parameters, in force."""
    digest = hashlib.blake2b(digest_size=6)

    def add(name: str, *values: object) -> None:
        for value in (name, *values):
            content = _content(value)
            # With its length, so that no two lists of parts are one string of bytes.
            digest.update(len(content).to_bytes(8, "little") + content)

    add("pagoda", __version__, PACKING_VERSION)
    add("device", device.kind, device.dtype, device.instruction_set, device.kv_dtype, device.quantization)
    if device.gpu is not None:
        add("GPU", device.gpu, device.is_deterministic, version("triton"))
    if device.kind != "cpu":
        add("torch", version("torch"), device.threads, *(getattr(config, name) for name in _TORCH_SETTINGS))
    add("config", _sorted(checkpoint.config))
    add("defaults", _sorted(defaults))
    add("chat template", chat_template)
    for name in sorted(checkpoint.metadata):
        if name.startswith("tokenizer."):
            add(name, checkpoint.metadata[name])
    if checkpoint.directory is not None:
        for path in (checkpoint.directory / name for name in _VOCABULARY_FILES):
            add(path.name, path.read_bytes() if path.is_file() else None)
    for name in sorted(checkpoint.tensors):
        info, stored = checkpoint.tensors[name], checkpoint.read(name)
        add(name, info.shape, info.format, _sampled(stored.data.reshape(-1)))
        if stored.scale is not None:
            scale = stored.scale.info
            add(scale.name, scale.shape, scale.format, _sampled(stored.scale.data.reshape(-1)))
    return f"fp_{digest.hexdigest()}"


def _sampled(data: npt.NDArray[np.uint8]) -> bytes:
    """Pieces of a tensor's bytes at even distances, the first and the last among them."""
    if data.size <= SAMPLES * SAMPLE_BYTES:
        return data.tobytes()
    starts = np.linspace(0, data.size - SAMPLE_BYTES, SAMPLES).astype(np.int64)
    pieces: npt.NDArray[np.uint8] = data[starts[:, None] + np.arange(SAMPLE_BYTES)]
    return pieces.tobytes()


def _content(value: object) -> bytes:
    """The value as bytes, equal for equal values."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, (list, tuple)) and value and all(isinstance(entry, str) for entry in value):
        return "\0".join(value).encode("utf-8", "surrogatepass")
    return repr(value).encode("utf-8", "surrogatepass")


def _sorted(value: object) -> object:
    """Mappings as lists of pairs in the order of their names, at every depth."""
    if isinstance(value, Mapping):
        return [(str(name), _sorted(value[name])) for name in sorted(value, key=str)]
    return [_sorted(entry) for entry in value] if isinstance(value, (list, tuple)) else value
