"""The gate of the code service, in every order of coming, waiting, leaving and stopping."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.sandbox.service.state import AdmissionQueue, RunRejected, ServiceConfig
from tests.support.examples import examples

pytestmark = pytest.mark.service

CONCURRENCY, QUEUE, SHARE = 2, 3, 4

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.sampled_from("abc")),
        st.tuples(st.sampled_from(["finish", "leave"]), st.integers(0, 9)),
        st.tuples(st.just("drain"), st.just(0)),
    ),
    max_size=40,
)


@dataclass(slots=True)
class Visits:
    """What visitors met with."""

    gate: AdmissionQueue
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    ends: dict[int, asyncio.Event] = field(default_factory=dict)
    turns: list[int] = field(default_factory=list)
    """In the order in which they began."""
    at_work: int = 0
    refused: list[RunRejected] = field(default_factory=list)

    async def visit(self, number: int, client: str) -> None:
        try:
            with self.gate.admitted(client):
                async with self.gate.turn():
                    self.at_work += 1
                    assert self.at_work <= CONCURRENCY
                    self.turns.append(number)
                    try:
                        await self.ends[number].wait()
                    finally:
                        self.at_work -= 1
        except RunRejected as refused:
            self.refused.append(refused)

    async def take(self, step: str, which: int | str) -> None:
        if step == "come":
            number = len(self.tasks)
            self.ends[number] = asyncio.Event()
            self.tasks.append(asyncio.create_task(self.visit(number, str(which))))
        elif step == "drain":
            self.gate.drain()
        elif self.tasks:
            number = int(which) % len(self.tasks)
            if step == "finish":
                self.ends[number].set()
            else:
                self.tasks[number].cancel()
        await asyncio.sleep(0)


@given(STEPS, st.booleans())
@examples(5)
def test_nobody_is_lost_and_nobody_is_counted_twice(steps: list[tuple[str, int | str]], patient: bool) -> None:
    async def play() -> None:
        config = ServiceConfig(concurrency=CONCURRENCY, queue=QUEUE, per_client=SHARE)
        gate = AdmissionQueue(config, lambda: 1.0)
        visits = Visits(gate)
        for step, which in steps:
            await visits.take(step, which)
            for _ in range(5 if patient else 0):
                await asyncio.sleep(0)
            assert gate.running <= CONCURRENCY
            assert gate.waiting <= QUEUE
            assert not gate.waiting or gate.running == CONCURRENCY
        for end in visits.ends.values():
            end.set()
        await asyncio.wait_for(asyncio.gather(*visits.tasks, return_exceptions=True), 5)
        assert (gate.running, gate.waiting, gate.empty) == (0, 0, True)
        assert all(refused.status in (429, 503) and 1 <= (refused.retry_after or 0) <= 30 for refused in visits.refused)
        assert visits.turns == sorted(visits.turns)

    asyncio.run(play())
