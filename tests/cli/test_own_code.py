"""Somebody's own reward, importer or optimizer that is broken: one sentence that names it, and nothing lost."""

import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core import extension, registry
from journeyman.core.errors import InputError
from journeyman.core.trace import Trace
from journeyman.models import embedders
from journeyman.rewards.base import BaseReward, RewardResult, judged, soft
from journeyman.tracing.importers import reading
from tests.support.traces import said

ROWS = (
    '{"id": "a", "messages": [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Oslo. Thank you!"}]}\n'
    '{"id": "b", "messages": [{"role": "user", "content": "And 8?"}, {"role": "assistant", "content": "Look it up."}]}\n'
)
REWARD = """
from journeyman import BaseReward
from journeyman.rewards.base import binary, soft

class {name}(BaseReward):
    name = "polite"
"""

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Write:
    """Writes a module into the working folder, and says how it is called."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("rows.jsonl").write_text(ROWS)
    made = 0

    def write(text: str) -> str:
        nonlocal made
        made += 1
        name = f"mine_{made}_{abs(hash(request.node.name))}"
        Path(f"{name}.py").write_text(text)
        return name

    return write


def told(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    """What a command says on stderr and ends with."""
    assert main(list(arguments)) == code
    return capsys.readouterr().err


# Rewards.


def test_a_rewards_verdicts_are_made_anew_when_anything_in_its_file_has_changed(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """The class stays the same; a constant and a function beside it do not."""
    text = (
        "from journeyman import BaseReward\nfrom journeyman.rewards.base import binary\n"
        'WORD = "thank"\ndef says(text): return WORD in text.lower()\n'
        'class Polite(BaseReward):\n    name = "polite"\n'
        '    def compute(self, trace): return binary(says(trace.reply), "it says so")\n'
    )

    def scored(name: str) -> dict[str, Any]:
        assert main(["score", "rows.jsonl", "--rewards", f"{name}:Polite", "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    first = write(text)
    assert (scored(first)["mean"], scored(first)["cached"]) == (0.5, 2)
    assert "2 verdicts from before" in told(capsys, 0, "score", "rows.jsonl", "--rewards", f"{first}:Polite")
    for changed in (text.replace('"thank"', '"never"'), text.replace("in text.lower()", "not in text.lower() * 0")):
        again = scored(write(changed))
        assert again["cached"] == 0
    assert again["mean"] == 1.0


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("    def compute(self, trace): return {}['x']", r"ended in KeyError: 'x' \(mine_\S+\.py:7\)"),
        ("    def compute(self, trace): return 0.5", "compute gave a float, and no RewardResult"),
        ("    def compute(self, trace): return soft(2.0, 'so')", r"from 0 to 1, .* is 2\.0 \(mine_\S+\.py:7\)"),
        ("    def compute(self, trace): return soft(float('nan'), 'so')", "this one is nan"),
        ("    def compute(self, trace): return binary(True, 'so', found={1, 2})", "ended in TypeError: Object of type set"),
    ],
)
def test_a_reward_that_fails_leaves_an_unknown_verdict_that_says_why(
    write: Write, capsys: pytest.CaptureFixture[str], body: str, why: str
) -> None:
    whole = REWARD.format(name="Mine") + body
    name = write(whole)
    said = told(capsys, 2, "score", "rows.jsonl", "--rewards", f"{name}:Mine,task_completion")
    assert "polite: 2 verdicts not reached; the reward 'polite' failed on trace 'a': " in said
    assert re.search(why, said), said
    Path("task.json").write_text('{"question": "Where?"}')
    Path("said.txt").write_text("In Oslo.")
    assert main(["score", "--task", "task.json", "--output", "said.txt", "--rewards", f"{name}:Mine"]) == 2
    capsys.readouterr()
    # One trace that it can deal with is worth something, and what failed is asked again the next time.
    half = whole.replace("return ", "return binary(True, 'so') if trace.id == 'a' else ")
    name = write(half)
    for _ in range(2):
        assert main(["score", "rows.jsonl", "--rewards", f"{name}:Mine", "--json"]) == 1
        found = json.loads(capsys.readouterr().out)
        assert found["rewards"]["polite"] == {
            "mean": 1.0, "known": 1, "unknown": 1, "weight": 1.0, "unreachable": 1, "broken": 1,
        }  # fmt: skip


def test_a_reward_that_cannot_be_made_is_refused_in_one_sentence(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    compute = "    def compute(self, trace): return binary(True, 'so')\n"
    name = write(
        REWARD.format(name="Heavy") + '    weight = "heavy"\n' + compute
        + REWARD.format(name="Asks") + "    def __init__(self, threshold): ...\n" + compute
        + REWARD.format(name="Raises") + "    def __init__(self): raise RuntimeError('no luck')\n" + compute
        + REWARD.format(name="Abstract") + "    def computes(self, trace): ...\n"
        + REWARD.format(name="Odd") + compute + "    @property\n    def version(self): return 1 / 0\n"
        + "\nclass Bare:\n    def compute(self, trace): ...\n"
        + "\nNOTHING = 3\n"
    )  # fmt: skip
    for attribute, why in (
        ("Heavy", "the reward 'polite' has the weight 'heavy'; weights are 0 or more"),
        ("Asks", "cannot be made so: missing a required argument: 'threshold'; it is made without arguments"),
        ("Raises", f"the reward '{name}:Raises' ended in RuntimeError: no luck ({name}.py:23)"),
        ("Abstract", "cannot be made so: it lacks compute; see docs/extend-reward.md"),
        ("Odd", "ended in ZeroDivisionError: division by zero"),
        ("Bare", "is none: it lacks name, weight, version; see docs/extend-reward.md"),
        ("NOTHING", "is none: it lacks name, weight, version, compute"),
    ):
        said = told(capsys, 2, "score", "rows.jsonl", "--rewards", f"{name}:{attribute}")
        assert why in said, attribute
        assert said.count("\n") == 1


class Half(BaseReward):
    name = "half"

    def compute(self, trace: Trace) -> RewardResult:
        return soft(0.5, "so")


def test_a_score_out_of_range_cannot_be_made() -> None:
    for score in (2.0, -0.1, float("inf"), float("nan"), "much"):
        with pytest.raises(ValueError, match="a score is a number from 0 to 1"):
            RewardResult(score=score)  # type: ignore[arg-type]
    assert judged(Half(), said("words")).score == 0.5


# Importers.

IMPORTER = """
from datetime import UTC, datetime
from journeyman import ModelCall, Trace
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import Format, WholeFile

