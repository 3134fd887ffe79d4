"""What recording costs an agent in its own process, and what an exchange costs until it is a step of a trace.

    python benchmarks/bench_recorder.py            # a table
    python benchmarks/bench_recorder.py --json     # one object

Times are of one core, the best of several rounds of many calls. Beside each stands what it cannot do without, measured in the
same run: for a step a dictionary written as JSON (what a log line would cost), for an exchange the parsing of its two bodies.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from journeyman.models.pricing import cost
from journeyman.serving.ingest.hooks import hook_into_agent, traced_by
from journeyman.tracing.collector import Collector
from journeyman.tracing.wire.assembler import ConversationAssembler
from journeyman.tracing.wire.dialects import Dialect, Exchange

ROUNDS = 7
STEPS = 2000
STEP_LIMIT = 50.0
"""Microseconds that a recorded step may cost."""
EXCHANGE_LIMIT = 20.0
"""How often the parsing of its bodies an exchange may cost."""
QUESTION = "Where is order 7, and when does it reach me? " * 4


def best(work: Callable[[], Any], times: int) -> float:
    """Microseconds of CPU for each time."""
    found = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        found.append((time.process_time() - begin) / times * 1e6)
    return min(found)


def log_lines() -> None:
    for number in range(STEPS):
        json.dumps({"step": number, "prompt": QUESTION, "reply": QUESTION, "at": datetime.now(UTC).isoformat()})


def model_calls() -> None:
    with Collector().trace(QUESTION) as trace:
        for _ in range(STEPS):
            trace.model_call(model="small", prompt=QUESTION, reply=QUESTION, input_tokens=40, output_tokens=40)


def tool_spans() -> None:
    with Collector().trace(QUESTION) as trace:
        for number in range(STEPS):
            with trace.tool("find", {"order": number, "city": "Oslo"}) as call:
                call.result = {"city": "Oslo", "days": 3}


def traced_calls() -> None:
    @traced_by(kind="tool")
    def find(order: int, city: str = "Oslo") -> str:
        return city

    with Collector().trace(QUESTION):
        for number in range(STEPS):
            find(number)


def hooked_runs() -> None:
    class Agent:
        def run(self, question: str) -> str:
            return question

    agent = Agent()
    hook_into_agent(agent, Collector())
    for _ in range(STEPS):
        agent.run(QUESTION)


def hooked_coroutines() -> None:
    class Agent:
        async def run(self, question: str) -> str:
            return question

    async def all_of_them() -> None:
        agent = Agent()
        hook_into_agent(agent, Collector())
        for _ in range(STEPS):
            await agent.run(QUESTION)

    asyncio.run(all_of_them())


def chat(number: int, size: int) -> tuple[bytes, bytes]:
    words = ("Where is order " + str(number) + "? ") * (size // 40)
    request = {
        "model": "gpt-4o-mini",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": words}],
    }
    answer = {
        "id": f"chatcmpl-{number}",
        "model": "gpt-4o-mini",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": words}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 200, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 0}},
    }
    return json.dumps(request).encode(), json.dumps(answer).encode()


def exchange(number: int, request: bytes, response: bytes) -> Exchange:
    return Exchange(
        id=f"x{number}",
        dialect=Dialect.CHAT,
        request=request,
        response=response,
        status=200,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        seconds=1.0,
        base_url="https://api.openai.com/v1",
    )


def joining() -> tuple[float, float]:
    """Microseconds to make a trace of an exchange of 2 kB, and to parse its bodies."""
    bodies = [chat(number, 2048) for number in range(STEPS)]
    given = [exchange(number, *each) for number, each in enumerate(bodies)]

    def join() -> None:
        joiner = ConversationAssembler(
            price=lambda url, model, usage: cost(url, model, usage.input, usage.output, usage.cached)
        )
        for each in given:
            joiner.join(each)

    def parse() -> None:
        for request, response in bodies:
            json.loads(request), json.loads(response)

    return best(join, STEPS), best(parse, STEPS)


def long_conversation(turns: int) -> float:
    """Microseconds for an exchange at the end of a conversation of so many turns."""
    messages: list[dict[str, str]] = []
    given = []
    for number in range(turns):
        messages.append({"role": "user", "content": f"{number} {QUESTION}"})
        reply = {"role": "assistant", "content": f"{number} {QUESTION}"}
        answer = {"id": f"c{number}", "model": "small", "choices": [{"index": 0, "message": reply, "finish_reason": "stop"}]}
        body = json.dumps({"model": "small", "messages": messages}).encode()
        given.append(exchange(number, body, json.dumps(answer).encode()))
        messages.append(reply)

    def join() -> float:
        joiner = ConversationAssembler(price=lambda url, model, usage: None)
        for each in given[:-20]:
            joiner.join(each)
        begin = time.process_time()
        traces = {joiner.join(each).id for each in given[-20:]}
        assert len(traces) == 1
        return (time.process_time() - begin) / 20 * 1e6

    return min(join() for _ in range(ROUNDS))


def measured() -> dict[str, float]:
    kinds = (log_lines, model_calls, tool_spans, traced_calls, hooked_runs, hooked_coroutines)
    found = {kind.__name__: best(kind, STEPS) for kind in kinds}
    found["exchange"], found["parsing"] = joining()
    found["exchange at 200 turns"] = long_conversation(200)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    found = measured()
    if parser.parse_args().json:
        print(json.dumps({name: round(value, 2) for name, value in found.items()}))
    else:
        for name, value in found.items():
            print(f"{name.replace('_', ' '):24} {value:8.1f} µs")
    slow = [name for name in ("model_calls", "tool_spans", "traced_calls") if found[name] > STEP_LIMIT]
    if slow or found["exchange"] > EXCHANGE_LIMIT * found["parsing"]:
        raise SystemExit(f"too slow: {', '.join(slow) or 'exchange'}")


if __name__ == "__main__":
    main()
