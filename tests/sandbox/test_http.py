"""The client of the code service: it gives an outcome or one sentence, and never hangs."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from journeyman import sandbox
from journeyman.core.errors import InputError, JourneymanError, SandboxError
from journeyman.sandbox.base import Limits, Program
from journeyman.sandbox.remote import HttpSandbox
from tests.support.code_service import Running, eventually, in_thread

pytestmark = pytest.mark.service

TOKEN = "a-token-of-the-first-one"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with in_thread(most=Limits(wall_seconds=30.0), max_request=200_000) as running:
        yield running


@pytest.fixture
async def client(running: Running) -> AsyncIterator[HttpSandbox]:
    client = HttpSandbox(running.url)
    yield client
    await client.close()


@asynccontextmanager
async def answering(*answers: bytes, then_wait: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that says these bytes, one of them to each request, and hangs up; what it was asked is kept."""
    asked: list[bytes] = []
    left = list(answers)
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        size = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0)
        asked.append(head + await reader.readexactly(size))
        writer.write(left.pop(0) if left else b"")
        await writer.drain()
        if then_wait:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def said(status: str, body: str, **headers: str) -> bytes:
    lines = {"content_length": str(len(body.encode())), "connection": "close", **headers}
    head = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in lines.items())]
    return "\r\n".join([*head, "", body]).encode()


GOOD = said("200 OK", '{"level": {"name": "x"}, "exit_code": 0, "stdout": "hi", "stderr": "", "files": {}, "new": 1}')
BUSY = said("503 Service Unavailable", '{"error": "full"}', retry_after="0")


async def test_a_program_with_bytes_of_any_kind_goes_there_and_back(client: HttpSandbox) -> None:
    blob = bytes(range(256))
    code = "import sys\nopen('out', 'wb').write(open('in', 'rb').read() + sys.stdin.buffer.read())\nprint(sys.argv[1])"
    program = Program(code=code, files={"in": blob}, stdin=b"\xff", arguments=("né",), collect=("o*",))
    outcome = await client.run(program)
    assert outcome.ok
    assert outcome.stdout == "né\n"
    assert outcome.files == {"out": blob + b"\xff"}
    assert outcome.level == client.level


async def test_tools_are_called_side_by_side_and_what_they_raise_is_raised_there(client: HttpSandbox) -> None:
    async def slow(arguments: Mapping[str, Any]) -> Any:
        await asyncio.sleep(0.3)
        return arguments["0"]

    async def bad(arguments: Mapping[str, Any]) -> Any:
        raise KeyError("nothing")

    async def odd(arguments: Mapping[str, Any]) -> Any:
        return object()

    async def large(arguments: Mapping[str, Any]) -> Any:
        return "#" * 300_000

    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "print(sorted(ThreadPoolExecutor(8).map(tools.slow, range(8))))\n"
        "for tool in (tools.bad, tools.odd, tools.large):\n"
        "    try: tool()\n"
        "    except ToolError as error: print(error)\n"
    ).replace("ToolError", "Exception")
    began = time.monotonic()
    outcome = await client.run(Program(code=code), tools={"slow": slow, "bad": bad, "odd": odd, "large": large})
    lines = outcome.stdout.splitlines()
    assert lines[0] == str(list(range(8)))
    assert time.monotonic() - began < 8 * 0.3 + 5
    assert lines[1] == "'nothing'"
    assert "not JSON serializable" in lines[2]
    assert "larger than 200000 bytes" in lines[3]


async def test_tools_that_are_not_done_when_the_code_ends_are_cancelled(client: HttpSandbox) -> None:
    ended = asyncio.Event()

    async def endless(arguments: Mapping[str, Any]) -> Any:
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    outcome = await client.run(Program(code="tools.endless()", limits=Limits(wall_seconds=0.5)), tools={"endless": endless})
    assert outcome.limit == "wall"
    assert ended.is_set()


async def test_a_session_lives_there_and_is_over_when_it_was_closed(client: HttpSandbox) -> None:
    session = await client.session(files={"a.txt": b"\xff"}, limits=Limits(wall_seconds=5.0))
    assert (await session.run("x = open('a.txt', 'rb').read(); x")).stdout == "b'\\xff'\n"
    first, second = await asyncio.gather(session.run("y = 1; y"), session.run("2"))
    assert (first.stdout, second.stdout) == ("1\n", "2\n")
    assert (await session.run("while True: pass", wall_seconds=0.3)).limit == "wall"
    with pytest.raises(SandboxError, match="limit of wall"):
        await session.run("x")
    await session.close()
    await session.close()
    with pytest.raises(SandboxError, match="over"):
        await session.run("x")


async def test_what_the_service_cannot_use_is_bad_input(client: HttpSandbox) -> None:
    with pytest.raises(InputError, match=r"language is 'ruby'; there are .*wall_seconds should be at most 30"):
        await client.run(Program(language="ruby", limits=Limits(wall_seconds=31.0)))
    with pytest.raises(InputError, match="larger than"):
        await client.run(Program(code="#" * 300_000))