AT = datetime(2026, 11, 2, tzinfo=UTC)

def made(record, reply="In Oslo."):
    call = ModelCall(model="small", prompt="?", reply=reply)
    return RecordedTrace(trace=Trace(id=str(record["ticket"]), task_id="t", candidate_id="base", started_at=AT, steps=(call,)))

class Good:
    unique = True
    def recognises(self, record): return "ticket" in record
    def read(self, record): yield made(record)

class Raises(Good):
    def recognises(self, record): return record["ticket"] > 0

class Text(Good):
    def read(self, record): yield made(record) if record["ticket"] == 7 else "a trace"

class Fields(Good):
    def read(self, record): yield made(record, reply="In Oslo." if record["ticket"] == 7 else 5)

class Breaks(Good):
    def read(self, record): yield made(record) if record["ticket"] == 7 else record["answer"]

class Asks(Good):
    def __init__(self, path): ...

def table(paths):
    yield made({"ticket": 1 / 0})

TABLE = Format(name="table", whole=WholeFile(knows=lambda head: True, read=table))
"""


def test_an_importer_that_fails_on_a_record_loses_no_other(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    name = write(IMPORTER)
    Path("tickets.jsonl").write_text('{"ticket": 7}\n{"ticket": 8}\n{"ticket": 9, "answer": 1}\n')
    Path("odd.jsonl").write_text('{"ticket": 7}\n{"tickets": 8}\n')
    for attribute, file, why in (
        ("Text", "tickets.jsonl", "tickets.jsonl:2: could not be read: the importer gave a str, and no RecordedTrace"),
        ("Fields", "tickets.jsonl", "tickets.jsonl:2: steps.0.reply: "),
        ("Breaks", "tickets.jsonl", f"tickets.jsonl:2: could not be read: KeyError: 'answer' ({name}.py:28)"),
        ("Raises", "odd.jsonl", f"odd.jsonl:2: the format '{name}:Raises' failed in recognises: KeyError: 'ticket'"),
    ):
        said = told(capsys, 1, "collect", file, "--format", f"{name}:{attribute}", "--dry-run")
        assert why in said
        assert "1 trace read" in said
    said = told(capsys, 2, "collect", "rows.jsonl", "--format", f"{name}:TABLE", "--dry-run")
    assert "rows.jsonl: could not be read: ZeroDivisionError: division by zero (" in said
    said = told(capsys, 2, "collect", "tickets.jsonl", "--format", f"{name}:Asks")
    assert "cannot be made so: missing a required argument: 'path'; it is made without arguments" in said


def test_what_collect_reads_score_reads_too(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    name = write(IMPORTER)
    Path("tickets.jsonl").write_text('{"ticket": 7}\n')
    Path("tickets.csv").write_text("ticket,answer\n7,In Oslo.\n")
    assert main(["score", "tickets.jsonl", "--format", f"{name}:Good", "--rewards", "task_completion", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["traces"] == 1
    for command in ("collect", "score"):
        said = told(capsys, 2, command, "tickets.csv", "--format", f"{name}:Good")
        assert "tickets.csv: holds no JSON; an importer gets JSON records, and other files as a whole: see docs/" in said


POLITE = """
class Polite(BaseReward):
    '''Thanks.'''
    name = "polite"
    def compute(self, trace): return binary(True, "so")
