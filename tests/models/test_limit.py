import asyncio
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import ModelBusy, ModelError
from journeyman.io.retry import RetryPolicy
from journeyman.models import connect
from journeyman.models.base import Limited, ModelRequest, ModelUsage, PromptMessage, Reply
from journeyman.models.openai import OpenAI
from journeyman.models.scripted import Scripted
from tests.support.llm_server import LLMServer, completion, error

HI = ModelRequest(messages=(PromptMessage("user", "hi"),))


class Crowd:
    """A model that takes a moment, and knows how many asked it at once."""

    name = "crowd"
    dialect = "full"
    deterministic = True

    def __init__(self, say: Callable[[int], str | Exception] = lambda number: "ok") -> None:
        self.say, self.calls, self.together, self.most = say, 0, 0, 0
        self.order: list[str] = []

    async def complete(self, request: ModelRequest) -> Reply:
        self.calls += 1
        number = self.calls
        self.order.append(request.task_id)
        self.together += 1
        self.most = max(self.most, self.together)
        try:
            await asyncio.sleep(0.001)
        finally:
            self.together -= 1
        line = self.say(number)
        if isinstance(line, Exception):
            raise line
        return Reply(text=line, model="crowd")

    async def close(self) -> None:
        """Nothing."""


def patient(model: Crowd | Scripted, slept: list[float], concurrency: int = 10, **patience: float) -> Limited:
    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    return Limited(
        model,  # type: ignore[arg-type]
        concurrency,
        patience=RetryPolicy(**patience),  # type: ignore[arg-type]
        rng=random.Random(0),
        sleep=sleep,
    )


async def test_no_more_run_together_than_allowed() -> None:
    crowd = Crowd()
    limited = patient(crowd, [], 3)
    await asyncio.gather(*(limited.complete(HI) for _ in range(50)))
    assert (crowd.calls, crowd.most) == (50, 3)


async def test_calls_start_in_the_order_they_were_made() -> None:
    crowd = Crowd()
    limited = patient(crowd, [], 2)
    names = [str(number) for number in range(20)]
    await asyncio.gather(*(limited.complete(ModelRequest(messages=HI.messages, task_id=name)) for name in names))
    assert crowd.order == names


async def test_a_busy_server_is_asked_again_after_a_growing_wait() -> None:
    slept: list[float] = []
    limited = patient(Scripted(ModelBusy("a"), ModelBusy("b"), ModelBusy("c"), "at last"), slept, first_wait=1.0)
    assert (await limited.complete(HI)).text == "at last"
    assert [1 / 2 <= wait / 2**number <= 1 for number, wait in enumerate(slept)] == [True] * 3


async def test_a_server_that_names_a_time_gets_exactly_that() -> None:
    slept: list[float] = []
    limited = patient(Scripted(ModelBusy("a", retry_after=7.0), "ok"), slept)
    await limited.complete(HI)
    assert slept == [7.0]


async def test_while_the_server_asks_for_rest_nobody_else_starts() -> None:
    started: list[int] = []
    resting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        resting.set()
        before = crowd.calls
        await asyncio.sleep(0.02)
        started.append(crowd.calls - before)

    crowd = Crowd(lambda number: ModelBusy("busy", retry_after=5.0) if number == 1 else "ok")
    limited = Limited(crowd, 4, sleep=sleep)  # type: ignore[arg-type]
    first = asyncio.create_task(limited.complete(HI))
    await resting.wait()
    await asyncio.gather(first, *(limited.complete(HI) for _ in range(8)))
    assert started == [0]


async def test_a_wait_that_is_too_long_is_the_callers_to_decide() -> None:
    slept: list[float] = []
    limited = patient(Scripted(ModelBusy("quota", retry_after=3600.0)), slept)
    with pytest.raises(ModelBusy, match="quota"):
        await limited.complete(HI)
    assert slept == []


async def test_patience_ends() -> None:
    slept: list[float] = []
    limited = patient(Scripted(lambda _: ModelBusy("busy")), slept, retries=3)
    with pytest.raises(ModelBusy):
        await limited.complete(HI)
    assert len(slept) == 3
    assert limited.usage == ModelUsage(busy=4, failed=1)


async def test_other_errors_are_not_tried_again() -> None:
    scripted = Scripted(ModelError("empty answer"), "never said")
    limited = patient(scripted, [])
    with pytest.raises(ModelError):
        await limited.complete(HI)
    assert len(scripted.requests) == 1
    assert limited.usage == ModelUsage(failed=1)


