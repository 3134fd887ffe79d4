"""A sandbox elsewhere: what goes over the wire to the code service, and its client."""

import asyncio
import base64
import binascii
import json
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, fields, replace
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from journeyman.core.errors import InputError, JourneymanError, SandboxError
from journeyman.io.http_client import Broken, Connections, HttpAnswer, Unreachable
from journeyman.io.retry import retry_after
from journeyman.sandbox.base import LANGUAGES, Level, Limits, Program, RunOutcome, Tool

# What goes over the wire. Text becomes values here, on both sides; all faults of a request are named at once.
#
# Bytes (files, stdin) are a string where they are UTF-8, and `{"base64": "…"}` where they are not.

SOLUTION = "solution.py"
"""The name under which a test imports the code."""


def packed(content: bytes) -> str | dict[str, str]:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _unpacked(content: Any) -> bytes:
    match content:
        case str():
            return content.encode()
        case {"base64": str(text)} if len(content) == 1:
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise ValueError(f"is not base64 ({error})") from None
    raise ValueError('should be text, or {"base64": "…"}')


def _relative(path: str) -> str:
    inside = PurePosixPath(path)
    if not inside.parts or inside.is_absolute() or ".." in inside.parts or "\0" in path or path.endswith("/"):
        raise ValueError("should be a path of a file within the working folder: a relative one without '..'")
    return path


def _known(language: str) -> str:
    if language not in LANGUAGES:
        raise ValueError(f"is {language!r}; there are {', '.join(sorted(LANGUAGES))}")
    return language


def _within(value: float | None, name: str, info: ValidationInfo) -> float | None:
    most = getattr(info.context, name)
    if value is not None and value > most:
        raise ValueError(f"should be at most {most:g} on this service")
    return value


