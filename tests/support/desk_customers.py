"""Customers of the order desk: an agent with a stock client, whose tool is the shop's API, and what it refuses.

It comes to the gateway by one of four wires, or asks its model itself and reports by OpenTelemetry what it did.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import anthropic
import openai
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from journeyman.core.task import Split, Task
from journeyman.tasks import desk
from journeyman.tasks.desk.world import compare

FIELDS = ("sku", "amount", "city", "date", "price", "rush")
SCHEMA = {"type": "object", "properties": {name: {"type": "string"} for name in FIELDS}}
NAMES = ("order", "quote")
SYSTEM = "You are the clerk of an order desk. Place each order with the tool."


def orders(shop: str, count: int) -> Sequence[Task]:
    return desk.load(shop, sizes={Split.TRAIN: count}).tasks


def answer_of(task: Task, tool: str, arguments: Mapping[str, Any]) -> str:
    """What the shop's API says of a call."""
    wanted = json.loads(task.answer)
    faults = [f'name: expected "{wanted["name"]}", got "{tool}"'] if tool != wanted["name"] else []
    faults += compare(arguments, wanted["arguments"])
    return "Error: " + "\n".join(faults) if faults else "OK"


Answers = Callable[[Task, str, Mapping[str, Any]], str]
Visit = Callable[[str, Task, Mapping[str, str], str, Answers], bool]


def chat(url: str, task: Task, labels: Mapping[str, str], customer: str, answers: Answers, *, stream: bool = False) -> bool:
    """One order; whether the API took it."""
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.question}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="key", default_headers=labels, max_retries=0) as client:
        told: Any = {"model": "clerk", "tools": tools, "user": customer}
        if stream:
            use: Any = _streamed(client.chat.completions.create(messages=messages, stream=True, **told))
        else:
            reply = client.chat.completions.create(messages=messages, **told).choices[0].message
            use = reply.tool_calls[0] if reply.tool_calls else None
        if use is None:
            return False
        arguments = use["arguments"] if isinstance(use, dict) else use.function.arguments
        name, id = (use["name"], use["id"]) if isinstance(use, dict) else (use.function.name, use.id)
        result = answers(task, name, json.loads(arguments))
        call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        messages += [{"role": "tool", "tool_call_id": id, "content": result}]
        client.chat.completions.create(messages=messages, **told)
    return result.startswith("OK")


def _streamed(chunks: Any) -> dict[str, str] | None:
    found = {"id": "", "name": "", "arguments": ""}
    for chunk in chunks:
        for piece in chunk.choices[0].delta.tool_calls or ():
            found["id"] += piece.id or ""
            found["name"] += piece.function.name or ""
            found["arguments"] += piece.function.arguments or ""
    return found if found["name"] else None


def stream(url: str, task: Task, labels: Mapping[str, str], customer: str, answers: Answers) -> bool:
    return chat(url, task, labels, customer, answers, stream=True)


def messages(url: str, task: Task, labels: Mapping[str, str], customer: str, answers: Answers) -> bool:
    """The same over Anthropic's wire."""
    tools: Any = [{"name": name, "input_schema": SCHEMA} for name in NAMES]
    said: list[Any] = [{"role": "user", "content": task.question}]
    with anthropic.Anthropic(base_url=url, api_key="key", default_headers=labels, max_retries=0) as client:
        told: Any = {"model": "clerk", "max_tokens": 200, "system": SYSTEM, "tools": tools, "metadata": {"user_id": customer}}
        reply = client.messages.create(messages=said, **told)
        use: Any = next((part for part in reply.content if part.type == "tool_use"), None)
        if use is None:
            return False
        result = answers(task, use.name, use.input)
        refused = not result.startswith("OK")
        said.append(
            {"role": "assistant", "content": [{"type": "tool_use", "id": use.id, "name": use.name, "input": use.input}]}
        )
        part = {"type": "tool_result", "tool_use_id": use.id, "content": result.removeprefix("Error: "), "is_error": refused}
        said.append({"role": "user", "content": [part]})
        client.messages.create(messages=said, **told)
    return not refused


