"""Whether a team's secrets and personal data stay out of the store, and how much else is masked that is neither.

    python -m benchmarks.bench_collect
    python -m benchmarks.bench_collect --secrets 500 --personal 500 --json

Some 500 secrets of all known kinds and 500 personal data are planted in eight formats, each in every one of them: sessions of
seven coding agents, and an mbox. They are collected by the command, and then looked for in the bytes of the store's files (the
write-ahead log among them), and in every trace and document as it is read back, since contents are packed. A plant counts only
where a word that was put beside it has come in. Lines in which nobody planted anything, of packages, of this project and made
up of what logs are full of, are masked to see how many change.

Budget: no secret, at most 5 % of each kind of personal data, and at most 0.5 % of the lines.
"""

import argparse
import json
import mailbox
import os
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from email.message import EmailMessage
from io import StringIO
from pathlib import Path
from typing import Any

from journeyman.cli import main as journeyman
from journeyman.stores.documents import open_documents
from journeyman.stores.traces.base import Query
from journeyman.tracing.personal import Personal
from journeyman.tracing.redaction import Redactor
from tests.support import agent_sessions, personal, secrets

STORE = ".journeyman/journeyman.db"
FORMATS = (*agent_sessions.WRITERS, "messages")
MISSED, WRONG = 0.05, 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """Something that must not be kept."""

    kind: str
    text: str
    value: str
    secret: bool