"""


@pytest.fixture
def packages(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two packages with importers and a reward: one whose module cannot be imported, one that works."""
    broken, works = write("import no_such_library_at_all\n"), write(IMPORTER + REWARD.format(name="Unnamed") + POLITE)
    info = tmp_path / "tickets-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tickets\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[journeyman.importers]\na-broken = {broken}:Gone\nb-raises = {works}:Raises\nhelpdesk = {works}:Good\n"
        f"[journeyman.rewards]\npolite = {works}:Polite\nimpolite = {broken}:Gone\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry.added.cache_clear()
    return works


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    yield
    for kept in (registry.added, reading.importer, reading._working, reading._warn_once):
        kept.cache_clear()


@pytest.mark.usefixtures("packages")
def test_a_broken_package_keeps_nobody_from_their_files(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    # Ours is asked first: what it knows is shown to nobody else.
    assert main(["score", "rows.jsonl", "--rewards", "task_completion"]) == 0
    assert caplog.messages == []
    capsys.readouterr()
    Path("tickets.jsonl").write_text('{"ticket": 7}\n{"ticket": 8}\n')
    Path("neither.jsonl").write_text('{"tickets": 7}\n')
    for _ in range(2):
        assert main(["collect", "tickets.jsonl", "--dry-run", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["traces"] == 2
    told(capsys, 2, "collect", "neither.jsonl")
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "the format 'a-broken' cannot be loaded",
        "the format 'b-raises' failed in recognises",
    ]
    assert "no_such_library_at_all is missing" in caplog.messages[0]


@pytest.mark.usefixtures("packages")
def test_what_packages_add_is_named_wherever_names_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewards", "list", "--json"]) == 0
    listed = {row["name"]: row["what"] for row in json.loads(capsys.readouterr().out)["rewards"]}
    assert listed["polite"] == "Thanks"
    assert "no_such_library_at_all is missing" in listed["impolite"]
    for command in ("collect", "score"):
        assert "otlp, a-broken, b-raises, helpdesk, and your own" in told(capsys, 2, command, "rows.jsonl", "--format", "xml")
    Path("neither.jsonl").write_text('{"tickets": 7}\n')
    assert "otlp, a-broken, b-raises, helpdesk: name one with" in told(capsys, 2, "collect", "neither.jsonl")
    from journeyman.cli import doctor

    looked = {check.name: (check.state, check.detail) for check in doctor.extensions()}
    assert looked["importers: helpdesk"] == ("ok", "tickets 1.0")
    assert looked["importers: a-broken"][0] == looked["rewards: impolite"][0] == "broken"
    assert "no_such_library_at_all is missing" in looked["importers: a-broken"][1]


# Names that are not written as they should be.


def test_a_name_that_is_written_otherwise_is_answered_with_the_right_one(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write(IMPORTER)
    Path("statistics.py").write_text("class Mine: ...\n")
    for option, command in (("--rewards", "score"), ("--format", "collect")):
        for typed, meant in (
            (f"{name}.py:Good", f"a module is named without .py: {name}:Good"),
            (f"./{name}.py:Good", f"a module is named without .py: {name}:Good"),
            (name, f"{name} is a module, and the class in it is named so: {name}:Class"),
            (f"{name}.Good", f"the class stands behind a colon: {name}:Good"),
            ("statistics:Mine", "Python's own module of that name is found before your file statistics.py"),
        ):
            said = told(capsys, 2, command, "rows.jsonl", option, typed)
            assert meant in said, (typed, said)
            assert said.count("\n") == 1


def test_every_kind_is_made_in_one_way(write: Write) -> None:
    name = write("class Asks:\n    def __init__(self, much): ...\n\nclass Empty: ...\n")
    for kind, parts in extension.PARTS.items():
        with pytest.raises(InputError, match="cannot be made so: missing a required argument: 'much'"):
            extension.make(kind, f"{name}:Asks")
        with pytest.raises(InputError, match=f"is none: it lacks {', '.join(parts)}"):
            extension.make(kind, f"{name}:Empty")


# Optimizers.

OPTIMIZER = """
class Sync:
    def optimize(self, bench): return {}

class Nothing:
    async def optimize(self, bench): ...

class Letters:
    async def optimize(self, bench): return {"general": "one text"}

class Elsewhere:
    async def optimize(self, bench): return {"oslo": ["a text"]}

class Early:
    async def optimize(self, bench):
        await bench.attempt({"general": "one text"}, bench.tasks)
        return {"general": ["a text"]}

class Raises:
    async def optimize(self, bench): raise KeyError("x")
"""


def test_an_optimizer_that_fails_is_named_and_its_run_says_why_it_stopped(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write(OPTIMIZER)
    Path("sums.json").write_text(json.dumps([{"question": f"{at} + 1?", "answer": str(at + 1)} for at in range(3)]))
    given = ["train", "playbook", "--dataset", "custom", "--input", "sums.json", "--model", "scripted:3", "--no-evaluate"]
    for attribute, why in (
        ("Sync", f"the optimizer '{name}:Sync' gave a dict at once: optimize must be an `async def`"),
        ("Nothing", f"the optimizer '{name}:Nothing' gave a NoneType; texts stand in lists by domain, such as "),
        ("Letters", "gave 'one text' for 'general'; texts stand in lists by domain"),
        ("Elsewhere", "gave texts for the domain 'oslo', which no task has; there are 'general'"),
        ("Early", "gave 'one text' for 'general'; texts stand in lists by domain"),
        ("Raises", f"the optimizer '{name}:Raises' ended in KeyError: 'x' ({name}.py:20)"),
    ):
        said = told(capsys, 2, *given, "--optimizer", f"{name}:{attribute}")
        assert why in said
        assert main(["runs", "list", "--limit", "1", "--json"]) == 0
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        assert run["state"] == "stopped"
        assert why in run["result"]["reason"]
    assert not Path("playbooks").exists()


# What else can be one's own.


@pytest.mark.training
def test_crews_data_sets_and_embedders_that_fail_are_named_too(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    name = write(
        "class Raises:\n    name = 'emb'\n    def embed(self, texts): return [][0]\n\n"
        "class Flat(Raises):\n    def embed(self, texts): return [0.0]\n\n"
        "def tasks(input, held_out, *, domain, least): return {}['x']\n\n"
        "class Nobody:\n    card = None\n    def do(self): ...\n\n"
        "class Broken(Nobody):\n    @property\n    def card(self): return 1 / 0\n\n"
        "CREW, BROKEN = {'a': Nobody()}, {'a': Broken()}\n"
    )
    for attribute, why in (
        ("Raises", rf"'emb' ended in IndexError: .* \({name}\.py:3\)"),
        ("Flat", r"'emb' gave .* shape \(1,\)"),
    ):
        with pytest.raises(InputError, match=f"the embedder {why}"):
            embedders.Cached(embedders.load(f"{name}:{attribute}")).embed(["a", "b"])
    said = told(capsys, 2, "train", "playbook", "--dataset", f"{name}:tasks", "--model", "scripted:2")
    assert f"the data set '{name}:tasks' ended in KeyError: 'x' ({name}.py:8)" in said
    for crew, why in (("CREW", "is no mapping from names to workers"), ("BROKEN", "ended in ZeroDivisionError")):
        assert f"the crew '{name}:{crew}' {why}" in told(capsys, 2, "plan", "hello", "--workers-from", f"{name}:{crew}")