async def test_one_burst_of_refusals_halves_once_and_calm_grows_back_by_one() -> None:
    crowd = Crowd(lambda number: ModelBusy("busy") if number <= 8 else "ok")
    limited = patient(crowd, [], 8)
    await asyncio.gather(*(limited.complete(HI) for _ in range(8)))
    assert limited.limit in {4, 5}
    for _ in range(100):
        await limited.complete(HI)
    assert limited.limit == 8


async def test_the_limit_never_falls_under_one() -> None:
    limited = patient(Scripted(lambda _: ModelBusy("busy")), [], 5)
    with pytest.raises(ModelBusy):
        await limited.complete(HI)
    assert limited.limit == 1


async def test_a_cancelled_call_leaves_its_place_to_others() -> None:
    crowd = Crowd()
    limited = patient(crowd, [], 1)
    tasks = [asyncio.create_task(limited.complete(HI)) for _ in range(6)]
    await asyncio.sleep(0)
    for task in tasks[:5]:
        task.cancel()
    assert (await tasks[5]).text == "ok"
    assert (await limited.complete(HI)).text == "ok"


def test_one_wrapper_serves_one_loop_after_another() -> None:
    limited = Limited(Crowd(), 2)  # type: ignore[arg-type]

    async def use() -> int:
        return len(await asyncio.gather(*(limited.complete(HI) for _ in range(7))))

    assert [asyncio.run(use()), asyncio.run(use())] == [7, 7]
    assert limited.usage.calls == 14


async def test_known_costs_are_summed_and_unknown_ones_counted() -> None:
    priced = Reply(text="a", model="m", input_tokens=10, output_tokens=2, cost=0.25)
    limited = patient(Scripted(priced, priced, "no counts"), [])
    for _ in range(3):
        await limited.complete(HI)
    assert limited.usage == ModelUsage(calls=3, input_tokens=20, output_tokens=4, uncounted=1, cost=0.5, unpriced=1)
    before = limited.usage
    assert limited.usage - before == ModelUsage()
    assert before + ModelUsage(calls=1) - before == ModelUsage(calls=1)


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=30),
)
def test_whatever_happens_every_call_ends_and_no_place_is_lost(concurrency: int, fates: list[tuple[bool, bool, bool]]) -> None:
    """Busy, busy with a time, or cancelled on the way: in the end all places are free again."""

    def say(number: int) -> str | Exception:
        busy, timed, _ = fates[number % len(fates)]
        return ModelBusy("busy", retry_after=0.5 if timed else None) if busy else "ok"

    async def run() -> None:
        limited = patient(crowd, [], concurrency, retries=4)
        tasks = [asyncio.create_task(limited.complete(HI)) for _ in fates]
        for task, (_, _, cancelled) in zip(tasks, fates, strict=True):
            await asyncio.sleep(0)
            if cancelled:
                task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        crowd.say = lambda number: "ok"
        crowd.most = 0
        await asyncio.wait_for(asyncio.gather(*(limited.complete(HI) for _ in range(60))), 10)
        assert crowd.most <= concurrency
        assert limited.limit == concurrency

    crowd = Crowd(say)
    asyncio.run(run())


async def test_over_http_a_rate_limit_lowers_the_number_of_calls(server: LLMServer) -> None:
    def limit_to_two(_: object) -> object:
        return error(429, "slow down", headers={"retry-after": "0.05"}) if server.together > 2 else completion()

    server.default = limit_to_two  # type: ignore[assignment]
    limited = Limited(OpenAI("m", base_url=server.url, max_retries=0), 8, patience=RetryPolicy(retries=20, first_wait=0.01))
    replies = await asyncio.gather(*(limited.complete(HI) for _ in range(20)))
    await limited.close()
    assert [reply.text for reply in replies] == ["hello"] * 20
    assert limited.usage.calls == 20


async def test_connect_leaves_the_waiting_to_one_place(server: LLMServer) -> None:
    server.answers.append(error(429, "slow down", headers={"retry-after": "0.01"}))
    limited = connect(f"openai:m@{server.url}", 3, patience=RetryPolicy(first_wait=0.01))
    assert (await limited.complete(HI)).text == "hello"
    await limited.close()
    assert limited.usage.busy == 1
    assert connect("scripted:yes").name == "scripted:yes"


def test_a_concurrency_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Limited(Scripted("a"), 0)
