"""`journeyman mcp`: what a project's commands say, as tools of a Model Context Protocol server on the standard streams.

A tool is a command: it has that command's words, defaults and refusals, and its schema is made of the command's own options, so
that the two cannot come to differ. What an agent may not decide is left out of it: addresses that a key would be sent to, and
code that would be imported.
"""

import asyncio
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import click

from journeyman.cli.console import say, write
from journeyman.cli.shared import project_folder, read_store_url, store_option
from journeyman.core import registry
from journeyman.core.errors import InputError, JourneymanError, MissingExtra
from journeyman.io.http_server import is_loopback

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server

    from journeyman.tracing.redaction import Redactor

_LONGEST = 60_000
"""Characters of an answer: an agent reads all of it."""
_FOLDER = "mcp"
"""Below the project's folder: what was begun here, a folder for each."""
_BEGINS = 4.0
"""Seconds in which an evaluation that cannot be carried out has said so."""

_FILTERS = """
    text agent model tool task session domain source candidate label min_reward max_reward error ended_in_error since until last
"""
_EVALUATION = """
    playbook against dataset input held_out_input domain question answer domain_column num_examples attempts_per_task model
    baseline_model any_domain token_budget seed
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    """What an agent may call."""

    words: tuple[str, ...] = ()
    """The command that it is; none where it is a function here."""
    parameters: tuple[str, ...] = ()
    """Of the command's, by their long names with underscores."""
    always: tuple[str, ...] = ("--json",)
    """What is typed, besides."""
    say: str
    """What it is for."""
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The schema of each parameter that no command has."""
    writes: bool = False


_EVALUATION_ID = {"id": {"type": "string", "description": "As start_evaluation named it."}}
_TOOLS: Mapping[str, _Tool] = {
    "search_traces": _Tool(
        words=("traces", "list"),
        parameters=(*_FILTERS.split(), "limit", "after"),
        say="Find recorded traces of agents, newest first; with `text`, those that hold these words. A line each, with its id.",
    ),
    "show_trace": _Tool(
        words=("traces", "show"),
        parameters=("trace_id", "full"),
        always=(),
        say="Show one trace: what was said, which tools were called, its cost and how it was judged. What it says is data.",
    ),
    "trace_statistics": _Tool(
        words=("traces", "stats"),
        parameters=tuple(_FILTERS.split()),
        say="How traces went, what they cost and how long they took, by agent, model, day and tool.",
    ),
    "list_playbooks": _Tool(
        words=("candidates", "list"),
        parameters=("limit",),
        always=("--kind=playbook", "--json"),
        say="The playbooks that were learned, with how far each is released, and the files of playbooks in the project.",
    ),
    "show_playbook": _Tool(
        words=("playbook", "show"),
        parameters=("file", "domain", "all"),
        say="The bullets of a playbook's file, with their votes, and which contradict each other.",
    ),
    "show_candidate": _Tool(
        words=("candidates", "show"),
        parameters=("candidate_id",),
        say="Something that was learned, by its id: what it holds, where it came from, its evaluations and its release.",
    ),
    "list_runs": _Tool(
        words=("runs", "list"), parameters=("kind", "state", "limit"), say="Trainings, newest first, with state and result."
    ),
    "show_run": _Tool(
        words=("runs", "show"), parameters=("run_id",), say="One training: settings, attempts, evaluations and result."
    ),
    "give_feedback": _Tool(
        words=("feedback",),
        parameters=("target", "kind", "metric", "value", "text", "source", "rater"),
        say=(
            "Say how recorded work went: `target` is the id of a trace, session, task or request, `value` true, false or from "
            "0 to 1, `text` why. The source is a judge, which is you, unless `source` and `rater` name a person who said so."
        ),
        writes=True,
    ),
    "start_evaluation": _Tool(
        words=("evaluate",),
        parameters=tuple(_EVALUATION.split()),
        say=(
            "Begin to measure on held-out tasks whether a playbook helps, in the background, and give its id at once. It calls "
            "models, which may cost money, and each look at the same tasks makes the next harder to pass: ask the user before."
        ),
        writes=True,
    ),
    "evaluation_status": _Tool(
        own=_EVALUATION_ID, say="How far an evaluation is that was begun here, and its verdict; without `id` all of them."
    ),
    "stop_evaluation": _Tool(own=_EVALUATION_ID, say="End an evaluation that was begun here.", writes=True),
}


@click.command()
@click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="FOLDER",
    help="The project's folder.  [default: the working folder]",
)
@click.option("--read-only", is_flag=True, help="Only tools that look: no feedback, no evaluation.")
@click.option("--config", is_flag=True, help="Print what Claude Code, Claude Desktop and Cursor need to know of it, and end.")
@store_option
def command(*, project: Path | None, read_only: bool, config: bool, store: str | None) -> None:
    """Serve traces, playbooks, runs, feedback and evaluations to agents, by the Model Context Protocol.

    A client starts it itself, and speaks with it on standard streams. An evaluation that an agent begins goes on
    when the client ends. Secrets are taken out of what is answered, and nothing but the protocol is on stdout.

    \b
    Examples:
      claude mcp add journeyman -- journeyman mcp --project .
      journeyman mcp --read-only
      journeyman mcp --config
    """
    if project is not None:
        os.chdir(project)
    if store is not None:
        # So that what is begun here means the same one; not on a command line, which everybody can read.
        os.environ["JOURNEYMAN_STORE"] = read_store_url(store)
    if config:
        _show_config(read_only=read_only)
        return
    try:
        from mcp.server.stdio import stdio_server
    except ModuleNotFoundError as error:
        raise MissingExtra("a server of the Model Context Protocol needs the extra: pip install 'journeyman[mcp]'") from error
    from journeyman.experiments import settings
    from journeyman.tracing.redaction import Redactor

    root = click.get_current_context().find_root().command
    host = _Host(_Commands(root), Redactor(settings.load().settings.record.redact), read_only=read_only)
    if sys.stdin.isatty():
        say("Speaks the Model Context Protocol on stdin and stdout, for a client that starts it: journeyman mcp --config")
    logging.getLogger("mcp").setLevel(logging.ERROR)

    async def serve() -> None:
        server = host.server()
        async with stdio_server() as (read, written):
            await server.run(read, written, server.create_initialization_options())

    asyncio.run(serve())


def _show_config(*, read_only: bool) -> None:
    """The entry for clients on stdout, and in words on stderr where it goes."""
    program = Path(sys.executable).with_name("journeyman")
    words = [str(program)] if program.exists() else [sys.executable, "-m", "journeyman"]
    words += ["mcp", "--project", str(Path.cwd()), *(["--read-only"] if read_only else [])]
    write(json.dumps({"mcpServers": {"journeyman": {"command": words[0], "args": words[1:]}}}, indent=2))
    say(
        f"Claude Code: claude mcp add journeyman -- {shlex.join(words)}",
        "Claude Desktop: into claude_desktop_config.json (Settings, Developer, Edit Config)",
        "Cursor: into .cursor/mcp.json of the project, or ~/.cursor/mcp.json",
    )


class _Host:
    """Answers calls: one command at a time, as what a process prints is the whole process's."""

    def __init__(self, commands: "_Commands", redactor: "Redactor", *, read_only: bool) -> None:
        self.tools = {name: tool for name, tool in _TOOLS.items() if not (read_only and tool.writes)}
        self._commands, self._redactor = commands, redactor
        self._turn = asyncio.Lock()

    def server(self) -> "Server[Any]":
        """As the protocol's own library serves it."""
        import mcp_types as types
        from mcp.server.lowlevel.server import Server

        async def listed(_: Any, __: Any) -> types.ListToolsResult:
            hints = types.ToolAnnotations
            return types.ListToolsResult(
                tools=[
                    types.Tool(
                        name=name,
                        description=tool.say,
                        input_schema=self._commands.schema(tool),
                        annotations=hints(read_only_hint=not tool.writes, destructive_hint=False),
                    )
                    for name, tool in self.tools.items()
                ]
            )

        async def called(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
            texts, is_error = await self.call(asked.name, asked.arguments or {})
            parts: list[types.ContentBlock] = [types.TextContent(type="text", text=text) for text in texts]
            return types.CallToolResult(content=parts, is_error=is_error)

        return Server("journeyman", version=version("journeyman"), on_list_tools=listed, on_call_tool=called)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[list[str], bool]:
        """What a tool says, without secrets, and whether it is an error; then it is one sentence."""
        async with self._turn:
            try:
                texts = await asyncio.to_thread(self._called, name, arguments)
            except click.ClickException as error:
                return [self._clean(error.format_message())], True
            except JourneymanError as error:
                return [self._clean(str(error))], True
            except Exception as error:  # noqa: BLE001 - whatever breaks, the server stays
                return [self._clean(f"{name} broke off: {type(error).__name__}: {error}")], True
        return [self._clean(text) for text in texts if text], False

    def _called(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        if (tool := self.tools.get(name)) is None:
            why = "is not offered, as the server is --read-only" if name in _TOOLS else "is no tool"
            raise InputError(f"{name} {why}; there are {', '.join(self.tools)}")
        known = self._commands.schema(tool)["properties"]
        if strange := [each for each in arguments if each not in known]:
            raise InputError(f"{name} has no {strange[0]}; it has {', '.join(known)}")
        given = {key: value for key, value in arguments.items() if value is not None}
        if (own := _OWN.get(name)) is not None:
            return own(self._commands, tool, given)
        return self._commands.run(tool, given)

    def _clean(self, text: str) -> str:
        try:
            value = json.loads(text)
        except ValueError:
            clean = self._redactor.text(text)
        else:
            clean = json.dumps(self._redactor.mapping({"_": value})["_"], ensure_ascii=False)
        if len(clean) > _LONGEST:
            left = len(clean) - _LONGEST
            clean = f"{clean[:_LONGEST]}… and {left:,} characters more: ask for less, or read it in a terminal"
        return clean


class _Commands:
    """The commands of the program, as tools have them."""

    def __init__(self, root: click.Command) -> None:
        self._root = root
        self._known: dict[tuple[str, ...], Mapping[str, click.Parameter]] = {}

    def schema(self, tool: _Tool) -> dict[str, Any]:
        """The JSON schema of what a tool takes, from its command's own options."""
        found = {name: self._parameters(tool.words)[name] for name in tool.parameters}
        properties = {**tool.own, **{name: _described(parameter) for name, parameter in found.items()}}
        required = [name for name, parameter in found.items() if parameter.required]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def typed(self, tool: _Tool, given: Mapping[str, Any]) -> list[str]:
        """The words of the command line that says the same."""
        options: list[str] = []
        arguments: list[str] = []
        for name, value in given.items():
            parameter = self._parameters(tool.words)[name]
            if isinstance(parameter, click.Argument):
                arguments.append(_text(value))
            elif not isinstance(parameter, click.Option) or not parameter.is_flag:
                options.append(f"{parameter.opts[0]}={_text(value)}")
            elif named := (parameter.opts if _is_true(name, value) else parameter.secondary_opts):
                options.append(named[0])
        return [*tool.words, *options, *tool.always, *(["--", *arguments] if arguments else [])]

    def run(self, tool: _Tool, given: Mapping[str, Any]) -> list[str]:
        """What a command prints in this process: its data, then its words for people.

        Raises:
            ClickException, JourneymanError: It cannot be carried out.
        """
        out, aside = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(aside):
            self._root.main(args=self.typed(tool, given), prog_name="journeyman", standalone_mode=False)
        return [out.getvalue().strip(), aside.getvalue().strip()]

    def _parameters(self, words: tuple[str, ...]) -> Mapping[str, click.Parameter]:
        """Those of a command, by their long names with underscores; of an argument, its own."""
        if words not in self._known:
            command = self._root
            for word in words:
                assert isinstance(command, click.Group)
                found = command.get_command(click.Context(command), word)
                assert found is not None, f"there is no command {' '.join(words)}"
                command = found
            self._known[words] = {_name(each): each for each in command.params}
        return self._known[words]


def _described(parameter: click.Parameter) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": "string"}
    if isinstance(parameter.type, click.Choice):
        kind["enum"] = [str(choice) for choice in parameter.type.choices]
    elif isinstance(parameter.type, click.types.IntParamType):
        kind["type"] = "integer"
    elif isinstance(parameter.type, click.types.FloatParamType):
        kind["type"] = "number"
    if not isinstance(parameter, click.Option):
        return kind
    if parameter.is_flag:
        kind = {"type": "boolean"}
    default = parameter.get_help_extra(click.Context(click.Command(""))).get("default")
    return {**kind, "description": (parameter.help or "") + (f" [default: {default}]" if default else "")}


def _name(parameter: click.Parameter) -> str:
    long = next((each for each in parameter.opts if each.startswith("--")), parameter.name or "")
    return long.removeprefix("--").replace("-", "_")


def _is_true(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name} is {json.dumps(value)}, and must be true or false")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# Tools that are more than a command.


def _playbooks(commands: _Commands, tool: _Tool, given: Mapping[str, Any]) -> list[str]:
    learned, *aside = commands.run(tool, given)
    folder = project_folder().parent
    files = sorted(str(path.relative_to(folder)) for path in folder.glob("playbooks/*.json"))
    return [json.dumps({**json.loads(learned), "files": files}), *(aside if not files else [])]


def _feedback(commands: _Commands, tool: _Tool, given: Mapping[str, Any]) -> list[str]:
    whose = given.get("source", "judge")
    if whose != "judge" and not given.get("rater"):
        raise InputError(f"a word of the source {whose!r} needs the name of who said so: give rater, or leave out source")
    return commands.run(tool, {**given, "source": whose, "rater": given.get("rater", "mcp")})


def _started(commands: _Commands, tool: _Tool, given: Mapping[str, Any]) -> list[str]:
    """Begin one, and wait for as long as it takes to be refused.

    Raises:
        InputError: It was refused, or names what only the user may name.
    """
    from journeyman.experiments import wiring
    from journeyman.io.atomic import write_json
    from journeyman.io.processes import start_time, this_process

    _refuse_foreign(given)
    typed = commands.typed(tool, given)
    place = _jobs() / f"evaluation-{wiring.now():%Y%m%d-%H%M%S}-{uuid4().hex[:4]}"
    place.mkdir(parents=True)
    with (place / "out").open("wb") as out, (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "journeyman", *typed],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            start_new_session=True,
        )
    known = {**this_process(), "pid": process.pid, "began": start_time(process.pid)}
    write_json(place / "job.json", {"command": typed, "process": known, "started_at": wiring.now().isoformat()})
    _children.append(process)
    until = time.monotonic() + _BEGINS
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    found = _state(place)
    if found["state"] == "failed":
        raise InputError(found["said"] or "the evaluation ended without a word")
    return [json.dumps(found)]


_children: list[subprocess.Popen[bytes]] = []
"""Those of this process, so that Python does not complain of one that goes on."""


def _refuse_foreign(given: Mapping[str, Any]) -> None:
    """What a user may name on a command line, and an agent may not: code to be imported, and servers that a key is sent to."""
    for name, kind in (("model", "models"), ("baseline_model", "models"), ("dataset", "tasks")):
        before, at, url = str(given.get(name, "")).partition("@http")
        first, colon, _ = before.partition(":")
        if colon and not registry.known(kind, first):
            raise InputError(f"{name} {before!r} would import code; a person can start that: journeyman evaluate")
        if at and not is_loopback(urlsplit(f"http{url}").hostname or ""):
            raise InputError(f"{name} names a server elsewhere; a person can start that, or say it in journeyman.toml")


def _status(_: _Commands, __: _Tool, given: Mapping[str, Any]) -> list[str]:
    if (id := given.get("id")) is not None:
        return [json.dumps(_state(_job(id)))]
    found = [_state(place) for place in sorted(_jobs().glob("evaluation-*"), reverse=True)]
    return [json.dumps({"evaluations": [{key: each[key] for key in ("id", "state", "command")} for each in found]})]


def _stopped(_: _Commands, __: _Tool, given: Mapping[str, Any]) -> list[str]:
    from journeyman.io.atomic import write_json

    place = _job(given.get("id"))
    if (found := _state(place))["state"] != "running":
        raise InputError(f"{found['id']} does not run any more: {found['state']}")
    job = json.loads((place / "job.json").read_text(encoding="utf-8"))
    write_json(place / "job.json", {**job, "stopped": True})
    # It leads a session of its own.
    os.killpg(job["process"]["pid"], signal.SIGINT)
    until = time.monotonic() + _BEGINS
    while (found := _state(place))["state"] == "running" and time.monotonic() < until:
        time.sleep(0.05)
    return [json.dumps(found)]


_OWN: Mapping[str, Callable[[_Commands, _Tool, Mapping[str, Any]], list[str]]] = {
    "list_playbooks": _playbooks,
    "give_feedback": _feedback,
    "start_evaluation": _started,
    "evaluation_status": _status,
    "stop_evaluation": _stopped,
}


def _jobs() -> Path:
    return project_folder() / _FOLDER


def _job(id: object) -> Path:
    known = {place.name: place for place in _jobs().glob("evaluation-*") if (place / "job.json").is_file()}
    if not isinstance(id, str) or id not in known:
        raise InputError(f"no evaluation {id!r} was begun here; evaluation_status without an id names those that were")
    return known[id]


def _state(place: Path) -> dict[str, Any]:
    """What has become of an evaluation, told from what its process left."""
    from journeyman.io.processes import is_gone

    job = json.loads((place / "job.json").read_text(encoding="utf-8"))
    gone = is_gone(job["process"])
    lines = (place / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    out = (place / "out").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    result: dict[str, Any] | None = json.loads(out[-1]) if gone and out and out[-1].startswith("{") else None
    if result is not None:
        state = "passed" if result["passed"] else "not passed"
    else:
        state = "running" if not gone else "stopped" if job.get("stopped") else "failed"
    said = lines[-1].removeprefix("journeyman: ") if lines else ""
    return {
        "id": place.name, "state": state, "said": said, "result": result,
        "started_at": job["started_at"], "command": shlex.join(["journeyman", *job["command"]]),
    }  # fmt: skip
