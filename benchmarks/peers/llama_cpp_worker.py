"""llama.cpp through llama-cpp-python's low-level batch API: flash attention, every sequence with a KV stream of its own."""

from __future__ import annotations

import time

import llama_cpp as llama
import numpy as np
from worker import Engine, Load, Measured, Options, main

BATCH = 2048  # tokens of one call


class Batches:
    """One model, and a context for each shape of load (it is made for a number of sequences and a length)."""

    def __init__(self, options: Options) -> None:
        llama.llama_backend_init()
        self._threads = options.threads
        self._model = llama.llama_model_load_from_file(options.model.encode(), llama.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp does not load {options.model}")
        self._vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self._model))
        self._contexts: dict[tuple[int, int], llama.llama_context_p] = {}
        self._batch = llama.llama_batch_init(BATCH, 0, 1)

    def measure(self, load: Load) -> Measured:
        context = self._context(load.batch, load.prompt_tokens + load.output_tokens)
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        begun = time.perf_counter()
        newest = self._prefill(context, load.prompts())
        prefilled = time.perf_counter()
        counts = np.ones(load.batch, int)
        for position in range(load.prompt_tokens, load.prompt_tokens + load.output_tokens - 1):
            rows = [(int(token), position, sequence, True) for sequence, token in enumerate(newest)]
            newest = self._decode(context, rows)
            counts += 1
        ended = time.perf_counter()
        tokens = load.batch * (load.output_tokens - 1)
        return Measured(prefilled - begun, ended - prefilled, tokens, counts.tolist())

    def _prefill(self, context: llama.llama_context_p, prompts: list[list[int]]) -> list[int]:
        rows = [
            (token, position, sequence, position == len(prompt) - 1)
            for sequence, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        return [token for at in range(0, len(rows), BATCH) for token in self._decode(context, rows[at : at + BATCH])]

    def _decode(self, context: llama.llama_context_p, rows: list[tuple[int, int, int, bool]]) -> list[int]:
        """One call; the most likely token of each row that wants one, in order."""
        batch = self._batch
        for index, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[index], batch.pos[index] = token, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.logits[index] = wanted
        batch.n_tokens = len(rows)
        if (status := llama.llama_decode(context, batch)) != 0:
            raise RuntimeError(f"llama_decode gave {status}")
        num_wanted = sum(row[3] for row in rows)
        if not num_wanted:
            llama.llama_synchronize(context)
            return []
        logits = np.ctypeslib.as_array(llama.llama_get_logits(context), (num_wanted, self._vocabulary))
        return [int(token) for token in logits.argmax(axis=1)]

    def _context(self, sequences: int, length: int) -> llama.llama_context_p:
        if (sequences, length) not in self._contexts:
            params = llama.llama_context_default_params()
            params.n_seq_max = sequences
            params.n_ctx = sequences * (-(-length // 256) * 256)
            params.n_batch = BATCH
            params.n_threads = params.n_threads_batch = self._threads
            params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_ENABLED
            params.kv_unified = False
            params.no_perf = True
            context = llama.llama_init_from_model(self._model, params)
            if not context:
                raise RuntimeError(f"llama.cpp makes no context for {sequences} sequences of {length} tokens")
            self._contexts[sequences, length] = context
        return self._contexts[sequences, length]


@llama.llama_log_callback
def _quiet(level: int, text: bytes, user_data: object) -> None:
    pass


def start(options: Options) -> Engine:
    llama.llama_log_set(_quiet, None)
    return Engine(f"llama.cpp (llama-cpp-python {llama.__version__})", Batches(options).measure)


if __name__ == "__main__":
    main(start)
