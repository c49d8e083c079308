"""Prints as JSON what this machine computes: products of every weight format, and an answer of a model with its
log-probabilities. Usage: python -m tests.packaging.numbers MODEL"""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import numpy.typing as npt

from pagoda import LLM, SamplingParams, _native
from pagoda.planning.formats import FORMATS, WeightFormat
from pagoda.runner.native_device import choose_instruction_set
from tests.native.programs import SmallProgram, stored

IN_FEATURES, OUT_FEATURES, ROWS = 512, 40, 3


def weights(kind: WeightFormat, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Without halves that are denormal: qemu 7.2 takes them for zero where denormal floats are, which processors do not."""
    if kind.block_elements == 1:
        values = random.standard_normal((OUT_FEATURES, IN_FEATURES)).astype(np.float32)
        return stored(kind.name, np.where(np.abs(values) < 1e-3, np.float32(0), values))
    # Bytes below 60, so that the scales, which are fp16, are below 1.
    shape = (OUT_FEATURES, IN_FEATURES // kind.block_elements * kind.block_bytes)
    return random.integers(4, 60, shape, dtype=np.uint8)


def product(threads: _native.Threads, kind: WeightFormat) -> str:
    """The bytes of ROWS rows times a matrix, in hex."""
    random = np.random.default_rng(3)
    matrix = _native.Matrix(threads, IN_FEATURES, [(kind.name, weights(kind, random))])
    program = SmallProgram(threads)
    x = program.input(threads, random.standard_normal((ROWS, IN_FEATURES)).astype(np.float32), *matrix.input_forms)
    out = program.tensor(OUT_FEATURES)
    program.native.linear(out, x, matrix)
    program.run([(0, ROWS)])
    return program.native.read(out, ROWS).tobytes().hex()


def main(model: str) -> None:
    sets = _native.instruction_sets()
    threads = _native.Threads(2, choose_instruction_set(sets, os.environ))
    products = {name: product(threads, kind) for name, kind in FORMATS.items()}
    threads.close()
    with LLM(model, num_kv_blocks=32, threads=2) as llm:
        answer = llm.generate("What is a pagoda?", SamplingParams(temperature=0, max_tokens=8, logprobs=2))[0].outputs[
            0
        ]
    print(
        json.dumps({"sets": sets, "products": products, "tokens": answer.token_ids, "logprobs": repr(answer.logprobs)})
    )


if __name__ == "__main__":
    main(sys.argv[1])
