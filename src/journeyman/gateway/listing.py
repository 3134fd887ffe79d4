"""`GET /v1/models`, where several upstreams have models."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import aiohttp

from journeyman.gateway.asking import Asking
from journeyman.gateway.call import Call, Refused
from journeyman.gateway.upstreams import Upstream

_LARGEST = 16 << 20


async def models(asking: Asking, call: Call, upstreams: Sequence[Upstream]) -> dict[str, Any]:
    """The models of all upstreams in one list. Those of the first have their own names, and others begin with `NAME/`, which is
    how they are asked for. An upstream that does not answer has none.

    Raises:
        Refused: (502) None of them answers.
    """
    lists = await asyncio.gather(*(_listed(asking, call, upstreams, each) for each in upstreams))
    if all(each is None for each in lists):
        names = ", ".join(each.name for each in upstreams)
        raise Refused(502, f"no upstream lists its models: {names} were asked", "upstream_unreachable", api=call.api)
    data = [
        {**model, "id": model["id"] if number == 0 else f"{upstream.name}/{model['id']}", "upstream": upstream.name}
        for number, (upstream, found) in enumerate(zip(upstreams, lists, strict=True))
        for model in found or ()
    ]
    if call.api == "openai":
        return {"object": "list", "data": data}
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"data": data, "has_more": False, **ends}


async def _listed(asking: Asking, call: Call, all: Sequence[Upstream], upstream: Upstream) -> list[dict[str, Any]] | None:
    try:
        response = await asking.ask_one(call, upstream, all[0])
        try:
            found = json.loads(await response.content.read(_LARGEST) if response.status == 200 else b"")
        finally:
            response.close()
    except (Refused, aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError):
        return None
    rows = found.get("data") if isinstance(found, dict) else None
    return [row for row in rows or () if isinstance(row, dict) and isinstance(row.get("id"), str)]
