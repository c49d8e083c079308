"""How many programs share a row."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.planning.cuda_sampling import MAX_SPLITS

_PROGRAMS_PER_MULTIPROCESSOR = 4


@dataclass(frozen=True, slots=True)
class Splits:
    """number: programs for each row. blocks: of tokens, for each program; the last one may have fewer."""

    number: int
    blocks: int

    @classmethod
    def of(cls, num_rows: int, vocab_size: int, block: int, multiprocessors: int) -> Splits:
        """As many as fill the device."""
        blocks = -(-vocab_size // block)
        wanted = -(-_PROGRAMS_PER_MULTIPROCESSOR * multiprocessors // num_rows)
        each = -(-blocks // min(wanted, MAX_SPLITS, blocks))
        return cls(-(-blocks // each), each)
