"""The CPU's formats, by the names that people type: `native_holding` for a question."""

from __future__ import annotations

from pagoda.errors import InvalidValueError
from pagoda.planning.formats import QUANTIZED, weight_format
from pagoda.planning.gpu_holding import DENSE, one_of
from pagoda.planning.holding import FormatOf, Holding, format_in, format_name
from pagoda.planning.model_spec import ModelSpec, WeightSpec
from pagoda.planning.native_holding import native_holding
from pagoda.planning.question import Question

CPU_WEIGHT_FORMATS = (*DENSE, *QUANTIZED)
CPU_KV_FORMAT = "bf16"


def cpu_holding(question: Question) -> Holding:
    """How the native path holds it. int8 and int4 are made of dense weights while they are loaded, of files that are
    quantized already as if they were not; a dense format is planned as if the files had it.

    Raises `InvalidValueError` for a format that the native path does not have.
    """
    wanted, threads = question.weight_format, question.threads or 1
    if question.kv_format not in (None, CPU_KV_FORMAT):
        raise InvalidValueError("--kv-format", question.kv_format, f"{CPU_KV_FORMAT} on the CPU")
    stored = _as_loaded(question.stored)
    if wanted is None:
        return native_holding(question.spec, stored, None, threads)
    one_of("--weight-format", wanted, CPU_WEIGHT_FORMATS)
    if wanted in DENSE:
        return native_holding(question.spec, DENSE[wanted], None, threads)
    return native_holding(question.spec, stored if stored_dense(question.spec, stored) else "BF16", wanted, threads)


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
