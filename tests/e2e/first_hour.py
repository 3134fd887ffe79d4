"""Some sixty things that a person tries in the first hour, by intuition, in an empty folder.

    python -m tests.e2e.first_hour                                # with this Python
    python -m tests.e2e.first_hour --python PYTHON                # with that of an environment where a wheel was installed
    python -m tests.e2e.first_hour --json

Each either works as it is typed, or ends with 2 and one sentence that says what to type. The model is a server on loopback that
speaks chat completions, and adds numbers once it is told so; it stands in for one's own, needs no key, and how well it learns
says nothing of any other.
"""

import argparse
import csv
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One line, and what came of it."""

    typed: str
    wanted: str
    """What a person would see: a regular expression over what was said."""
    told: bool
    """Whether it cannot work, and has to say what to type instead."""
    code: int
    said: str
    cpu: float
    """Seconds of the processor."""

    @property
    def sentence(self) -> str:
        """Its last line on stderr: what is wrong."""
        return self.said.strip().splitlines()[-1] if self.said.strip() else ""

    @property
    def fine(self) -> bool:
        """Whether it did what its line of the script says."""
        return re.search(self.wanted, self.said) is not None and (self.code == 2) == self.told and "Traceback" not in self.said


TOLD = "told: "
"""Before what is expected of a line that cannot work."""
SCRIPT: Sequence[tuple[str, str]] = (
    ("journeyman --help", "Agents that learn on the job"),
    ("journeyman -h", "Commands:"),
    ("journeyman --version", r"journeyman \d"),
    ("journeyman help", TOLD + "No such command 'help'"),
    ("journeyman doctor", "^Everything needed works"),
    ("journeyman doctor --verbose", "pydantic"),
    ("journeyman doctor --json", '"ok": true'),
    ("journeyman init", "journeyman.toml is written"),
    ("journeyman init", TOLD + "is there already"),
    ("journeyman settings", "gate.alpha"),
    ("journeyman settings gate", "gate.min_tasks"),
    ("journeyman completion bash", "_JOURNEYMAN_COMPLETE"),
    ("journeyman demo --help", "journeyman demo"),
    ("journeyman serve --help", "journeyman serve"),
    ("journeyman train --help", "playbook"),
    ("journeyman train qa.csv", TOLD + "No such command 'qa.csv'"),
    ("journeyman train playbook qa.csv --model tiny", TOLD + "embedded:base"),
    ("journeyman train playbook qa.csv --model gpt-5-mini", TOLD + "set OPENAI_API_KEY"),
    ("journeyman train playbook qa.csv --model openai:mine@127.0.0.1:9/v1", TOLD + "write it with http://"),
    ("journeyman train playbook qa.csv --model openai:mine@http://127.0.0.1:9/v1", TOLD + "nobody listens at"),
    ("journeyman train playbook missing.csv --model MODEL", TOLD + "missing.csv is not there"),
    ("journeyman train playbook mails.csv --model MODEL", TOLD + r"--question COLUMN \(there are the columns body, team\)"),
    ("journeyman train playbook mails.csv --question body --answer team --model MODEL --dry-run", "30 held out"),
    ("journeyman train playbook qa.csv --model MODEL --dry-run", "Nothing was sent"),
    ("journeyman train playbook qa.csv --model gpt-5-mini --dry-run", r"In all about \$"),
    (
        "journeyman train playbook qa.csv --model MODEL --output mine.json",
        "held-out tasks: 0.0% without the playbook, 100.0% with it",
    ),
    ("journeyman train playbook qa.csv --model MODEL --output mine.json --num_examples 10", "bullet in mine.json"),
    ("journeyman train playbook --input qa.jsonl --model MODEL --no-evaluate", "mine|playbooks/"),
    ("journeyman train playbook --dataset custom --input qa.jsonl --model MODEL --dry-run", "Nothing was sent"),
    ("journeyman train playbook --resume", TOLD + "there is no unfinished run"),
    ("journeyman train playbook --from traces --dry-run", TOLD + "attempts of Journeyman's own runs"),
    ("journeyman evaluate --playbook mine.json --input qa.csv --model MODEL", "gain"),
    ("journeyman evaluate --playbook missing.json --input qa.csv --model MODEL", TOLD + "missing.json is not there"),
    ("journeyman evaluate power --input qa.csv", "30 held-out tasks"),
    ("journeyman evaluate power --tasks 200", "least gain seen on 200"),
    ("journeyman compare a.jsonl b.jsonl", "gain"),
    ("journeyman playbook show old.json", "Add the two numbers"),
    ("journeyman playbook diff old.json mine.json", ""),
    ("journeyman curve", "run custom"),
    ("journeyman curve .journeyman/runs/RUN", "run custom"),
    ("journeyman runs list", "RUN"),
    ("journeyman runs show RUN", "train playbook"),
    ("journeyman candidates list", ""),
    ("journeyman evaluations list", ""),
    ("journeyman releases list", ""),
    ("journeyman collect missing.jsonl", TOLD + "missing.jsonl"),
    ("journeyman collect chat.jsonl", "2 traces|2 new"),
    ("journeyman collect chat.jsonl", ""),
    ("journeyman traces list", r"20 of \d+ traces"),
    ("journeyman traces list --text table", "A table for two"),
    ("journeyman traces list --last 7d --error", "traces"),
    ("journeyman traces search table", "A table for two"),
    ("journeyman traces show TRACE", "Error: no date"),
    ("journeyman traces stats", "book"),
    ("journeyman traces tail --for 0 --text table", "A table for two"),
    ("journeyman traces label TRACE bad", "bad"),
    ("journeyman feedback TRACE --answer 'No table is free.'", ""),
    ("journeyman traces replay TRACE --model MODEL --dry-run", "its price is not known"),
    ("journeyman traces replay TRACE --model MODEL", "asked again"),
    ("journeyman traces export --out traces.jsonl", "in traces.jsonl"),
    ("journeyman traces export --format chat --out train.jsonl", "in train.jsonl"),
    ("journeyman traces export --format dpo --out pairs.jsonl", "1 line in pairs.jsonl"),
    ("journeyman score traces.jsonl", ""),
    ("journeyman releases slots", ""),
    ("journeyman learn history", ""),
    ("journeyman audit", ""),
    ("journeyman store status", "traces"),
    ("journeyman store backup monday.db", "is kept in monday.db"),
    ("journeyman store restore monday.db", TOLD + "--force"),
    ("journeyman store vacuum", "MB now"),
    ("journeyman scenarios examples", "Email"),
    ("journeyman scenarios template -o t.json", "written to t.json"),
    ("journeyman scenarios validate t.json", "0 faults"),
    ("python -m journeyman --version", r"journeyman \d"),
    ("python -c 'import journeyman'", ""),
    ("python -c 'from journeyman import Playbook; print(len(Playbook.load(\"old.json\").bullets))'", "1"),
)


LOOKS = ("journeyman traces list", "journeyman playbook show old.json", "journeyman runs list", "python -c 'import journeyman'")
"""Lines that only look: at most half a second of the processor each, and a tenth for the import beyond Python itself."""


LESSON = "Where two numbers are given, answer with their sum."


class _Adds(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = "\n".join(str(message["content"]) for message in asked["messages"])
        sums = re.findall(r"(\d+) \+ (\d+)\?", text)
        if "response_format" in asked:
            reply = json.dumps({"insights": [{"verdict": "helpful", "content": LESSON, "about": ""}], "shown": []})
        else:
            reply = str(sum(map(int, sums[-1]))) if LESSON in text and sums else "I have not been told"
        usage = {"prompt_tokens": len(text) // 4, "completion_tokens": len(reply) // 4 + 1}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
        body = json.dumps(
            {"id": "1", "object": "chat.completion", "model": "mine", "choices": [choice], "usage": usage}
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def model() -> Iterator[str]:
    """What to type after --model for a server that adds."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Adds)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"openai:mine@http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def lay_out(folder: Path) -> None:
    """The files that a person has."""
    rows = [(f"{n} + {n + 3}?", 2 * n + 3) for n in range(60)]
    for name, head in (("qa.csv", ("input", "target")), ("mails.csv", ("body", "team"))):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *rows])
    lines: dict[str, list[dict[str, Any]]] = {
        "qa.jsonl": [{"prompt": question, "completion": answer} for question, answer in rows],
        "a.jsonl": [{"task_id": str(n), "score": n % 2} for n in range(60)],
        "b.jsonl": [{"task_id": str(n), "score": 1} for n in range(60)],
        "chat.jsonl": [{"messages": _conversation(answer)} for answer in ("Error: no date", "booked")],
    }
    for name, values in lines.items():
        (folder / name).write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    bullet = {"id": "general-00001", "section": "strategies", "content": "Add the two numbers.", "domain": "general"}
    (folder / "old.json").write_text(json.dumps({"bullets": [bullet]}), encoding="utf-8")


