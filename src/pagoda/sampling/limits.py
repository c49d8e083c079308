"""What a request's sampling parameters may be, given the model's vocabulary. Checked at admission."""

from __future__ import annotations

from pagoda.errors import InvalidValueError
from pagoda.sampling_params import SamplingParams


def check_vocabulary(sampling: SamplingParams, vocab_size: int) -> None:
    """Raise `InvalidValueError` for a token id in `logit_bias` or `stop_token_ids` that is not below `vocab_size`.

    vocab_size: the tokens that there really are; rows that only pad the embedding table do not count.
    """
    limit = f"a token id of the model's vocabulary, 0 to {vocab_size - 1:,}"
    for token_id in sampling.logit_bias:
        if not 0 <= token_id < vocab_size:
            raise InvalidValueError("logit_bias (its key)", token_id, limit)
    for index, token_id in enumerate(sampling.stop_token_ids):
        if not 0 <= token_id < vocab_size:
            raise InvalidValueError(f"stop_token_ids[{index}]", token_id, limit)
