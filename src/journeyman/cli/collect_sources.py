"""`journeyman collect SOURCE`: a team's own work: sessions of coding agents, git, messages, logs of the day, workspaces."""

import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import rows_table, say, say_some
from journeyman.cli.shared import choice_options, chosen, emit, json_option, store_option, store_url, together
from journeyman.core.errors import InputError
from journeyman.core.format import counted

if TYPE_CHECKING:
    from journeyman.experiments.collecting import SourceReader, SourceReport
    from journeyman.experiments.settings import SourceSettings
    from journeyman.tracing.sources.base import SourceFinding, WorkSource

_SHOWN = 20
"""Broken places that are named on the screen; `--json` names all."""
_UNASKED = ("claude-code", "codex", "cursor", "gemini", "opencode", "openhands", "aider", "git", "devlogs", "workspaces")
"""Sources that can be looked for without a path."""

_FOLDER = click.Path(path_type=Path)

_options = together(
    store_option,
    click.option("--dry-run", is_flag=True, help="Read and count, and store nothing."),
    click.option("--since", metavar="WHEN", help="Only what began since then: 30d, 12h, or a date such as 2026-09-01."),
    click.option("--max-samples", type=click.IntRange(1), metavar="N", help="Take at most so many of each source."),
    click.option("--watch", is_flag=True, help="Go on, and bring in what is written, until told to stop."),
    click.option("--polling", is_flag=True, help="With --watch: look each second, where nobody says that something changed."),
    click.option(
        "--reprocess", is_flag=True, help="Mask and read anew what is stored, by today's readers; nothing else comes in."
    ),
    json_option,
)


def since_when(text: str | None, now: datetime) -> datetime | None:
    """The moment that `30d` or `2026-09-01` means.

    Raises:
        InputError: It means none.
    """
    from journeyman.experiments.settings import duration
    from journeyman.tracing.fields import time

    if text is None:
        return None
    if (at := time(text)) is not None:
        return at
    try:
        return now - duration(text)
    except ValueError:
        raise InputError(f"--since {text!r} is no time: write 30d, 12h, or a date such as 2026-09-01") from None


# What is here.


@click.command()
@json_option
def sources(as_json: bool) -> int:
    """Say what of a team's own work is on this machine, and what of it will be lost when.

    Names, sizes and times of files are looked at, and none is opened but the settings of Claude Code, which say after how many
    days it deletes sessions. What is printed at the end can be put into journeyman.toml.

    \b
    Example:
      journeyman collect sources
    """
    found = list(_found())
    if not as_json:
        _show_findings(found)
    rows = [
        {
            "kind": kind,
            "path": str(each.path),
            "files": each.files,
            "bytes": each.bytes,
            **{name: getattr(each, name) for name in ("oldest", "newest", "lost_at")},
        }
        for kind, each in found
    ]
    emit({"sources": rows}, as_json=as_json)
    return 0


def _found() -> "Iterator[tuple[str, SourceFinding]]":
    from journeyman.experiments.collecting import source

    for kind in _UNASKED:
        if (found := source(kind).find()) is not None:
            yield kind, found


def _show_findings(found: "Sequence[tuple[str, SourceFinding]]") -> None:
    if not found:
        say("nothing of a team's work was found where programs keep it; a source takes a path: journeyman collect git ../shop")
        return
    now = datetime.now(UTC)
    rows = [
        (
            kind,
            str(each.files) if each.bytes else "",
            f"{each.bytes / 1e6:,.1f} MB" if each.bytes else "",
            f"{each.oldest:%Y-%m-%d}" if each.oldest else "",
            f"{each.newest:%Y-%m-%d}" if each.newest else "",
            _lost(each.lost_at, now),
            str(each.path),
        )
        for kind, each in found
    ]
    rows_table(("source", "files", "size", "oldest", "newest", "first is lost", "path"), rows)
    click.echo()
    for kind, each in found:
        click.echo(f'[collect.sources.{kind}]\nkind = "{kind}"\npath = "{each.path}"\n')