def _conversation(answer: str) -> list[dict[str, object]]:
    call = {"id": "1", "type": "function", "function": {"name": "book", "arguments": "{}"}}
    return [
        {"role": "user", "content": f"A table for two, please; {answer}"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": answer},
        {"role": "assistant", "content": "Done, or not."},
    ]


Run = Callable[[Sequence[str], Path, dict[str, str]], "subprocess.CompletedProcess[str]"]
"""Runs a Python with arguments, in a folder and an environment, to its end."""


def of(python: str) -> Run:
    """Started anew each time, as a person does."""

    def run(words: Sequence[str], folder: Path, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
        command = [python, *words]
        return subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
        )

    return run


def walk(started: Run) -> Iterator[Tried]:
    """The script, line by line, in a folder of its own."""
    with tempfile.TemporaryDirectory() as name, model() as served:
        folder = Path(name)
        lay_out(folder)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "JOURNEYMAN_", "PYTHONDONT"))}
        for typed, wanted in SCRIPT:
            line = typed.replace("MODEL", served)
            if "RUN" in typed + wanted:
                runs = sorted((folder / ".journeyman" / "runs").glob("custom*"))
                run = runs[0].name if runs else "RUN"
                line, wanted = line.replace("RUN", run), wanted.replace("RUN", run)
            if "TRACE" in typed:
                listed = started(_words("journeyman traces list --text date --json"), folder, kept)
                line = line.replace("TRACE", json.loads(listed.stdout.splitlines()[-1])["traces"][0]["id"])
            before = _used()
            done = started(_words(line), folder, kept)
            yield Tried(
                typed=typed,
                wanted=wanted.removeprefix(TOLD),
                told=wanted.startswith(TOLD),
                code=done.returncode,
                said=done.stdout + done.stderr,
                cpu=_used() - before,
            )


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _words(line: str) -> list[str]:
    """A line as the arguments of a Python."""
    program, *rest = shlex.split(line)
    return [*(["-m", "journeyman"] if program == "journeyman" else []), *rest]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    for each in walk(of(str(Path(options.python).absolute()))):
        found.append(each)
        if not options.json:
            word = ("told" if each.told else "works") if each.fine else "NO"
            print(
                f"{word:5} {each.cpu:5.2f} s  {each.typed}"
                + ("" if each.fine and not each.told else f"\n          {each.sentence}")
            )
    counts = {"tried": len(found), "work": sum(each.fine and not each.told for each in found),
              "told": sum(each.fine and each.told for each in found)}  # fmt: skip
    looks = {each.typed: round(each.cpu, 2) for each in found if each.typed in LOOKS}
    wrong = [each.typed for each in found if not each.fine]
    told: dict[str, object] = {**counts, "cpu_seconds_of_looks": looks, "wrong": wrong}
    print(json.dumps(told) if options.json else "\n".join(f"{name}: {value or 'none'}" for name, value in told.items()))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
