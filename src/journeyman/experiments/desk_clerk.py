"""A clerk of the order desk behind an OpenAI-compatible server: a model that a stock client can reach by its base URL.

    python -m journeyman.experiments.desk_clerk embedded

It prints its port, loads the model, and serves until its standard input ends, so that it never outlives who started it. The
model turns a customer's sentence into a call, which is handed out as a tool call. Rules that stand in the system message it
follows. What a tool answered is passed on to the customer in one of two fixed sentences: the embedded model writes calls alone.
"""

import asyncio
import json
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from journeyman import models
from journeyman.agents.answer import terse_rules
from journeyman.io.asgi_server import Server
from journeyman.io.http_server import read_body
from journeyman.io.processes import when_parent_ends
from journeyman.models.base import Model, ModelRequest, PromptMessage, Reply
from journeyman.tasks.desk.customers import is_taken

ACCEPTED, SORRY = "Your order is placed.", "I am sorry, I could not place it."
_RULE = re.compile(r"^\[b-[0-9a-f]+\] (?:avoid: )?(.*)$", re.MULTILINE)
_MOST_BYTES, _SECONDS = 1 << 20, 30.0


class DeskClerk:
    """Asks the model, once for each prompt where it is deterministic: what is asked again is known then."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._known: dict[tuple[str, str], asyncio.Future[Reply]] = {}
        self._numbers = count()

    async def call(self, system: str, sentence: str) -> tuple[str, str, Reply]:
        """Name and arguments of the tool call for a sentence; no name where the model wrote none. And what it wrote."""
        key = terse_rules(_RULE.findall(system)), sentence
        if key not in self._known or not self.model.deterministic:
            self._known[key] = asyncio.ensure_future(self._asked(*key))
        reply = await self._known[key]
        try:
            found = json.loads(reply.text)
            return str(found["name"]), json.dumps(found["arguments"]), reply
        except (ValueError, KeyError, TypeError):
            return "", reply.text, reply

    async def _asked(self, system: str, sentence: str) -> Reply:
        return await self.model.complete(
            ModelRequest(messages=(PromptMessage("system", system), PromptMessage("user", sentence)))
        )

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A chat completion."""
        messages, usage = body["messages"], {}
        message: dict[str, Any] = {"role": "assistant", "content": afterwards(messages[-1])}
        if messages[-1]["role"] != "tool":
            tool, arguments, reply = await self.call(told_by(messages, "system"), told_by(messages, "user"))
            message["content"] = None if tool else arguments
            if tool:
                use = {"id": self.id("call"), "type": "function", "function": {"name": tool, "arguments": arguments}}
                message["tool_calls"] = [use]
            usage = _usage(reply)
        choice = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in message else "stop", "message": message}
        told = {"id": self.id("chatcmpl"), "object": "chat.completion", "created": 1, "model": body["model"]}
        return {**told, "choices": [choice], **usage}

    def id(self, kind: str) -> str:
        return f"{kind}_{next(self._numbers):08d}"

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Serves ASGI."""
        status, answer = 404, {"error": {"message": "there is POST /v1/chat/completions"}}
        if (scope["method"], scope["path"]) == ("POST", "/v1/chat/completions"):
            try:
                status, answer = 200, await self.complete(json.loads(await read_body(receive, _MOST_BYTES, _SECONDS)))
            except (ValueError, KeyError, IndexError, TypeError) as error:
                status, answer = 400, {"error": {"message": f"this is no chat: {type(error).__name__}: {error}"}}
        content = json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def told_by(messages: Sequence[Mapping[str, Any]], role: str) -> str:
    """What a role says: of users the first, of others all."""
    found = list(_texts(messages, role))
    return found[0] if found and role == "user" else "\n".join(found)


def _texts(messages: Sequence[Mapping[str, Any]], role: str) -> Iterator[str]:
    return (text_of(each["content"]) for each in messages if each.get("role") == role)


def text_of(content: Any) -> str:
    """A message's content as one text."""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def afterwards(message: Mapping[str, Any]) -> str:
    """What the customer is told when the tool has answered."""
    return ACCEPTED if is_taken(str(message.get("content") or "")) else SORRY


def _usage(reply: Reply) -> dict[str, Any]:
    read, written = reply.input_tokens, reply.output_tokens
    if read is None or written is None:
        return {}
    return {"usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}}


def main() -> None:
    # Bound before the model is loaded: whoever comes by then waits instead of being refused.
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listening.getsockname()[1], flush=True)  # noqa: T201 - a program of its own
    server = Server(DeskClerk(models.load(sys.argv[1])), lambda: None, cut_seconds=1)

    when_parent_ends(lambda: setattr(server, "should_exit", True))
    server.run(sockets=[listening])


if __name__ == "__main__":
    main()