def _lost(at: datetime | None, now: datetime) -> str:
    if at is None:
        return ""
    days = (at - now).total_seconds() / 86_400
    return "any moment" if days < 0 else f"in {days:.0f} days"


# Reading.


def _command(kind: str, line: str, what: str, example: str, place: click.ParamType[Any] = _FOLDER) -> click.Command:
    def run(path: Path | str | None, as_json: bool, **given: Any) -> int:
        from journeyman.experiments.collecting import source

        return collected([source(kind, path, chosen(given))], given, as_json=as_json)

    run.__doc__ = f"{line}\n\n{what}\n\n\b\nExamples:\n" + "\n".join(
        f"  journeyman collect {each}" for each in example.split("; ")
    )
    argument = click.argument("path", required=False, type=place)
    return click.command(kind)(argument(choice_options(_options(run))))


@click.command(name="all")
@_options
def everything(as_json: bool, **given: Any) -> int:
    """Bring in all that journeyman.toml names below [collect.sources], and nothing else.

    \b
    Examples:
      journeyman collect all --since 30d
      journeyman collect all --watch
      journeyman collect all --reprocess
    """
    return collected(enabled(), given, as_json=as_json)


def enabled() -> "list[WorkSource]":
    """What the project's settings name.

    Raises:
        InputError: They name nothing.
    """
    from journeyman.experiments import settings
    from journeyman.experiments.collecting import source
    from journeyman.tracing.importers.source import FileChoice

    project = settings.load()
    named = project.settings.collect.sources
    if not named:
        raise InputError(
            "no source is enabled, and none is read unasked: journeyman collect sources prints what to put into journeyman.toml"
        )
    choices = {name: FileChoice(include=each.include, exclude=each.exclude) for name, each in named.items()}
    return [source(each.kind, _place(each, project.root), choices[name]) for name, each in named.items()]


def _place(named: "SourceSettings", root: Path) -> Path | str | None:
    """Where a source of the settings stands, from the folder that they are of."""
    from journeyman.core import registry

    found = registry.load("sources", named.kind) if registry.known("sources", named.kind) else None
    if found is not None and hasattr(found, "below"):
        place: str = found.below(root, named.path)
        return place
    return root / Path(named.path).expanduser() if named.path else None


def collected(sources: "Sequence[WorkSource]", given: Mapping[str, Any], *, as_json: bool) -> int:
    """Read sources, watch them, or renew what is stored of them by today's masks and readers; the exit code."""
    from journeyman.experiments import settings
    from journeyman.experiments.collecting import ReadLimits, SourceReader
    from journeyman.stores.documents import open_documents

    project = settings.load()
    most = given["max_samples"] or project.settings.collect.max_samples_per_source
    limits = ReadLimits(most=most, since=since_when(given["since"], datetime.now(UTC)))
    if given["dry_run"] and (given["watch"] or given["reprocess"]):
        raise InputError("--dry-run is for reading once")
    with ExitStack() as stack:
        store = None if given["dry_run"] else stack.enter_context(open_documents(store_url(given["store"])))
        reader = SourceReader(project, store)
        if given["watch"]:
            return _watched(reader, sources, polling=given["polling"])
        if given["reprocess"]:
            kinds = dict.fromkeys(each.kind for each in sources)
            reports = [reader.reprocess(kind, [each for each in sources if each.kind == kind]) for kind in kinds]
        else:
            reports = [reader.read(each, limits) for each in sources]
    return show_reports(reports, dry_run=given["dry_run"], as_json=as_json)


def show_reports(reports: "Sequence[SourceReport]", *, dry_run: bool, as_json: bool) -> int:
    """Say what came of it; the exit code."""
    problems = [each for report in reports for each in report.problems]
    found = sum(report.traces + report.documents for report in reports)
    if not as_json:
        _show(reports, dry_run=dry_run)
        say_some(problems, _SHOWN, "broken places")
    summed = {"stored": sum(report.stored for report in reports), "dry_run": dry_run}
    emit({"sources": [report.json() for report in reports], **summed, "problems": problems}, as_json=as_json)
    return 1 if problems and found else 2 if problems else 0


