import pytest

from pagoda.cli.refusals import worded
from pagoda.errors import InvalidValueError, PagodaError


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("max_tokens", "--max-tokens"),
        ("logit_bias (its key)", "--logit-bias"),
        ("logit_bias[7]", "--logit-bias"),
        ("stop_token_ids[0]", "--stop-token-ids"),
        ("num_kv_blocks", "--num-kv-blocks"),
        ("model", "MODEL"),
        ("--batch", "--batch"),
        ("prompt", "prompt"),
        ("messages[0].role", "messages[0].role"),
    ],
)
def test_a_field_that_is_an_option_is_named_as_one(field: str, named: str) -> None:
    assert worded(InvalidValueError(field, 5, "less")) == f"{named}: got 5, must be less"


def test_other_errors_are_left_as_they_are() -> None:
    assert worded(PagodaError("max_tokens: no")) == "max_tokens: no"
