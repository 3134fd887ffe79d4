"""What goes over the wire. Text becomes values here, on both sides; all faults of a request are named at once.

Bytes (files, stdin) are a string where they are UTF-8, and `{"base64": "…"}` where they are not.
"""

import base64
import binascii
from dataclasses import asdict, fields, replace
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar

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

from journeyman.sandbox.base import LANGUAGES, Level, Limits, Program, RunOutcome

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
    return asdict(replace(program, files={})) | {
        "files": {path: packed(content) for path, content in program.files.items()},
        "stdin": packed(program.stdin),
        "limits": limits_json(program.limits),
    }