def _show(reports: "Sequence[SourceReport]", *, dry_run: bool) -> None:
    names = ("traces", "model_calls", "tool_calls", "documents", "stored")
    rows = [(each.kind, *(f"{getattr(each, name):,}" for name in names), str(len(each.problems))) for each in reports]
    rows_table(("source", "traces", "model calls", "tool calls", "documents", "new", "broken"), rows)
    for each in reports:
        said = [f"{count:,} {kind}" for kind, count in sorted(each.redacted.items())]
        if said:
            say(f"{each.kind}: taken out or masked: {', '.join(said)}")
        left = (
            ("copies of what another file tells", each.copies),
            ("of poor quality", each.poor),
            ("for personal data", each.dropped),
            ("not in the store, and not brought back", each.absent),
        )
        if out := [f"{count:,} {why}" for why, count in left if count]:
            say(f"{each.kind}: left out: {', '.join(out)}")
        for why in each.gone:
            say(f"{each.kind}: not read again, only masked: {why}")
        if each.more:
            say(f"{each.kind}: there is more, for the same command again; --max-samples takes more at once")
    if not any(each.traces + each.documents for each in reports):
        say("there was nothing new")
    elif dry_run:
        say("read, and nothing stored")


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """An event that is set when somebody asks the process to end."""
    stop = threading.Event()

    def end(*_: object) -> None:
        stop.set()

    handlers = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, before in handlers.items():
            signal.signal(number, before)


def _watched(reader: "SourceReader", sources: "Sequence[WorkSource]", *, polling: bool) -> int:
    from journeyman.experiments.collecting import watch

    seen: set[str] = set()

    def read(source: "WorkSource") -> None:
        report = reader.read(source)
        if report.stored:
            say(f"{source.kind}: {report.stored:,} new or changed")
        for each in report.problems:
            if each not in seen:
                say(each)
            seen.add(each)

    with _told_to_stop() as stop:
        say(f"watching {', '.join(dict.fromkeys(each.kind for each in sources))}; Ctrl-C ends it")
        watch(sources, read, stop, polling=polling)
    return 0


_SESSIONS = "Each prompt becomes a trace. Without PATH, sessions are read from where {} keeps them: {}."

claude_code = _command(
    "claude-code",
    "Bring in sessions of Claude Code, which deletes them after 30 days.",
    _SESSIONS.format("it", "~/.claude/projects"),
    "claude-code; claude-code --since 30d; claude-code --watch",
)
codex = _command("codex", "Bring in sessions of Codex.", _SESSIONS.format("it", "~/.codex/sessions"), "codex")
cursor = _command(
    "cursor", "Bring in conversations of Cursor.", _SESSIONS.format("it", "its state.vscdb, and ~/.cursor/projects"), "cursor"
)
gemini = _command("gemini", "Bring in sessions of Gemini CLI.", _SESSIONS.format("it", "~/.gemini/tmp"), "gemini")
opencode = _command(
    "opencode", "Bring in sessions of OpenCode.", _SESSIONS.format("it", "~/.local/share/opencode/storage"), "opencode"
)
openhands = _command("openhands", "Bring in conversations of OpenHands.", _SESSIONS.format("it", "~/.openhands"), "openhands")
aider = _command(
    "aider",
    "Bring in chats with aider.",
    "Without PATH, .aider.chat.history.md below this folder is read.",
    "aider; aider ../shop",
)
git = _command(
    "git",
    "Bring in the history of a repository.",
    "Each commit of its branches becomes a document: what it says, and what it changed. PATH is this folder, else another.",
    "git; git ../shop --max-samples 2000",
)
messages = _command(
    "messages",
    "Bring in what a team said: exports of Slack and Discord, and mail.",
    "PATH is a ZIP or folder of Slack, JSON of DiscordChatExporter, an mbox, a Maildir, or a folder of them.",
    "messages slack-export.zip; messages ~/Mail",
)
devlogs = _command(
    "devlogs",
    "Bring in logs of the day.",
    "Each text below PATH, or below devlogs/, becomes a document.",
    "devlogs; devlogs notes/",
)
workspaces = _command(
    "workspaces",
    "Bring in the workspaces of agents.",
    "Status files, inboxes and notes below PATH, or below agent_workspaces/, become documents.",
    "workspaces; workspaces agent_workspaces/",
)
vectors = _command(
    "vectors",
    "Bring in the texts of a vector store: Chroma, Qdrant, LanceDB, FAISS or pgvector.",
    "PATH is chroma:PATH#COLLECTION, qdrant:PATH#NAME, lancedb:PATH#TABLE, faiss:INDEX#TEXTS or postgresql://…#TABLE; each text"
    " becomes a document, with its id and metadata. Nothing in the store is changed.",
    "vectors chroma:store/chroma#notes; vectors faiss:store/notes.index#notes.jsonl; vectors postgresql://db.local/shop#notes",
    click.STRING,
)


