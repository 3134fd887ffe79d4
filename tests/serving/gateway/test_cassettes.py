"""Exchanges recorded of real servers go through byte for byte."""

import gzip
import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.serving.gateway.test_passing import ask
from tests.support.gateways import Running
from tests.support.upstream import Reply, Upstream

pytestmark = pytest.mark.service

FOLDER = Path(os.environ.get("JOURNEYMAN_DATA", "")) / "llm-http-cassettes"


@pytest.mark.skipif(not (os.environ.get("JOURNEYMAN_DATA") and FOLDER.is_dir()), reason="JOURNEYMAN_DATA is not set")
@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_recorded_exchanges_go_through_byte_for_byte(running: Running, up: Upstream, name: str) -> None:
    recorded = 0
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    for row in rows:
        uri = urlsplit(row["uri"])
        path = "/v1/" + uri.path.partition("/v1/")[2] + (f"?{uri.query}" if uri.query else "")
        body = None if row["request_body"] is None else str(row["request_body"]).encode()
        answer = (row["response_body"] or "").encode()
        # In pieces, as a stream comes.
        pieces = tuple(answer[at : at + 500] for at in range(0, len(answer), 500))
        kind = row["content_type"]
        up.replies.append(
            Reply(status=row["status"], headers=((b"content-type", kind.encode()),) if kind else (), pieces=pieces)
        )
        status, headers, got = ask(running.url, path, body, row["method"])
        empty = status in (204, 304)
        assert (status, got) == (row["status"], b"" if empty else answer), row["file"]
        assert headers.get("content-type") == kind
        assert up.asked[-1].body == (body or b"")
        if running.memory.exchanges and running.memory.exchanges[-1].request == body:
            recorded += 1
    assert len(up.asked) == len(rows)
    assert recorded > len(rows) // 2
