"""The CPU's formats, by the names that people type: `native_holding` for a question."""

from __future__ import annotations

from pagoda.errors import InvalidValueError
from pagoda.planning.formats import QUANTIZED, weight_format
from pagoda.planning.gpu_holding import DENSE, one_of
from pagoda.planning.holding import FormatOf, Holding, format_in, format_name
from pagoda.planning.model_spec import ModelSpec, WeightSpec
from pagoda.planning.native_formats import NATIVE_KV_FORMATS
from pagoda.planning.native_holding import native_holding
from pagoda.planning.question import Question

CPU_WEIGHT_FORMATS = (*DENSE, *QUANTIZED)
CPU_KV_FORMATS = {kind.name: dtype for dtype, kind in NATIVE_KV_FORMATS.items()}


def cpu_holding(question: Question) -> Holding:
    """How the native path holds it. int8 and int4 are made of dense weights while they are loaded, of files that are
    quantized already as if they were not; a dense format is planned as if the files had it.

    Raises `InvalidValueError` for a format that the native path does not have.
    """
    wanted, threads = question.weight_format, question.threads or 1
    kv_format = "bf16" if question.kv_format is None else question.kv_format
    if kv_format not in CPU_KV_FORMATS:
        raise InvalidValueError("--kv-format", kv_format, f"{' or '.join(CPU_KV_FORMATS)} on the CPU")
    kv_dtype = CPU_KV_FORMATS[kv_format]
    stored = _as_loaded(question.stored)
    if wanted is None:
        return native_holding(question.spec, stored, None, threads, kv_dtype)
    one_of("--weight-format", wanted, CPU_WEIGHT_FORMATS)
    if wanted in DENSE:
        return native_holding(question.spec, DENSE[wanted], None, threads, kv_dtype)
    dense = stored if stored_dense(question.spec, stored) else "BF16"
    return native_holding(question.spec, dense, wanted, threads, kv_dtype)


def _as_loaded(stored: FormatOf) -> FormatOf:
    """Formats that only GPUs hold (fp8, GPTQ) would be bf16 here."""

    def loaded(weight: WeightSpec) -> str:
        held = format_in(stored, weight)
        return held if isinstance(held, str) else "BF16"

    return loaded


def stored_dense(spec: ModelSpec, stored: FormatOf) -> bool:
    """Whether files hold matrices that can be quantized while they are loaded."""
    return any(
        weight_format(format_name(stored, weight)).block_elements == 1
        for weight in spec.weights
        if len(weight.shape) > 1
    )