async def test_a_service_that_is_down_is_said_with_what_starts_it() -> None:
    client = HttpSandbox("http://127.0.0.1:9")
    with pytest.raises(
        SandboxError, match=r"^no code service answers at http://127.0.0.1:9: .* journeyman sandbox serve --port 9$"
    ):
        await client.run(Program(code="1"))
    with pytest.raises(SandboxError, match="no code service"):
        await client.start()
    with pytest.raises(SandboxError, match="no code service"):
        await client.session()
    with pytest.raises(SandboxError):
        _ = client.level
    await client.close()


async def test_a_busy_service_is_asked_again_when_it_says() -> None:
    async with answering(BUSY, said("429 Too Many", "{}", retry_after="soon"), GOOD) as (url, asked):
        client = HttpSandbox(url)
        assert (await client.run(Program(code="1"))).stdout == "hi"
        assert len(asked) == 3
        await client.close()


async def test_patience_ends() -> None:
    async with answering(said("503 Busy", '{"error": "the service is full"}', retry_after="3600")) as (url, asked):
        client = HttpSandbox(url)
        began = time.monotonic()
        with pytest.raises(SandboxError, match="the service is full"):
            await client.run(Program(code="1"))
        assert time.monotonic() - began < 10
        assert len(asked) == 1
        await client.close()


NONSENSE = {
    "hangs up": b"",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "no http": b"220 mail.example ESMTP\r\n",
    "half a body": GOOD[:-10],
    "a page": said("200 OK", "<html>"),
    "other JSON": said("200 OK", '{"hello": 1}'),
    "a list": said("200 OK", "[]"),
    "nothing": said("200 OK", ""),
    "a redirect": said("302 Found", "", location="http://127.0.0.1:9/"),
    "not found": said("404 Not Found", "<html>"),
    "broken": said("500 Oh", '{"error": null}'),
    "bad text": said("200 OK", "", content_encoding="gzip", content_length="3") + b"abc",
    "a stream that ends": said("200 OK", '{"execution": {"id": "a"}}\n'),
    "a stream of nonsense": said("200 OK", "7\nnull\n"),
    "a call before its execution": said("200 OK", '{"tool_call": {"id": "1", "name": "f", "arguments": {}}}\n'),
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("tools", [False, True], ids=["plain", "with tools"])
async def test_whatever_answers_it_ends_in_one_sentence(answer: bytes, tools: bool) -> None:
    async def f(arguments: Mapping[str, Any]) -> Any:
        return 1

    async with answering(answer) as (url, _):
        client = HttpSandbox(url)
        with pytest.raises(SandboxError, match=url):
            await client.run(Program(code="1"), tools={"f": f} if tools else None)
        with pytest.raises(SandboxError, match=url):
            await client.session()
        await client.close()


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"], ids=["says nothing", "stops in the middle"]
)
async def test_a_service_that_is_stuck_is_given_up(answer: bytes) -> None:
    async with answering(answer, then_wait=True) as (url, _):
        client = HttpSandbox(url, patience_seconds=0.1, slack_seconds=0.1)
        with pytest.raises(SandboxError, match="did not answer in time"):
            await client.run(Program(code="1", limits=Limits(wall_seconds=0.2)))
        await client.close()


async def test_a_run_that_is_cancelled_here_ends_there(running: Running, client: HttpSandbox) -> None:
    run = asyncio.create_task(client.run(Program(code="import time; time.sleep(25)")))
    assert await asyncio.to_thread(eventually, lambda: running.service.gate.running == 1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await asyncio.to_thread(eventually, lambda: running.service.gate.empty)


async def test_a_token_opens_and_is_in_no_message() -> None:
    with in_thread(tokens=(TOKEN,)) as running:
        right, wrong = HttpSandbox(running.url, token=TOKEN), HttpSandbox(running.url, token=TOKEN + "x")
        assert (await right.run(Program(code="print(1)"))).stdout == "1\n"
        with pytest.raises(SandboxError, match="bearer token") as refused:
            await wrong.run(Program(code="print(1)"))
        assert TOKEN not in f"{refused.value!r} {vars(refused.value)}"
        await right.close()
        await wrong.close()


def test_it_can_be_used_from_one_event_loop_after_another(running: Running) -> None:
    client = HttpSandbox(running.url)

    async def once() -> str:
        try:
            return (await client.run(Program(code="print(1)"))).stdout
        finally:
            await client.close()

    assert [asyncio.run(once()) for _ in range(2)] == ["1\n", "1\n"]


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8002", "ftp://x", "http://", "http://u:secret@x", "http://x?key=secret", "http://x:y"]
)
def test_a_url_that_is_none_is_said_at_once_and_not_repeated(url: str) -> None:
    with pytest.raises(JourneymanError) as refused:
        HttpSandbox(url)
    assert "secret" not in str(refused.value)


def test_a_url_names_a_sandbox(running: Running) -> None:
    assert isinstance(sandbox.load(running.url), HttpSandbox)


async def test_a_sandbox_that_is_named_by_its_url_has_its_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.BEARER, TOKEN)
    with in_thread(tokens=(TOKEN,)) as running:
        box = sandbox.load(running.url)
        assert (await box.run(Program(code="print(1)"))).stdout == "1\n"
        await box.close()
