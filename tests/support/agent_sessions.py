"""Sessions of coding agents as their programs write them, made by chance from a seed, and what is in them.

No sessions of real people: what stands in them is made up. The shapes are those of the programs' own files.
"""

import json
import random
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

BEGAN = datetime(2026, 9, 1, 8, tzinfo=UTC)
_TOOLS = ("read", "edit", "shell")
_WORDS = ("the", "test", "of", "parser", "fails", "when", "a", "line", "has", "no", "end", "look", "at", "reader", "mend", "it")


@dataclass(slots=True)
class Contents:
    """What was written, counted while it was."""

    prompts: int = 0
    answers: int = 0
    calls: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    naive_tokens: int = 0
    """What a sum over lines gives, where lines repeat counts."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class _Session:
    """One session, while it is made up."""

    def __init__(
        self, chance: random.Random, number: int, contents: Contents, say: Callable[[], str | None] = lambda: None
    ) -> None:
        """
        Args:
            say: Gives words to put in somewhere; `None` where there are none.
        """
        self.chance, self.contents, self.say = chance, contents, say
        self.at = BEGAN + timedelta(minutes=7 * number)
        self.id = self.uuid()

    def uuid(self) -> str:
        return str(UUID(int=self.chance.getrandbits(128), version=4))

    def words(self, least: int = 4, most: int = 12) -> str:
        said = " ".join(self.chance.choices(_WORDS, k=self.chance.randint(least, most)))
        more = self.say()
        return said if more is None else f"{said} {more}"

    def now(self) -> str:
        self.at += timedelta(milliseconds=self.chance.randint(50, 4000))
        return self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def millis(self) -> int:
        self.now()
        return int(self.at.timestamp() * 1000)

    def count(self, input: int, output: int) -> None:
        self.contents.answers += 1
        self.contents.input_tokens += input
        self.contents.output_tokens += output

    def tools(self) -> list[tuple[str, str, dict[str, str], str, bool]]:
        """What an answer asks for: id, tool, arguments, result, and whether it failed."""
        found = []
        for _ in range(self.chance.choice((0, 1, 1, 2))):
            bad = self.chance.random() < 0.2
            self.contents.calls += 1
            self.contents.failed += bad
            name = self.chance.choice(_TOOLS)
            found.append((f"call_{self.chance.getrandbits(64):x}", name, {"path": self.words(1, 2)}, self.words(), bad))
        return found

    def prompts(self) -> Iterable[str]:
        for _ in range(self.chance.randint(1, 3)):
            self.contents.prompts += 1
            yield self.words()

    def rounds(self) -> Iterable[int]:
        return range(self.chance.randint(1, 3))


def _write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def claude_code(home: Path, session: _Session) -> None:
    """A line for each block, each with all usage so far; sometimes copied into a second file, as a resumed session is."""
    path = home / ".claude/projects" / "-home-dev-shop" / f"{session.id}.jsonl"
    rows: list[dict[str, Any]] = [{"type": "summary", "summary": session.words(), "leafUuid": session.uuid()}]
    last: str | None = None

    def line(kind: str, message: dict[str, Any], **more: Any) -> None:
        nonlocal last
        about = {"isSidechain": False, "userType": "external", "cwd": "/srv/shop", "sessionId": session.id}
        row = {"parentUuid": last, **about, "version": "2.0.1", "gitBranch": "main", "type": kind, "message": message}
        last = session.uuid()
        rows.append({**row, "uuid": last, "timestamp": session.now(), **more})

    for prompt in session.prompts():
        line("user", {"role": "user", "content": prompt})
        for _ in session.rounds():
            _claude_answer(session, line)
    _write_lines(path, rows)
    if session.chance.random() < 0.2:
        other = session.uuid()
        again = [row["message"]["usage"] for row in rows if row["type"] == "assistant"]
        session.contents.naive_tokens += sum(count for usage in again for count in usage.values())
        _write_lines(path.with_name(f"{other}.jsonl"), [{**row, "sessionId": other} if "uuid" in row else row for row in rows])


def _claude_answer(session: _Session, line: Callable[..., None]) -> None:
    asked = session.tools()
    blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": session.words(), "signature": ""}]
    blocks.append({"type": "text", "text": session.words()})
    blocks += [{"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given, _, _ in asked]
    cached, written, fresh = (session.chance.randint(0, 900) for _ in range(3))
    outputs = sorted(session.chance.randint(1, 400) for _ in blocks)
    session.count(cached + written + fresh, outputs[-1])
    id, answers = f"msg_{session.chance.getrandbits(80):x}", {each[0]: each for each in asked}
    for block, output in zip(blocks, outputs, strict=True):
        usage = {"input_tokens": fresh, "cache_read_input_tokens": cached, "cache_creation_input_tokens": written}
        session.contents.naive_tokens += fresh + cached + written + output
        said = {"id": id, "type": "message", "role": "assistant", "model": "claude-test", "content": [block]}
        line("assistant", {**said, "stop_reason": None, "usage": {**usage, "output_tokens": output}}, requestId=f"req_{id}")
        if block["type"] == "tool_use":
            _, _, _, result, bad = answers[block["id"]]
            told = {"type": "tool_result", "tool_use_id": block["id"], "content": result, "is_error": bad}
            line("user", {"role": "user", "content": [told]}, toolUseResult=result)


def codex(home: Path, session: _Session) -> None:
    """Items behind a first line; counts that are told twice, and add up over the session."""
    day = session.at.strftime("%Y/%m/%d")
    meta = {"id": session.id, "cwd": "/srv/shop", "cli_version": "0.50.0", "git": {"branch": "main"}}
    rows: list[dict[str, Any]] = [{"timestamp": session.now(), "type": "session_meta", "payload": meta}]
    sums = {"input_tokens": 0, "output_tokens": 0}

    def item(payload: dict[str, Any], kind: str = "response_item") -> None:
        rows.append({"timestamp": session.now(), "type": kind, "payload": payload})

    def said(role: str, kind: str, text: str) -> None:
        item({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})

    said("user", "input_text", "<environment_context>\n  <cwd>/srv/shop</cwd>\n</environment_context>")
    for prompt in session.prompts():
        said("user", "input_text", prompt)
        item({"type": "user_message", "message": prompt}, "event_msg")
        item({"cwd": "/srv/shop", "model": "gpt-test-codex"}, "turn_context")
        for _ in session.rounds():
            item(
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": session.words()}], "encrypted_content": "x"}
            )
            said("assistant", "output_text", session.words())
            asked = session.tools()
            for id, name, given, _, _ in asked:
                item({"type": "function_call", "name": name, "arguments": json.dumps(given), "call_id": id})
            last = {"input_tokens": session.chance.randint(1, 900), "output_tokens": session.chance.randint(1, 400)}
            sums = {name: sums[name] + last[name] for name in sums}
            session.count(last["input_tokens"], last["output_tokens"])
            for _ in range(session.chance.choice((1, 2, 2))):
                item({"type": "token_count", "info": {"total_token_usage": sums, "last_token_usage": last}}, "event_msg")
                session.contents.naive_tokens += sum(last.values())
            for id, _, _, result, bad in asked:
                output = json.dumps({"output": result, "metadata": {"exit_code": int(bad), "duration_seconds": 0.1}})
                item({"type": "function_call_output", "call_id": id, "output": output})
    _write_lines(home / ".codex/sessions" / day / f"rollout-{session.at:%Y-%m-%dT%H-%M-%S}-{session.id}.jsonl", rows)


def gemini(home: Path, session: _Session) -> None:
    """One object with all messages."""
    messages: list[dict[str, Any]] = []
    for prompt in session.prompts():
        messages.append({"id": session.uuid(), "timestamp": session.now(), "type": "user", "content": prompt})
        for _ in session.rounds():
            counts = {"input": session.chance.randint(1, 900), "output": session.chance.randint(1, 300), "cached": 0}
            counts |= {"thoughts": session.chance.randint(0, 50), "tool": session.chance.randint(0, 9)}
            session.count(counts["input"] + counts["tool"], counts["output"] + counts["thoughts"])
            calls = [
                {
                    **{
                        "id": id,
                        "name": name,
                        "args": given,
                        "status": "error" if bad else "success",
                        "timestamp": session.now(),
                    },
                    "result": [{"functionResponse": {"id": id, "name": name, "response": {"output": result}}}],
                }
                for id, name, given, result, bad in session.tools()
            ]
            thoughts = [{"subject": "Look", "description": session.words(), "timestamp": session.now()}]
            about = {"id": session.uuid(), "timestamp": session.now(), "type": "gemini", "content": session.words()}
            messages.append({**about, "thoughts": thoughts, "tokens": counts, "model": "gemini-test", "toolCalls": calls})
    head = {"sessionId": session.id, "projectHash": "ab" * 32, "startTime": session.now(), "lastUpdated": session.now()}
    path = home / ".gemini/tmp" / ("ab" * 32) / "chats" / f"session-{session.at:%Y-%m-%dT%H-%M}-{session.id[:8]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**head, "messages": messages}, indent=2))


def opencode(home: Path, session: _Session) -> None:
    """A file for the session, for each message, and for each part of one."""
    storage = home / ".local/share/opencode/storage"

    def put(folder: str, name: str, value: dict[str, Any]) -> None:
        path = storage / folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2))

    number, id = iter(range(10**6)), f"ses_{session.id[:13]}"
    about = {"id": id, "version": "1.0.0", "projectID": "p1", "directory": "/srv/shop", "title": session.words()}
    put("session/p1", id, {**about, "time": {"created": session.millis(), "updated": session.millis()}})

    def message(role: str, parts: list[dict[str, Any]], **more: Any) -> None:
        own = f"msg_{next(number):08d}{session.id[:18]}"
        put(f"message/{id}", own, {"id": own, "sessionID": id, "role": role, "time": {"created": session.millis()}, **more})
        for part in parts:
            name = f"prt_{next(number):08d}{session.id[:18]}"
            put(f"part/{own}", name, {"id": name, "sessionID": id, "messageID": own, **part})

    for prompt in session.prompts():
        message("user", [{"type": "text", "text": prompt}])
        for _ in session.rounds():
            input, output, read, write = (session.chance.randint(1, 500) for _ in range(4))
            session.count(input + read + write, output)
            parts: list[dict[str, Any]] = [{"type": "step-start"}, {"type": "text", "text": session.words()}]
            for call, name, given, result, bad in session.tools():
                state = {"status": "error", "error": result} if bad else {"status": "completed", "output": result}
                times = {"start": session.millis(), "end": session.millis()}
                parts.append({"type": "tool", "callID": call, "tool": name, "state": {**state, "input": given, "time": times}})
            tokens = {"input": input, "output": output, "reasoning": 0, "cache": {"read": read, "write": write}}
            message("assistant", parts, modelID="test", providerID="p", cost=0.01, tokens=tokens)


def openhands(home: Path, session: _Session) -> None:
    """A file for each event."""
    folder = home / ".openhands/sessions" / session.id / "events"
    folder.mkdir(parents=True)
    number = iter(range(10**6))

    def event(**told: Any) -> int:
        id = next(number)
        (folder / f"{id}.json").write_text(json.dumps({"id": id, "timestamp": session.now(), **told}))
        return id

    event(source="agent", message="", action="system", args={"content": session.words(), "openhands_version": "0.50"})
    for prompt in session.prompts():
        event(source="user", message=prompt, action="message", args={"content": prompt})
        for _ in session.rounds():
            usage = {"prompt_tokens": session.chance.randint(1, 900), "completion_tokens": session.chance.randint(1, 300)}
            session.count(usage["prompt_tokens"], usage["completion_tokens"])
            response = {"id": f"chatcmpl-{session.uuid()}", "model": "test", "usage": usage}
            asked = session.tools()
            if not asked:
                event(source="agent", action="message", args={"content": session.words()},
                      tool_call_metadata={"model_response": response})  # fmt: skip
            for call, name, given, result, bad in asked:
                session.contents.naive_tokens += sum(usage.values())
                about = {"function_name": name, "tool_call_id": call, "model_response": response}
                id = event(source="agent", action="run", args={**given, "thought": session.words()}, tool_call_metadata=about)
                told = {"metadata": {"exit_code": int(bad)}}
                event(source="agent", observation="run", content=result, extras=told, cause=id, tool_call_metadata=about)


def aider(home: Path, session: _Session) -> None:
    """Markdown, in the folder of each project; counts are exact below a thousand alone."""
    text = f"\n# aider chat started at {session.at:%Y-%m-%d %H:%M:%S}\n\n> Aider v0.86.0\n> Main model: test/model with diff\n"
    for prompt in session.prompts():
        input, output = session.chance.randint(1, 999), session.chance.randint(1, 999)
        session.count(input, output)
        text += f"\n#### {prompt}  \n\n{session.words()}\n\n```python\n{session.words()}\n```\n\n"
        text += f"> Tokens: {input} sent, {output} received. Cost: $0.0012 message, $0.02 session.\n> Applied edit to shop.py\n"
    path = home / "work" / session.id / ".aider.chat.history.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def cursor(home: Path, session: _Session) -> None:
    """Rows of one database: a conversation, and each of its messages under a key of its own."""
    path = home / ".config/Cursor/User/globalStorage/state.vscdb"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[str, str]] = []
    heads: list[dict[str, Any]] = []

    def bubble(kind: int, **told: Any) -> None:
        id = session.uuid()
        heads.append({"bubbleId": id, "type": kind})
        rows.append((f"bubbleId:{session.id}:{id}", json.dumps({"type": kind, "createdAt": session.now(), **told})))

    for prompt in session.prompts():
        bubble(1, text=prompt)
        for _ in session.rounds():
            tools = session.tools() or [("", "", {}, "", False)]
            for id, name, given, result, bad in tools:
                input, output = session.chance.randint(1, 900), session.chance.randint(1, 300)
                session.count(input, output)
                told = {"name": name, "toolCallId": id, "rawArgs": json.dumps(given), "result": result}
                tool = {**told, "status": "error" if bad else "completed"} if name else {}
                counts = {"inputTokens": input, "outputTokens": output}
                bubble(2, text=session.words(), tokenCount=counts, **({"toolFormerData": tool} if tool else {}))
    about = {"composerId": session.id, "name": session.words(), "createdAt": session.millis()}
    rows.append((f"composerData:{session.id}", json.dumps({**about, "fullConversationHeadersOnly": heads})))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("create table if not exists cursorDiskKV (key text unique on conflict replace, value blob)")
        database.executemany("insert into cursorDiskKV values (?, ?)", rows)


WRITERS: dict[str, Callable[[Path, _Session], None]] = {
    "claude-code": claude_code,
    "codex": codex,
    "gemini": gemini,
    "opencode": opencode,
    "openhands": openhands,
    "aider": aider,
    "cursor": cursor,
}


def write(home: Path, name: str, sessions: int, *, seed: int = 7, say: Callable[[], str | None] = lambda: None) -> Contents:
    """Sessions of one agent in somebody's home; what is in them.

    Args:
        say: Gives words to put into what is said, called once for each text.
    """
    contents, chance = Contents(), random.Random(f"{name} {seed}")
    for number in range(sessions):
        WRITERS[name](home, _Session(chance, number, contents, say))
    return contents
