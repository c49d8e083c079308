"""Two thousand requests made from the server's own OpenAPI, good ones and bad ones: none is answered with 5xx."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.server.conftest import Serve

NUM_REQUESTS = 1_100  # of either kind
NUM_READS = 10  # of them, to each route that takes no body
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_no_request_made_from_the_schema_is_a_server_error(serve: Serve, mode: GenerationMode) -> None:
    """In the negative mode each request breaks the schema somewhere: in a type, a bound, a name, a media type, the method."""
    with serve("--max-model-len", "48", "--max-n", "2") as server, requests.Session() as session:
        session.trust_env = False
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
        operations = [found.ok() for found in schema.get_all_operations()]
        writing = [operation for operation in operations if operation.method == "post"]
        share = (NUM_REQUESTS - NUM_READS * (len(operations) - len(writing))) // len(writing) + 1
        answers: Counter[int] = Counter()
        for operation in operations:
            answers += _exercised(operation, mode, session, share if operation in writing else NUM_READS)
        assert answers.total() >= 1_000
        assert set(answers) <= {200, 400, 404, 405, 413, 415, 421}
        assert answers[200 if mode is GenerationMode.POSITIVE else 400] > NUM_REQUESTS // 8
        assert server.process.poll() is None
        assert "Traceback" not in server.stderr()


def _exercised(
    operation: APIOperation, mode: GenerationMode, session: requests.Session, num_requests: int
) -> Counter[int]:
    """How often each status was the answer."""
    answers: Counter[int] = Counter()

    @settings(
        max_examples=num_requests,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def send(case: Case) -> None:
        response = case.call_and_validate(session=session, checks=CHECKS)
        answers[response.status_code] += 1

    with suppress(Unsatisfiable):  # nothing can be wrong about a route without parameters
        send()
    return answers