Content = Annotated[bytes, BeforeValidator(_unpacked)]
Path = Annotated[str, AfterValidator(_relative)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AskedLimits(_Strict):
    """The limits that a caller names; the service decides the others."""

    cpu_seconds: Seconds | None = None
    wall_seconds: Seconds | None = None
    memory: Count | None = None
    processes: Count | None = None
    file_size: Count | None = None
    disk: Count | None = None
    inodes: Count | None = None
    open_files: Count | None = None
    output: Count | None = None

    @field_validator("*")
    @classmethod
    def _at_most(cls, value: float | None, info: ValidationInfo) -> float | None:
        return _within(value, str(info.field_name), info)

    def within(self, most: Limits) -> Limits:
        """What is not asked for is the default, or what the service allows where that is less."""
        usual = {field.name: min(getattr(Limits(), field.name), getattr(most, field.name)) for field in fields(Limits)}
        return Limits(**usual | self.model_dump(exclude_none=True))


class OfferedTool(_Strict):
    """What code may call as `tools.NAME(…)`."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
    description: str | None = None
    parameters: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    """A JSON schema, for the callers' own books: the service does not check arguments against it."""


class Calling(_Strict):
    """Code, and what it may call."""

    code: str
    tools: Annotated[tuple[OfferedTool, ...], Field(max_length=128)] = ()
    callback_url: str | None = None
    """Where tool calls are sent; without it they come back on the same exchange."""


class Execute(Calling):
    """The body of POST /execute."""

    language: Annotated[str, AfterValidator(_known)] = "python"
    files: dict[Path, Content] = Field(default_factory=dict)
    test: str | None = None
    """Pytest source, run with the code as `solution.py`."""
    stdin: Content = b""
    arguments: tuple[str, ...] = ()
    limits: AskedLimits = AskedLimits()
    collect: Annotated[tuple[Path, ...], Field(max_length=128)] = ()

    @field_validator("test")
    @classmethod
    def _goes_with(cls, test: str | None, info: ValidationInfo) -> str | None:
        if test is not None and info.data.get("language", "python") != "python":
            raise ValueError("goes with the language python only")
        if test is not None and SOLUTION in info.data.get("files", ()):
            raise ValueError(f"puts the code into {SOLUTION}, which files should not hold then")
        return test

    def program(self, most: Limits) -> Program:
        code, language, files = self.code, self.language, dict(self.files)
        if self.test is not None:
            files[SOLUTION] = self.code.encode()
            code, language = self.test, "pytest"
        return Program(
            code=code,
            language=language,
            files=files,
            stdin=self.stdin,
            arguments=self.arguments,
            limits=self.limits.within(most),
            collect=self.collect,
        )


class OpenSession(_Strict):
    """The body of POST /sessions."""

    limits: AskedLimits = AskedLimits()
    files: dict[Path, Content] = Field(default_factory=dict)
    idle_seconds: Seconds | None = None


class SessionExecute(Calling):
    """The body of POST /sessions/{id}/execute."""

    wall_seconds: Seconds | None = None

    @field_validator("wall_seconds")
    @classmethod
    def _at_most(cls, value: float | None, info: ValidationInfo) -> float | None:
        return _within(value, "wall_seconds", info)


class ToolResult(_Strict):
    """The body of POST /executions/{id}/tools/{call_id}, and the answer of a callback."""

    value: Any = None
    error: str | None = None
    """Raised in the code as a `ToolError`."""


class Faults(Exception):
    """A request that is not what it should be: a sentence for each fault."""

    def __init__(self, *faults: str) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


_Body = TypeVar("_Body", bound=BaseModel)


def read(kind: type[_Body], body: bytes, most: Limits) -> _Body:
    """A request, within the limits that a caller may ask for. Raises `Faults` with every fault."""
    try:
        return kind.model_validate_json(body or b"{}", context=most)
    except ValidationError as error:
        raise Faults(*(_sentence(fault["loc"], fault["msg"]) for fault in error.errors(include_url=False))) from None


def _sentence(place: tuple[int | str, ...], message: str) -> str:
    where = ".".join(str(part) for part in place if part != "[key]") or "the body"
    if message.startswith("Value error, "):
        return f"{where} {message.removeprefix('Value error, ')}"
    for theirs, ours in _WORDS.items():
        if message.startswith(theirs):
            return f"{where} {ours}{message.removeprefix(theirs)}"
    return f"{where} is wrong: {message}"


_WORDS = {
    "Field required": "is missing",
    "Extra inputs are not permitted": "is not a field of this request",
    "Input should": "should",
    "String should": "should",
    "Tuple should": "should",
    "Invalid JSON": "is not JSON",
}


class _Result(BaseModel):
    """An outcome as it arrives. What a newer service adds is ignored."""

    level: Level
    exit_code: int | None
    signal: str | None = None
    limit: Any = None
    stdout: str
    stderr: str
    files: dict[str, Content]
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    peak_memory: int | None = None


def outcome_json(outcome: RunOutcome) -> dict[str, Any]:
    """Every field of a `RunOutcome`, and `ok`."""
    files = {path: packed(content) for path, content in outcome.files.items()}
    return {"ok": outcome.ok, **asdict(replace(outcome, files={})), "files": files}


def outcome_of(data: Any) -> RunOutcome:
    """Raises `ValueError` where it is none."""
    return RunOutcome(**dict(_Result.model_validate(data)))


def level_json(level: Level) -> dict[str, Any]:
    return asdict(level)


def level_of(data: Any) -> Level:
    """Raises `ValueError` where it is none."""
    return _LEVEL.validate_python(data)


_LEVEL = TypeAdapter(Level)


def limits_json(limits: Limits) -> dict[str, Any]:
    """Only what differs from the defaults: the others are the service's to decide."""
    usual = asdict(Limits())
    return {name: value for name, value in asdict(limits).items() if value != usual[name]}


def program_json(program: Program) -> dict[str, Any]:
    """The body of POST /execute."""
    body = asdict(replace(program, files={})) | {
        "files": {path: packed(content) for path, content in program.files.items()},
        "stdin": packed(program.stdin),
        "limits": limits_json(program.limits),
    }
    # The service has its own ways to be quick.
    del body["warm"]
    return body


class HttpSandbox:
    """Runs code in a service that `journeyman sandbox serve` started. Many runs may be under way at once.

    What is refused because the service is busy is asked again, as the service asks for; everything has an end.
    """

    def __init__(
        self, url: str, *, token: str | None = None, patience_seconds: float = 60.0, slack_seconds: float = 90.0
    ) -> None:
        """
        Args:
            url: Such as http://127.0.0.1:8002.
            token: The service's bearer token, where it needs one.
            patience_seconds: How long a busy service (503, 429) is asked again.
            slack_seconds: What an answer may take beyond the wall limit of the code: its wait for a turn, and the way.

        Raises:
            InputError: The URL is none.
        """
        self._url = _checked(url)
        self._connections = Connections(self._url, {"authorization": f"Bearer {token}"} if token else {})
        self._patience = patience_seconds
        self._slack = slack_seconds
        self._level: Level | None = None

    @property
    def level(self) -> Level:
        """What the service said of its walls.

        Raises:
            SandboxError: It was not asked yet.
        """
        if self._level is None:
            raise SandboxError(f"the level of {self._url} is known once something was run")
        return self._level

    async def start(self) -> None:
        """Ask the service for its level."""
        answer = await self._send("GET", "/health")
        with self._understood():
            self._level = level_of(answer["level"])

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
        return await self._execute("/execute", program_json(program), tools, program.limits.wall_seconds)

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> "HttpSession":
        body = {
            "limits": limits_json(limits or Limits()),
            "files": {path: packed(content) for path, content in (files or {}).items()},
            "idle_seconds": idle_seconds,
        }
        answer = await self._send("POST", "/sessions", body)
        with self._understood():
            self._level = level_of(answer["level"])
            return HttpSession(self, str(answer["id"]), (limits or Limits()).wall_seconds)

    async def close(self) -> None:
        await self._connections.close()

    async def _execute(
        self, path: str, body: dict[str, Any], tools: Mapping[str, Tool] | None, wall_seconds: float
    ) -> RunOutcome:
        seconds = wall_seconds + self._slack
        if tools:
            outcome = await self._exchange(path, {**body, "tools": [{"name": name} for name in tools]}, tools, seconds)
        else:
            answer = await self._send("POST", path, body, seconds)
            with self._understood():
                outcome = outcome_of(answer)
        self._level = outcome.level
        return outcome

    async def _exchange(self, path: str, body: dict[str, Any], tools: Mapping[str, Tool], seconds: float) -> RunOutcome:
        """Tool calls come on the lines of the answer, and each value goes back in a request of its own."""
        settling: set[asyncio.Task[None]] = set()
        answers = outcome = None
        try:
            async with self._response("POST", path, body, seconds) as answer:
                with self._understood():
                    async for event in _events(answer):
                        match event:
                            case {"execution": {"id": str(id)}}:
                                answers = f"/executions/{id}/tools"
                            case {"tool_call": call} if answers:
                                settling.add(asyncio.create_task(self._settle(f"{answers}/{call['id']}", call, tools)))
                            case {"outcome": ended}:
                                outcome = outcome_of(ended)
                            case {"error": sentence}:
                                raise SandboxError(sentence)
            if outcome is None:
                raise SandboxError(f"{self._url} hung up before the code had ended")
            return outcome
        finally:
            for task in settling:
                task.cancel()
            await asyncio.gather(*settling, return_exceptions=True)

    async def _settle(self, path: str, call: dict[str, Any], tools: Mapping[str, Tool]) -> None:
        try:
            answer = {"value": await tools[call["name"]](call["arguments"])}
            json.dumps(answer, allow_nan=False)
        except Exception as error:  # noqa: BLE001 - a tool is a plug-in, and its failure is the code's to handle
            answer = {"error": str(error) or type(error).__name__}
        try:
            await self._send("POST", path, answer)
        except JourneymanError as error:
            # Where nobody waits any more (404) this changes nothing; a value that is too large is told the code.
            with suppress(JourneymanError):
                await self._send("POST", path, {"error": str(error)})

    async def _send(self, method: str, path: str, body: Any = None, seconds: float | None = None) -> Any:
        """The JSON of a good answer, and `None` of an empty one."""
        async with self._response(method, path, body, seconds or self._slack) as answer:
            with self._understood():
                content = await answer.read()
                return json.loads(content) if content else None

    @asynccontextmanager
    async def _response(self, method: str, path: str, body: Any, seconds: float) -> AsyncIterator[HttpAnswer]:
        """A good answer, still to be read.

        Raises:
            InputError: The service cannot use the request (422, 413).
            SandboxError: Everything else that keeps the answer away, also while it is read in the block.
        """
        content = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + self._patience
        try:
            async with asyncio.timeout(self._patience + seconds):
                while True:
                    async with self._connections.asked(method, path, content) as answer:
                        if 200 <= answer.status < 300:
                            yield answer
                            return
                        refusal = self._refusal(answer.status, await answer.read())
                    wait = _wait(answer)
                    if wait is None or time.monotonic() + wait > until:
                        raise refusal
                    await asyncio.sleep(wait)
        except Unreachable as error:
            raise SandboxError(self._down()) from error
        except TimeoutError as error:
            raise SandboxError(f"{self._url} did not answer in time ({seconds:g} s)") from error
        except Broken as error:
            raise SandboxError(f"the connection to {self._url} broke ({error}): is the service still there?") from error

    def _refusal(self, status: int, body: bytes) -> JourneymanError:
        try:
            sentence = str(json.loads(body)["error"])
        except (ValueError, KeyError, TypeError):
            return SandboxError(f"{self._url} answered {status}: is it a code service?")
        kind = InputError if status in (413, 422) else SandboxError
        return kind(f"{self._url}: {sentence}")

    def _down(self) -> str:
        port = urlsplit(self._url).port
        return f"no code service answers at {self._url}: start one with journeyman sandbox serve --port {port or 8002}"

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, KeyError, TypeError) as error:
            raise SandboxError(f"{self._url} answered what no code service says: is it one?") from error


