"""A clerk of the order desk behind three APIs: chat completions, Anthropic's messages and Responses, also streamed.

The first as `journeyman.experiments.desk_clerk` answers it; here are the other two, streams, and a model that is right at once.
`python -m tests.support.clerk` prints its port.
"""

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from journeyman.core.task import Split
from journeyman.experiments.desk_clerk import ACCEPTED, SORRY, DeskClerk, afterwards, text_of, told_by
from journeyman.models.base import Dialect, Model, ModelRequest, Reply
from journeyman.tasks.desk.world import CONVENTIONS, SHOPS, Order, call, say


class KnownOrders:
    """Knows what each customer of the desk wants, and no house's ways but those that it is told: as the embedded model does,
    at once and for certain. Implements `Model`."""

    name = "known-orders"
    dialect: Dialect = "terse"
    deterministic = True

    def __init__(self, each: int = 2400) -> None:
        self._orders = _meant(each)

    async def complete(self, request: ModelRequest) -> Reply:
        rules = {line.removeprefix("- ") for line in request.messages[0].content.splitlines()[1:]}
        house = {
            convention.about: next((at for at, value in enumerate(convention.values) if rules & set(value.rules)), 0)
            for convention in CONVENTIONS
        }
        return Reply(text=json.dumps(call(self._orders[request.messages[1].content], house)), model=self.name)

    async def close(self) -> None:
        pass


@cache
def _meant(each: int) -> Mapping[str, Order]:
    """By what customers say; so many of each shop."""
    found: dict[str, Order] = {}
    for shop in SHOPS:
        chance = random.Random(f"0 {shop} {Split.TRAIN}")
        for _ in range(each):
            said = say(chance, Split.TRAIN)
            found.setdefault(said.sentence, said.order)
    return found


class WireClerk(DeskClerk):
    """Answers the three APIs."""

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        done = await self.complete(body)
        if not body.get("stream"):
            return JSONResponse(done)
        (choice,) = done["choices"]
        for number, use in enumerate(choice["message"].get("tool_calls", ())):
            use["index"] = number
        finish = choice["finish_reason"]
        deltas = [
            {"index": 0, "delta": choice["message"], "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": finish},
        ]
        told = {name: done[name] for name in ("id", "created", "model")}
        chunks = [{**told, "object": "chat.completion.chunk", "choices": [each]} for each in deltas]
        return _events([*(("", chunk) for chunk in chunks)], done=True)

    async def messages(self, request: Request) -> Response:
        body = await request.json()
        last = body["messages"][-1]["content"]
        answered = next((part for part in last if part["type"] == "tool_result"), None) if isinstance(last, list) else None
        if answered is not None:
            content = [{"type": "text", "text": SORRY if answered.get("is_error") else ACCEPTED}]
        else:
            system = body.get("system", "")
            system = system if isinstance(system, str) else "\n".join(part["text"] for part in system)
            tool, arguments, _ = await self.call(system, text_of(last))
            use = {"type": "tool_use", "id": self.id("toolu"), "name": tool, "input": json.loads(arguments) if tool else {}}
            content = [use if tool else {"type": "text", "text": arguments}]
        stop = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
        usage = {"input_tokens": 50, "output_tokens": 20}
        told = {"id": self.id("msg"), "type": "message", "role": "assistant", "model": body["model"]}
        return JSONResponse({**told, "content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage})

    async def responses(self, request: Request) -> Response:
        body = await request.json()
        items = body["input"]
        items = [{"role": "user", "content": items}] if isinstance(items, str) else items
        output: dict[str, Any]
        if items[-1].get("type") == "function_call_output":
            output = _said(afterwards({"content": items[-1]["output"]}), self.id("msg"))
        else:
            system = "\n".join([body.get("instructions") or "", told_by(items, "system"), told_by(items, "developer")])
            tool, arguments, _ = await self.call(system, told_by(items, "user"))
            use = {"type": "function_call", "id": self.id("fc"), "call_id": self.id("call"), "status": "completed"}
            output = {**use, "name": tool, "arguments": arguments} if tool else _said(arguments, self.id("msg"))
        told = {"id": self.id("resp"), "object": "response", "created_at": 1, "status": "completed", "model": body["model"]}
        usage = {"input_tokens": 50, "output_tokens": 20, "total_tokens": 70, "input_tokens_details": {"cached_tokens": 0},
                 "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
        more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": body.get("tools", [])}
        return JSONResponse({**told, **more, "output": [output], "usage": usage})


def _said(text: str, id: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": [part]}


def _events(events: Sequence[tuple[str, Mapping[str, Any]]], *, done: bool) -> Response:
    lines = [f"data: {json.dumps(data)}\n\n" for _, data in events] + ["data: [DONE]\n\n"] * done
    return Response("".join(lines), media_type="text/event-stream")


async def _used(_: Request) -> Response:
    return JSONResponse(time.process_time())


def app(model: Model) -> Starlette:
    """`GET /cpu` says how many seconds of CPU it took so far."""
    clerk = WireClerk(model)
    routes = (("chat/completions", clerk.chat), ("messages", clerk.messages), ("responses", clerk.responses))
    posted = [Route(f"/v1/{path}", answer, methods=["POST"]) for path, answer in routes]
    return Starlette(routes=[*posted, Route("/cpu", _used)])


@contextmanager
def clerk(model: str = "known") -> Iterator[str]:
    """The base URL of a clerk in a process of its own, to which `/v1` is still to be added.

    Args:
        model: `known` for `KnownOrders`, else as after `--model`.
    """
    command = [sys.executable, "-m", "tests.support.clerk", model]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, "the clerk did not begin"
            yield f"http://127.0.0.1:{int(line)}"
        finally:
            process.kill()
            process.wait(30)


def _main(name: str) -> None:
    from journeyman import models

    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app(KnownOrders() if name == "known" else models.load(name)), log_level="warning", lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    _main(sys.argv[1])
