"""Who does subtasks: each kind of worker gives its output, notes its calls, and names what went wrong."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from journeyman import sandbox
from journeyman.agents.answer import Answer
from journeyman.agents.orchestrator import Orchestrator
from journeyman.agents.subtask import PlanLimits as LimitsOfAll
from journeyman.agents.workers import ByAgent, ByCode, ByFunction, ByHttp, ByModel, SubtaskJob, UnreadableAnswer, WorkerFailed
from journeyman.core.errors import InputError, ModelBusy, ModelError
from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.core.trace import ModelCall, Step, ToolCall
from journeyman.models.base import PromptMessage, Reply
from journeyman.models.scripted import Scripted
from journeyman.sandbox.base import Limits

READ = Subtask(id="read", text="read the report")
CARD = Card(name="tool", kind="tool", call_price=0.25)


def job(inputs: dict[str, Any] | None = None, **arguments: Any) -> SubtaskJob:
    own = Subtask(id="sum", text="summarise it", after=("read",), arguments=arguments)
    plan = Plan(instruction="tell me of the report", subtasks=(READ, own))
    return SubtaskJob(plan=plan, subtask=own, inputs={"read": "the report"} if inputs is None else inputs)


async def test_a_model_is_told_the_whole_the_earlier_results_and_its_step() -> None:
    model = Scripted("short")
    noted: list[Step] = []
    assert await ByModel(model=model, card=Card(name="m")).do(job(), noted.append) == "short"
    said = model.requests[0].messages[1].content
    assert [
        part in said for part in ("tell me of the report", "read (read the report):\nthe report", "Your step:\nsummarise it")
    ] == [True] * 3
    assert [(type(step), step.reply) for step in noted if isinstance(step, ModelCall)] == [(ModelCall, "short")]


async def test_a_model_can_be_asked_in_words_of_ones_own() -> None:
    model = Scripted("x")
    worker = ByModel(
        model=model, card=Card(name="m"), prompt=lambda job: (PromptMessage("user", job.subtask.text),), max_tokens=7
    )
    await worker.do(job(), lambda _: None)
    assert (model.requests[0].messages, model.requests[0].max_tokens) == ((PromptMessage("user", "summarise it"),), 7)


@pytest.mark.parametrize(("error", "cost"), [(ModelBusy("later"), 0.0), (ModelError("torn"), None)])
async def test_a_call_without_an_answer_is_noted_too(error: ModelError, cost: float | None) -> None:
    noted: list[Step] = []
    with pytest.raises(type(error)):
        await ByModel(model=Scripted(error), card=Card(name="m")).do(job(), noted.append)
    (call,) = noted
    assert isinstance(call, ModelCall)
    assert (call.cost, call.reply, str(error) in (call.error or "")) == (cost, "", True)


async def test_an_estimate_is_more_than_a_call_costs_and_unknown_without_a_price() -> None:
    card = Card(name="m", input_price=2.0, output_price=10.0)
    worker = ByModel(model=Scripted(), card=card, max_tokens=100)
    estimate = worker.estimate(job({"read": "word " * 1000}))
    assert estimate is not None
    # 1,000 words are about 1,000 tokens.
    assert card.price(1000, 100) < estimate < 3 * (card.price(1000, 100) or 0.0)  # type: ignore[operator]
    assert ByModel(model=Scripted(), card=Card(name="m")).estimate(job()) is None


async def test_an_agent_works_until_its_last_word() -> None:
    noted: list[Step] = []
    agent = Answer(model=Scripted(Reply(text="done", model="m", cost=0.5)))
    assert await ByAgent(agent=agent, card=Card(name="a")).do(job(), noted.append) == "done"
    assert [step.cost for step in noted if isinstance(step, ModelCall)] == [0.5]


async def test_a_function_gets_its_arguments_and_what_it_has_a_parameter_for() -> None:
    def plain(text: str, inputs: dict[str, str], n: int, source: str) -> list[Any]:
        return [text, inputs, n, source]

    async def other(n: int) -> dict[str, int]:
        return {"n": n}

    noted: list[Step] = []
    given = job(n=2, source="<read>")
    assert await ByFunction(call=plain, card=CARD).do(given, noted.append) == [
        "summarise it",
        {"read": "the report"},
        2,
        "the report",
    ]
    assert await ByFunction(call=other, card=CARD).do(job(n=3), noted.append) == {"n": 3}
    assert [(step.ok, step.cost, json.loads(step.arguments)["n"]) for step in noted if isinstance(step, ToolCall)] == [
        (True, 0.25, 2),
        (True, 0.25, 3),
    ]


async def test_a_function_that_is_not_async_keeps_nobody_waiting() -> None:
    import threading

    release = threading.Event()

    def waits() -> str:
        return "met" if release.wait(10) else "alone"

    running = asyncio.create_task(ByFunction(call=waits, card=CARD).do(job(), lambda _: None))
    await asyncio.sleep(0)
    release.set()
    assert await running == "met"


async def test_a_function_that_fails_or_gives_no_json_says_so() -> None:
    def fails() -> None:
        raise ConnectionResetError("gone")

    noted: list[Step] = []
    with pytest.raises(WorkerFailed, match="tool: ConnectionResetError: gone") as failed:
        await ByFunction(call=fails, card=CARD).do(job(), noted.append)
    assert failed.value.again
    with pytest.raises(UnreadableAnswer, match="no JSON"):
        await ByFunction(call=lambda: {1, 2}, card=CARD).do(job(), noted.append)
    assert [step.ok for step in noted if isinstance(step, ToolCall)] == [False, False]


async def test_an_argument_takes_the_output_of_a_subtask_also_deep_inside() -> None:
    given = job({"read": {"rows": 3}}, a={"b": ["<read>", "<other>"]}, c="see <read>")
    assert given.arguments == {"a": {"b": [{"rows": 3}, "<other>"]}, "c": "see <read>"}


@pytest.fixture
async def walls() -> AsyncIterator[sandbox.base.Sandbox]:
    opened = sandbox.load("unsafe-local")
    yield opened
    await opened.close()


@pytest.mark.service
async def test_a_program_reads_its_inputs_and_prints_its_output(walls: sandbox.base.Sandbox) -> None:
    noted: list[Step] = []
    says = "print(json.dumps([given['inputs']['read'].upper(), given['arguments']['n']]))"
    code = f"import json, sys\ngiven = json.load(sys.stdin)\n{says}"
    worker = ByCode(sandbox=walls, card=CARD, code=code)
    assert await worker.do(job(n=2), noted.append) == ["THE REPORT", 2]
    assert await ByCode(sandbox=walls, card=CARD, code="print('só')").do(job(), noted.append) == "só"
    written = ByCode(sandbox=walls, card=CARD, code=lambda job: str(job.inputs["read"]))
    assert await written.do(job({"read": "print(6 * 7)"}), noted.append) == 42
    assert all(step.ok for step in noted if isinstance(step, ToolCall))


@pytest.mark.service
@pytest.mark.parametrize(
    ("code", "said"), [("1 / 0", "ended with 1: .*ZeroDivisionError"), ("while True: pass", "hit its limit of (wall|cpu)")]
)
async def test_a_program_that_fails_says_how_it_ended(walls: sandbox.base.Sandbox, code: str, said: str) -> None:
    worker = ByCode(sandbox=walls, card=CARD, code=code, limits=Limits(wall_seconds=1.0, cpu_seconds=1.0))
    noted: list[Step] = []
    with pytest.raises(WorkerFailed, match=f"(?s){said}"):
        await worker.do(job(), noted.append)
    assert [step.ok for step in noted if isinstance(step, ToolCall)] == [False]


class Api:
    """A server on the loopback that answers what it is told, and remembers what it was asked."""

    def __init__(self, status: int, body: bytes, headers: str = "content-type: application/json\r\n") -> None:
        self.status, self.body, self.headers = status, body, headers
        self.asked: list[tuple[str, str, bytes]] = []
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *rest = head.decode().splitlines()
        told = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        body = await reader.readexactly(int(told.get("content-length", "0")))
        self.asked.append((first, told.get("authorization", ""), body))
        length = f"content-length: {len(self.body)}\r\nconnection: close\r\n"
        writer.write(f"HTTP/1.1 {self.status} X\r\n{length}{self.headers}\r\n".encode() + self.body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def served(api: Api) -> AsyncIterator[Api]:
    server = await asyncio.start_server(api.answer, "127.0.0.1", 0)
    api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield api


async def test_an_api_is_sent_the_arguments_and_its_json_is_the_output() -> None:
    noted: list[Step] = []
    async with served(Api(200, b'{"sum": 5}')) as api:
        worker = ByHttp(api.url + "/v1/add", card=CARD, headers={"authorization": "Bearer sk-secret"})
        assert await worker.do(job(a=2, b=3), noted.append) == {"sum": 5}
        await worker.close()
    first, key, body = api.asked[0]
    assert (first, key, json.loads(body)) == ("POST /v1/add HTTP/1.1", "Bearer sk-secret", {"a": 2, "b": 3})
    assert "sk-secret" not in repr(noted)


async def test_what_stands_in_the_path_and_query_is_quoted() -> None:
    async with served(Api(200, b"fine", headers="")) as api:
        worker = ByHttp(api.url + "/city/{name}?v=1", card=CARD, method="GET")
        assert await worker.do(job(name="a/b?c", day="5 March"), lambda _: None) == "fine"
        await worker.close()
    assert api.asked[0][0] == "GET /city/a%2Fb%3Fc?v=1&day=5+March HTTP/1.1"


@pytest.mark.parametrize("name", [".", ".."])
async def test_an_argument_never_leads_out_of_the_path_that_was_written(name: str) -> None:
    noted: list[Step] = []
    async with served(Api(200, b"fine", headers="")) as api:
        worker = ByHttp(api.url + "/city/{name}/mayor", card=CARD, method="DELETE")
        with pytest.raises(WorkerFailed, match="leads elsewhere in a path") as failed:
            await worker.do(job(name=name), noted.append)
        await worker.close()
    assert (api.asked, failed.value.refused, failed.value.again) == ([], True, False)
    assert [step.cost for step in noted if isinstance(step, ToolCall)] == [0.0]


@pytest.mark.parametrize(
    ("status", "method", "again", "wait"),
    [(429, "POST", True, 7.0), (500, "POST", False, 7.0), (500, "GET", True, 7.0), (404, "GET", False, 7.0)],
)
async def test_an_api_that_says_no_is_asked_again_only_where_that_is_safe(
    status: int, method: Any, again: bool, wait: float
) -> None:
    noted: list[Step] = []
    async with served(Api(status, b"so sorry", headers="retry-after: 7\r\n")) as api:
        worker = ByHttp(api.url, card=CARD, method=method)
        with pytest.raises(WorkerFailed, match=f"tool answered {status}: so sorry") as failed:
            await worker.do(job(), noted.append)
        await worker.close()
    assert (failed.value.again, failed.value.retry_after) == (again, wait)
    assert [step.error for step in noted if isinstance(step, ToolCall)] == [f"tool answered {status}: so sorry"]


async def test_an_api_that_is_busy_at_first_costs_a_plan_nothing_but_time() -> None:
    class Busy(Api):
        async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.status = 503 if len(self.asked) < 2 else 200
            await super().answer(reader, writer)

    async with served(Busy(200, b'{"sum": 5}')) as api:
        worker = ByHttp(api.url, card=CARD)
        limits = LimitsOfAll(retries=2, first_wait=0.01)
        one = Plan(instruction="add", subtasks=(Subtask(id="add", text="add", worker="api", arguments={"a": 2, "b": 3}),))
        result = await Orchestrator(crew={"api": worker}, limits=limits).run(one)
        await worker.close()
    assert (result.answer, len(api.asked), len(result.results["add"].tries)) == ({"sum": 5}, 3, 3)
    assert [json.loads(body) for _, _, body in api.asked] == [{"a": 2, "b": 3}] * 3
    assert result.total_cost == 0.25


async def test_json_that_is_none_and_a_server_that_is_not_there_are_two_things() -> None:
    async with served(Api(200, b"{")) as api:
        worker = ByHttp(api.url, card=CARD)
        with pytest.raises(UnreadableAnswer, match="says it answers JSON, and does not"):
            await worker.do(job(), lambda _: None)
        await worker.close()
    with pytest.raises(WorkerFailed, match="could not be reached") as failed:
        await ByHttp(api.url, card=CARD).do(job(), lambda _: None)
    assert failed.value.again


async def test_an_answer_without_an_end_is_refused() -> None:
    async with served(Api(200, b"x" * (4 * 2**20 + 1), headers="")) as api:
        with pytest.raises(UnreadableAnswer, match="longer than 4 MB"):
            await ByHttp(api.url, card=CARD).do(job(), lambda _: None)


@pytest.mark.parametrize("url", ["ftp://x", "api.example/x", "http://{host}/"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="no address of an API"):
        ByHttp(url, card=CARD)
