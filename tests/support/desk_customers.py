"""Customers of the order desk by every wire: chat completions as in `journeyman.tasks.desk.customers`, and the others.

An agent comes to the gateway by one of four wires, or asks its model itself and reports by OpenTelemetry what it did.
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

from journeyman.core.messages import ToolUse
from journeyman.core.task import Task
from journeyman.tasks.desk import customers
from journeyman.tasks.desk.customers import (
    FUNCTIONS,
    NAMES,
    SCHEMA,
    SYSTEM,
    Answers,
    Visit,
    answer_of,
    is_taken,
    whole,
)

Wire = Callable[[str, Task, Mapping[str, str], str, Answers], bool]


def chat(url: str, task: Task, labels: Mapping[str, str], customer: str, answers: Answers, ask: Any = whole) -> bool:
    """One order; whether the API took it."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as client:
        return customers.chat(client, Visit(task=task, customer=customer, labels=labels), answers=answers, ask=ask)


def stream(url: str, task: Task, labels: Mapping[str, str], customer: str, answers: Answers) -> bool:
    return chat(url, task, labels, customer, answers, streamed)


def streamed(client: openai.OpenAI, **request: Any) -> ToolUse | None:
    """The same of an answer that comes in pieces."""
    found = {"id": "", "tool": "", "arguments": ""}
    for chunk in client.chat.completions.create(**request, stream=True):
        for piece in chunk.choices[0].delta.tool_calls or ():
            found["id"] += piece.id or ""
            found["tool"] += (piece.function and piece.function.name) or ""
            found["arguments"] += (piece.function and piece.function.arguments) or ""
    return ToolUse(found["tool"], found["arguments"], found["id"]) if found["tool"] else None


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
        refused = not is_taken(result)
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
    return is_taken(result)


def otlp(tracer: Tracer, url: str, task: Task, labels: Mapping[str, str], customer: str, answers: Answers) -> bool:
    """The same of an instrumented agent, which asks the model's server at the URL itself."""
    shared = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "clerk", "gen_ai.tool.definitions": json.dumps(FUNCTIONS),
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
            reply = client.chat.completions.create(model="clerk", messages=messages, tools=FUNCTIONS).choices[0].message
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
    return is_taken(result)


@contextmanager
def reporting(gateway: str, server: str) -> Iterator[Wire]:
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


WIRES: Mapping[str, Wire] = {"chat": chat, "stream": stream, "messages": messages, "responses": responses}


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