def plants(secret: int, private: int, seed: int) -> list[Plant]:
    """So many of each, of all kinds in turn."""
    kinds = list(secrets.planted())
    chance = random.Random(seed)
    found = [
        Plant(kind=kind, text=text, value=value, secret=True)
        for number in range(secret)
        for kind in [kinds[number % len(kinds)]]
        for text, value in [secrets.planted(seed + number // len(kinds))[kind]]
    ]
    for number in range(private):
        kind = personal.PLANTED[number % len(personal.PLANTED)]
        text, value = personal.planted(kind, chance)
        found.append(Plant(kind=kind, text=text, value=value, secret=False))
    return found


class Planting:
    """Gives plants in turn, each with a word of its own beside it, which is looked for afterwards."""

    def __init__(self, found: Sequence[Plant], name: str) -> None:
        self._found, self._name, self.given = found, re.sub(r"\W", "", name), 0

    def say(self) -> str:
        self.given += 1
        return f"{self.word(self.given - 1)}: {self._found[(self.given - 1) % len(self._found)].text}"

    def word(self, number: int) -> str:
        """Letters alone: what has digits could be taken for a key."""
        return f"mark{self._name}" + "".join(chr(ord("a") + int(digit)) for digit in f"{number:06d}")


def write(home: Path, name: str, planting: Planting, count: int) -> list[str]:
    """Sessions or mails with all plants in them; what to type behind `journeyman collect`."""
    if name == "messages":
        box = mailbox.mbox(home / "team.mbox")
        for number in range(count):
            mail = EmailMessage()
            mail["From"], mail["To"] = "noreply@example.org", "noreply@example.org"
            mail["Subject"], mail["Message-ID"] = f"of the day {number}", f"<{number}@mail.invalid>"
            mail["Date"] = "Tue, 01 Sep 2026 08:00:00 +0000"
            mail.set_content(f"We looked at it again.\n\n{planting.say()}\n")
            box.add(mail)
        box.close()
        return [name, str(home / "team.mbox")]
    for seed in range(200):
        # Not all that is written is read: titles are not, nor what stands beside a message.
        if planting.given >= 2 * count:
            break
        agent_sessions.write(home, name, 25, seed=seed, say=planting.say)
    return [name, str(home / "work")] if name == "aider" else [name]


def collect(arguments: Sequence[str]) -> Mapping[str, Any]:
    """What the command printed."""
    out = StringIO()
    with redirect_stdout(out):
        code = journeyman(["collect", *arguments, "--max-samples", "1000000", "--json"])
    if code:
        raise SystemExit(f"collect {' '.join(arguments)} ended with {code}: {out.getvalue()[-2000:]}")
    found: Mapping[str, Any] = json.loads(out.getvalue().splitlines()[-1])["sources"][0]
    return found


def planted(folder: Path, found: Sequence[Plant]) -> dict[str, Any]:
    """All plants in all formats, and what of them is in the store afterwards."""
    home = folder / "home"
    (home / "project").mkdir(parents=True)
    os.chdir(home / "project")
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME"):
        os.environ.pop(name, None)
    os.environ["HOME"] = str(home)
    plantings = {name: Planting(found, name) for name in FORMATS}
    rows = {name: collect(write(home, name, planting, len(found))) for name, planting in plantings.items()}
    with open_documents(STORE) as store:
        read_back = "\n".join(
            [*(repr(trace) for trace in store.traces(Query())), *(repr(document) for document in store.documents())]
        )
        # While it is open: what was written last stands in the write-ahead log.
        raw = b"".join(path.read_bytes() for path in sorted(Path(".journeyman").glob("journeyman.db*")))
    reached: dict[str, set[int]] = {
        name: {number % len(found) for number in range(planting.given) if planting.word(number) in read_back}
        for name, planting in plantings.items()
    }
    left = [(each, where) for each in found for where in _where(each.value, read_back, raw)]
    everywhere = set.union(*reached.values())
    kinds = Counter(each.kind for each in found if not each.secret)
    missed = Counter(kind for kind, _ in {(each.kind, each.value) for each, _ in left if not each.secret})
    return {
        "formats": {name: {"plants": len(reached[name]), "redacted": sum(rows[name]["redacted"].values())} for name in FORMATS},
        "plants": len(found),
        "came_in": len(everywhere),
        "store_bytes": len(raw),
        "secrets": sum(each.secret for each in found),
        "secrets_left": sorted({(each.kind, where) for each, where in left if each.secret}),
        "personal": {kind: {"planted": kinds[kind], "left": missed[kind]} for kind in kinds},
        "personal_examples": sorted({each.text for each, _ in left if not each.secret})[:20],
    }


def _where(value: str, read_back: str, raw: bytes) -> Iterator[str]:
    if value in read_back:
        yield "read back"
    if value.encode() in raw:
        yield "bytes"


# Lines that hold nothing of either kind.


_LINES = (
    "2026-09-1# 08:^1:07.###### INFO took #### ms",
    "commit ????????????????????????????????????????",
    "index ???????..??????? 100644",
    "request ????????-????-4???-a???-???????????? took 0.### s",
    "10.^#.^#.^ :^### GET /orders/########",
    "order ^######### was paid with ^#.## EUR",
    "loss 0.###### lr 0.####e-05 step #####",
    "time.time() = 17########.######",
    "@@ -^##,^# +^##,^# @@ def f(x):",
    "sha256:????????????????????????????????????????????????????????????????",
    "numpy==^.^#.^ (from -r requirements.txt)",
    "^## passed, ^# failed in ^#.##s (0:0^:1#)",
    "tokens: ^##,### in, #### out; id=msg_????????????????????",
    "x = [^##, ^##, ^##, ^##, ^##, ^##]",
    "port ^###, pid ^####, tid ^##############",
)
"""Of logs: `#` stands for a digit, `^` for one that is not 0, `?` for one of a digest."""
_SIGNS = {"#": "0123456789", "^": "123456789", "?": "0123456789abcdef"}


def made_up(count: int, seed: int) -> Iterator[str]:
    """Lines of logs: numbers, times, digests and ids of all sorts."""
    chance = random.Random(seed)
    for number in range(count):
        yield re.sub(r"[#^?]", lambda sign: chance.choice(_SIGNS[sign[0]]), _LINES[number % len(_LINES)])


def lines_of(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        for path in sorted(path for ending in ("*.py", "*.md", "*.rst", "*.toml", "*.cfg") for path in folder.rglob(ending)):
            yield from path.read_text(encoding="utf-8", errors="replace").splitlines()


def masked(lines: Iterable[str]) -> dict[str, Any]:
    """How many lines of a corpus change, by kinds. An address of mail in one is an address: it is told apart, and not wrong."""
    private = Personal(b"k" * 32)
    redactor = Redactor((), private)
    count, changed, mails = 0, 0, 0
    examples: list[str] = []
    kinds: Counter[str] = Counter()
    for line in filter(str.strip, lines):
        count += 1
        before = redactor.found + private.found
        if redactor.text(line) == line:
            continue
        now = (redactor.found + private.found) - before
        kinds += now
        if now.keys() == {"email"}:
            mails += 1
            continue
        changed += 1
        if len(examples) < 12:
            examples.append(line.strip()[:160])
    share = changed / count if count else None
    return {"lines": count, "changed": changed, "share": share, "mails": mails, "kinds": dict(kinds), "examples": examples}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--secrets", type=int, default=500)
    parser.add_argument("--personal", type=int, default=500)
    parser.add_argument("--lines", type=int, default=30_000, help="made up as logs have them")
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="a folder of sources, too; may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    here = Path(__file__).parent.parent
    corpora: dict[str, Iterable[str]] = {
        "made up": made_up(arguments.lines, arguments.seed),
        "this project": lines_of([here / "src", here / "docs"]),
        **{path.name: lines_of([path.resolve()]) for path in arguments.corpus},
    }
    found: dict[str, Any] = {"wrong": {name: masked(lines) for name, lines in corpora.items()}}
    with tempfile.TemporaryDirectory() as folder:
        found |= planted(Path(folder), plants(arguments.secrets, arguments.personal, arguments.seed))
        os.chdir(here)
    lines = sum(each["lines"] for each in found["wrong"].values())
    found["wrong_share"] = sum(each["changed"] for each in found["wrong"].values()) / lines
    found["within_budget"] = (
        found["came_in"] == found["plants"]
        and not found["secrets_left"]
        and all(each["left"] <= MISSED * each["planted"] for each in found["personal"].values())
        and found["wrong_share"] <= WRONG
    )
    print(json.dumps(found, indent=None if arguments.json else 1))
    return 0 if found["within_budget"] else 1


if __name__ == "__main__":
    sys.exit(main())
