"""What a team said to each other: exports of Slack and of Discord, and mail in mbox files, Maildirs and `.eml`.

A document is a thread, or a day of a channel, or one mail.
"""

import email
import email.policy
import mailbox
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from journeyman.core.document import Document
from journeyman.core.errors import InputError
from journeyman.tracing import fields
from journeyman.tracing.importers.source import ALL_FILES, FileChoice, Problem
from journeyman.tracing.sources.base import Item, SourceFinding, State
from journeyman.tracing.sources.files import FileUnit, below, changed, finding

KIND = "messages"
_LONGEST = 64 * 2**20
"""Bytes that one file of an archive may unpack to."""
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^>]*)?>")
_QUOTED = re.compile(r"^(?:On .{0,200} wrote:|Am .{0,200} schrieb .{0,100}:|-+ ?Original Message ?-+|>.*)$")
_PATTERNS = ("**/*.zip", "**/*.json", "**/*.mbox", "**/*.eml", "**/cur/*", "**/new/*", "**/mbox")


class Messages:
    """Exports in a file or a folder; which one each is, is told by what it holds."""

    kind = KIND

    def __init__(self, path: Path | None = None) -> None:
        if path is None:
            raise InputError("messages are read from an export: say where it is")
        self._root = path.expanduser().absolute()
        self._people: dict[str, str] = {}
        self.choice: FileChoice = ALL_FILES

    def find(self) -> SourceFinding | None:
        return finding(self._root, self._units()) if self._root.exists() else None

    def watched(self) -> Sequence[Path]:
        return [self._root]

    def _units(self) -> Iterator[FileUnit]:
        return (FileUnit(path, (path,)) for path in below(self._root, _PATTERNS, self.choice))

    def people(self) -> Iterable[str]:
        """Those whom a list of users names, and the senders of mail."""
        for path in below(self._root, ("**/users.json", "**/org_users.json", "**/*.zip")):
            if path.suffix == ".zip" and zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    names = [
                        name for name in archive.namelist() if PurePosixPath(name).name in ("users.json", "org_users.json")
                    ]
                    for name in names:
                        self._know(_unpacked(archive, name))
            elif path.suffix == ".json" and path.name in ("users.json", "org_users.json"):
                self._know(path.read_bytes())
        return sorted(set(self._people.values()))

    def _know(self, data: bytes) -> None:
        for user in fields.objects(fields.parsed(data)):
            profile = fields.mapping(user.get("profile"))
            name = fields.first({**user, **profile}, "real_name", "display_name", "name")
            if isinstance(name, str) and isinstance(user.get("id"), str):
                self._people[user["id"]] = name

    def read(self, states: Mapping[str, State]) -> Iterator[Item]:
        """
        Raises:
            InputError: There is nothing at the path.
        """
        list(self.people())
        yield from changed(self._units(), states, self._documents)

    def _documents(self, unit: FileUnit, _: State) -> Iterator[Document | Problem]:
        path = unit.path
        if zipfile.is_zipfile(path):
            yield from self._archive(path)
        elif path.suffix == ".json":
            yield from self._json(path.read_bytes(), path.relative_to(self._root.parent).as_posix(), str(path))
        elif path.suffix == ".eml" or path.parent.name in ("cur", "new"):
            yield self._mail(email.message_from_bytes(path.read_bytes(), policy=email.policy.default))
        else:
            box = mailbox.mbox(path, create=False)
            try:
                for key in box.iterkeys():
                    yield self._mail(email.message_from_bytes(box.get_bytes(key), policy=email.policy.default))
            finally:
                box.close()

    def _archive(self, path: Path) -> Iterator[Document | Problem]:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                inside = PurePosixPath(info.filename)
                where = f"{path}/{info.filename}"
                if inside.is_absolute() or ".." in inside.parts:
                    yield Problem(where, "leads out of the archive, and was left out")
                elif inside.suffix == ".json" and info.file_size > _LONGEST:
                    yield Problem(where, f"would unpack to more than {_LONGEST >> 20} MB, and was left out")
                elif inside.suffix == ".json":
                    try:
                        yield from self._json(_unpacked(archive, info.filename), info.filename, where)
                    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
                        yield Problem(where, f"could not be unpacked: {error}")

    def _json(self, data: bytes, name: str, where: str) -> Iterator[Document | Problem]:
        told = fields.parsed(data)
        if isinstance(told, dict) and isinstance(told.get("messages"), list) and "channel" in told:
            yield from self._discord(told)
        elif isinstance(told, list) and any(_is_slack(each) for each in told):
            yield from self._slack([each for each in told if _is_slack(each)], PurePosixPath(name).parent.name)
        elif told is None:
            yield Problem(where, "is not JSON")

    # Slack: a file for each channel and day, a message of a thread names what it answers.

    def _slack(self, messages: Sequence[Mapping[str, Any]], channel: str) -> Iterator[Document]:
        def thread(message: Mapping[str, Any]) -> str:
            return str(message.get("thread_ts") or f"{_day(message)}")

        for key, some in groupby(sorted(messages, key=lambda each: (thread(each), str(each["ts"]))), key=thread):
            yield self._conversation(
                "slack", channel, key, [(self._who(each), _slack_at(each), self._said(each)) for each in some]
            )

    def _who(self, message: Mapping[str, Any]) -> str:
        profile = fields.mapping(message.get("user_profile"))
        known = self._people.get(str(message.get("user")))
        return known or fields.string(
            fields.first(profile, "real_name", "name") or message.get("username") or message.get("user")
        )

    def _said(self, message: Mapping[str, Any]) -> str:
        return _MENTION.sub(lambda found: f"@{self._people.get(found[1], found[1])}", fields.string(message.get("text")))

    # Discord, as DiscordChatExporter writes it.

    def _discord(self, told: Mapping[str, Any]) -> Iterator[Document]:
        channel = fields.mapping(told["channel"])
        messages = fields.objects(told["messages"])
        messages.sort(key=lambda each: str(each.get("timestamp")))
        for day, some in groupby(messages, key=lambda each: str(each.get("timestamp"))[:10]):
            lines = [
                (_discord_who(each), fields.time(each.get("timestamp")), fields.string(each.get("content"))) for each in some
            ]
            yield self._conversation("discord", str(channel.get("name") or channel.get("id")), day, lines)

    @staticmethod
    def _conversation(what: str, channel: str, key: str, lines: Sequence[tuple[str, datetime | None, str]]) -> Document:
        told = (f"[{at:%H:%M}] {who}: {said}" if at else f"{who}: {said}" for who, at, said in lines if said)
        _, at, first = lines[0]
        return Document(
            source=KIND, key=f"{channel}/{key}", kind="message", text="\n".join(told), title=first.partition("\n")[0][:200],
            author=lines[0][0] or None, at=at, where=f"{what}:{channel}", raw={"messages": len(lines)},
        )  # fmt: skip

    # Mail.

    @staticmethod
    def _mail(mail: EmailMessage) -> Document:
        body = mail.get_body(preferencelist=("plain", "html"))
        try:
            text = body.get_content() if body is not None else ""
        except (LookupError, ValueError, KeyError):
            text = (body or mail).as_string()
        if body is not None and body.get_content_subtype() == "html":
            text = re.sub(r"<[^>]{0,2000}>", " ", text)
        try:
            at = parsedate_to_datetime(str(mail["date"])) if mail["date"] else None
        except ValueError:
            at = None
        id = str(mail["message-id"] or "").strip("<> ")
        raw = fields.without_empty(to=str(mail["to"] or ""), answers=str(mail["in-reply-to"] or "").strip("<> "))
        found = Document(
            source=KIND, key=id, kind="mail", text=_unquoted(text), title=str(mail["subject"] or ""), where="mail",
            author=str(mail["from"] or "") or None, at=at if at and at.tzinfo else None, raw=raw,
        )  # fmt: skip
        return found if id else Document(**{**_fields(found), "key": found.id})


def _fields(document: Document) -> dict[str, Any]:
    return {name: getattr(document, name) for name in Document.__dataclass_fields__}


def _unpacked(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as file:
        data = file.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise zipfile.BadZipFile(f"it unpacks to more than {_LONGEST >> 20} MB")
    return data


def _is_slack(message: Any) -> bool:
    return isinstance(message, dict) and message.get("type") == "message" and isinstance(message.get("ts"), str)


def _slack_at(message: Mapping[str, Any]) -> datetime | None:
    try:
        return fields.time(float(message["ts"]))
    except ValueError:
        return None


def _day(message: Mapping[str, Any]) -> str:
    at = _slack_at(message)
    return f"{at:%Y-%m-%d}" if at else "unknown"


def _discord_who(message: Mapping[str, Any]) -> str:
    author = fields.mapping(message.get("author"))
    return fields.string(author.get("nickname")) or fields.string(author.get("name"))


def _unquoted(text: str) -> str:
    """A mail without what it answers: the quoted tail, and its lines in between."""
    return "\n".join(line for line in text.splitlines() if not _QUOTED.match(line)).strip()
