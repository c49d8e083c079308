"""HTTP/1.1 on one connection: uvicorn's, with refusals in OpenAI's form for what is no HTTP at all."""

from __future__ import annotations

import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pagoda.server.errors import HttpError, error_body


class Protocol(H11Protocol):
    """Answers what h11 refuses: broken request lines, headers and chunks, too many headers, a missing Host."""

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer is under way already
            sentence = (
                "the request is no valid HTTP/1.1, must have one Host, well-formed headers of at most 32 KiB and body"
            )
            body = json.dumps(error_body(HttpError(400, sentence, code="invalid_http"))).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