def responses(url: str, task: Task, labels: Mapping[str, str], customer: str, answers: Answers) -> bool:
    """The same over Responses."""
    tools: Any = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in NAMES]
    items: list[Any] = [{"role": "user", "content": task.question}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="key", default_headers=labels, max_retries=0) as client:
        told: Any = {"model": "clerk", "instructions": SYSTEM, "tools": tools, "safety_identifier": customer}
        reply = client.responses.create(input=items, **told)
        use: Any = next((item for item in reply.output if item.type == "function_call"), None)
        if use is None:
            return False
        result = answers(task, use.name, json.loads(use.arguments))
        call = {"type": "function_call", "call_id": use.call_id, "name": use.name, "arguments": use.arguments}
        items += [call, {"type": "function_call_output", "call_id": use.call_id, "output": result}]
        client.responses.create(input=items, **told)
    return result.startswith("OK")


def otlp(tracer: Tracer, url: str, task: Task, labels: Mapping[str, str], customer: str, answers: Answers) -> bool:
    """The same of an instrumented agent, which asks the model's server at the URL itself."""
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
    shared = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "clerk", "gen_ai.tool.definitions": json.dumps(tools),
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": SYSTEM}]), "user.id": customer,
        "gen_ai.conversation.id": labels["X-Journeyman-Session"],
    }  # fmt: skip
    about = {
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": labels["X-Journeyman-Agent"],
        "journeyman.domain": labels["X-Journeyman-Domain"],
    }  # fmt: skip
    heard = [{"role": "user", "parts": [{"type": "text", "content": task.question}]}]
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as client,
        tracer.start_as_current_span("invoke_agent desk", attributes=about),
    ):
        with tracer.start_as_current_span("chat clerk", attributes=shared) as span:
            messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.question}]
            reply = client.chat.completions.create(model="clerk", messages=messages, tools=tools).choices[0].message
            use: Any = reply.tool_calls[0] if reply.tool_calls else None
            part = {"type": "text", "content": reply.content}
            if use is not None:
                arguments = json.loads(use.function.arguments)
                part = {"type": "tool_call", "id": use.id, "name": use.function.name, "arguments": arguments}
            asked = [{"role": "assistant", "parts": [part]}]
            span.set_attribute("gen_ai.input.messages", json.dumps(heard))
            span.set_attribute("gen_ai.output.messages", json.dumps(asked))
        result = answers(task, use.function.name, arguments) if use is not None else ""
        if use is not None:
            with tracer.start_as_current_span("chat clerk", attributes=shared) as span:
                part = {"type": "tool_call_response", "id": use.id, "response": result}
                more = [*heard, *asked, {"role": "tool", "parts": [part]}]
                said = [{"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}]
                span.set_attribute("gen_ai.input.messages", json.dumps(more))
                span.set_attribute("gen_ai.output.messages", json.dumps(said))
    return result.startswith("OK")


@contextmanager
def reporting(gateway: str, server: str) -> Iterator[Visit]:
    """Visits of an instrumented agent, all of which are reported when this ends."""
    provider = TracerProvider()
    # A busy machine is slow, and nothing may be lost of it.
    exporter = OTLPSpanExporter(endpoint=f"{gateway}/v1/traces", timeout=60)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=64))
    tracer = provider.get_tracer("its-own")

    def visit(_: str, *told: Any) -> bool:
        return otlp(tracer, server, *told)

    try:
        yield visit
    finally:
        provider.force_flush(120_000)
        provider.shutdown()


WIRES: Mapping[str, Visit] = {"chat": chat, "stream": stream, "messages": messages, "responses": responses}


def visits(
    url: str,
    shop: str,
    tasks: Sequence[Task],
    *,
    wire: str = "chat",
    customers: int = 25,
    answers: Answers = answer_of,
    first: int = 0,
    together: int = 8,
    server: str = "",
) -> list[bool]:
    """Each order in a session of its own, in turn by so many customers; whether the API took each.

    Args:
        server: That of the model, for an agent that does not go through the gateway (`otlp`).
    """

    def one(place: int) -> bool:
        labels = {
            "X-Journeyman-Session": f"{shop}-{wire}-{first + place}",
            "X-Journeyman-Agent": "desk",
            "X-Journeyman-Domain": shop,
        }
        return visit(url, tasks[place], labels, f"customer-{(first + place) % customers}", answers)

    with reporting(url, server) if wire == "otlp" else nullcontext(WIRES[wire]) as visit:
        return list(_in_order(one, len(tasks), together))


def _in_order(one: Callable[[int], bool], count: int, together: int) -> Iterator[bool]:
    """In rounds, so that what comes later is later."""
    with ThreadPoolExecutor(together) as pool:
        for start in range(0, count, together):
            yield from pool.map(one, range(start, min(start + together, count)))