# The same under the names of an earlier system.

_HERE = ("workspaces", "devlogs", "git")
"""Sources that lie in the folder of a project, and are meant by all where its settings name none."""

_forms = together(
    click.option("--collect-all", is_flag=True, help="Read all sources once."),
    click.option("--process-existing", is_flag=True, help="Mask and redact anew what is stored, or bring in --input first."),
    click.option("--stream", is_flag=True, help="Go on, and bring in what is written, until told to stop."),
    click.option("--real-time", is_flag=True, help="With --stream: as soon as it is written, which is so anyway."),
)


@click.command(name="data-collection")
@_forms
@click.option(
    "--input", "input_", metavar="DIR", type=click.Path(path_type=Path), help="With --process-existing: texts to bring in."
)
@click.option("--output", metavar="DIR", type=click.Path(path_type=Path), help="Write the documents there, too, as JSON Lines.")
@store_option
@json_option
def data_collection(as_json: bool, **given: Any) -> int:
    """Collect a team's own work: all of it, what is stored again, or what is written from now on.

    Sources are those of [collect.sources] in journeyman.toml; where it names none, agent_workspaces/, devlogs/ and the
    repository of this folder. `journeyman collect` says more of each.

    \b
    Examples:
      journeyman data-collection --collect-all --output data/training
      journeyman data-collection --process-existing --input data/raw --output data/processed
      journeyman data-collection --stream --real-time
    """
    forms = [form for form in ("collect_all", "process_existing", "stream") if given[form]]
    if len(forms) != 1:
        raise InputError("one of --collect-all, --process-existing and --stream says what is to be done")
    (form,) = forms
    if given["input_"] and form != "process_existing":
        raise InputError("--input is for --process-existing")
    sources = _meant(given["input_"])
    options = {"store": given["store"], "dry_run": False, "since": None, "max_samples": None, "polling": False}
    again = form == "process_existing" and given["input_"] is None
    code = collected(sources, {**options, "watch": form == "stream", "reprocess": again}, as_json=as_json)
    if given["output"] is not None:
        _write(store_url(given["store"]), given["output"], [each.kind for each in sources])
    return code


def _meant(input_: Path | None) -> "list[WorkSource]":
    """
    Raises:
        InputError: There is nothing to read.
    """
    from journeyman.experiments import settings
    from journeyman.experiments.collecting import source

    if input_ is not None:
        return [source("devlogs", input_)]
    if settings.load().settings.collect.sources:
        return enabled()
    found = [each for kind in _HERE if (each := source(kind)).find() is not None]
    return found or enabled()


def _write(url: str, folder: Path, kinds: list[str]) -> None:
    """The documents of some sources as JSON Lines, a file for each."""
    from journeyman.io.atomic import atomic_write
    from journeyman.stores.documents import DocumentQuery, open_documents

    with open_documents(url) as store:
        for kind in dict.fromkeys(kinds):
            path = folder / f"{kind}.jsonl"
            count = 0
            with atomic_write(path) as part, part.open("w", encoding="utf-8") as file:
                for document in store.documents(DocumentQuery(source=kind)):
                    names = ("id", "source", "kind", "where", "key", "title", "author", "at", "text", "raw")
                    told = {name: getattr(document, name) for name in names}
                    file.write(json.dumps(told, default=str) + "\n")
                    count += 1
            say(f"{counted(count, 'document is', 'documents are')} in {path}")