class HttpSession:
    """A session in the service. Calls of one session take turns."""

    def __init__(self, sandbox: HttpSandbox, id: str, wall_seconds: float) -> None:
        self._sandbox = sandbox
        self._path = f"/sessions/{id}"
        self._wall_seconds = wall_seconds
        self._turn = asyncio.Lock()
        self._over = False

    async def run(self, code: str, *, tools: Mapping[str, Tool] | None = None, wall_seconds: float | None = None) -> RunOutcome:
        async with self._turn:
            if self._over:
                raise SandboxError("the session is over: it was closed; open a new one")
            body = {"code": code} if wall_seconds is None else {"code": code, "wall_seconds": wall_seconds}
            return await self._sandbox._execute(f"{self._path}/execute", body, tools, wall_seconds or self._wall_seconds)

    async def close(self) -> None:
        if not self._over:
            self._over = True
            # A session that is over already is as it should be; one that cannot be reached ends by itself when it idles.
            with suppress(SandboxError):
                await self._sandbox._send("DELETE", self._path)


async def _events(answer: HttpAnswer) -> AsyncIterator[Any]:
    async for line in answer.lines():
        yield json.loads(line)


def _wait(answer: HttpAnswer) -> float | None:
    """Seconds after which to ask again; `None` when that would not help. Varied, so that not all come at once."""
    if answer.status not in (429, 503):
        return None
    wanted = retry_after(answer.headers)
    return (1.0 if wanted is None else wanted) * random.uniform(0.75, 1.25)


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.username is not None or parts.query or parts.fragment:
        raise InputError("the URL of a code service should be like http://127.0.0.1:8002, without a user name or a query")
    return url.rstrip("/")
