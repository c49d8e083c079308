"""/v1/models, the schema, and what answers where there is no route."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.server.conftest import RunningServer


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        yield client


def test_the_model_is_there_with_its_context(client: httpx.Client) -> None:
    listed = client.get("/v1/models").json()
    (card,) = listed["data"]
    assert listed["object"] == "list"
    assert (card["id"], card["object"], card["max_model_len"]) == ("tiny", "model", 256)
    assert client.get("/v1/models/tiny").json() == card


@pytest.mark.parametrize("name", ["other", "org/other"])
def test_another_model_is_not(client: httpx.Client, name: str) -> None:
    response = client.get(f"/v1/models/{name}")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert name in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *[("GET", path, 404) for path in ("/", "/v1", "/docs", "/redoc")],
        ("POST", "/nowhere", 404),
        ("GET", "/v1/completions/", 404),
        ("POST", "/v1/completions/", 404),
        ("GET", "/v1/completions", 405),
        ("DELETE", "/v1/models", 405),
    ],
)
def test_no_such_route_is_an_error_of_the_usual_form(client: httpx.Client, method: str, path: str, status: int) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == {404: "not_found", 405: "method_not_allowed"}[status]
    assert f"{method} {path}" in error["message"]
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models", "/v1/models/tiny"])
def test_what_is_probed_takes_head(client: httpx.Client, path: str) -> None:
    response = client.head(path)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"] == "application/json"
    assert set(client.get("/openapi.json").json()["paths"].get(path, {})) <= {"get"}
    assert client.get(path).status_code == 200  # the connection is still in step


def test_the_schema_has_every_route_and_the_tables_fields(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    assert {"/v1/completions", "/v1/chat/completions", "/v1/models", "/tokenize", "/health", "/metrics"} <= set(
        schema["paths"]
    )
    body = schema["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["additionalProperties"] is False
    assert body["properties"]["n"]["anyOf"][0]["maximum"] == 128
    assert body["properties"]["prompt"]["anyOf"][2]["maxItems"] == 128
