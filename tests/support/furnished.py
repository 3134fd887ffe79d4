"""A project in which every page has something to show, and the addresses of all pages, by the routes that a server has."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from starlette.routing import BaseRoute, Route

from journeyman.core import plan
from journeyman.core.alert import AlertRule, Measurement, step
from journeyman.core.document import Document
from journeyman.core.plan import Plan, Subtask
from journeyman.core.task import Split
from journeyman.core.trace import AgentCall, Trace
from journeyman.core.turn import LearnSubject, LearnTurn, TurnEvent, TurnSpent, TurnState
from journeyman.experiments.pipeline.stages import PipelineRun, StageRecord, place_of
from journeyman.experiments.place import FOLDER
from journeyman.io.atomic import write_json
from journeyman.stores import RunRecord, RunState, open_store
from journeyman.stores.alerts import ResourceSample, open_alerts
from journeyman.stores.documents import SourceBatch, open_documents
from journeyman.stores.turns import LEASE, open_turns
from journeyman.tasks import repository
from journeyman.tasks.repository import Checks, RepositoryTask
from tests.support.projects import NEW, NOON, OLD, RUNS, learn, project
from tests.support.watched import booking


def documents(count: int) -> Iterator[Document]:
    for n in range(count):
        kind, source = (("commit", "git"), ("devlog", "devlogs"), ("message", "messages"))[n % 3]
        yield Document(
            source=source, key=f"k{n}", kind=kind, title=f"Retry on lost connection {n}" if n % 3 else "", where="shop",
            text=f"The importer gave up <at once>, for the {n}th time.", author=f"PERSON_{n % 7}", at=NOON + timedelta(hours=n),
        )  # fmt: skip


def tasks(count: int) -> list[RepositoryTask]:
    return [
        RepositoryTask(
            category=("bug_fix", "docs", "tests")[n % 3],
            repository="parcels",
            tree="0" * 16,
            environment="1" * 16,
            statement=f"Number {n}: `zone` answers <4> where it should answer 1.",
            reference={"parcels/rates.py": "RIGHT = 1\n"},
            checks=Checks(
                tests={"tests/test_rates.py": f"assert zone({n}) == 1"}, fail_to_pass=("tests/test_rates.py::test_zone",)
            ),
            source=f"parcels.rates:zone{n}",
            made_by="ast 1, seed 0",
            split=Split.HELD_OUT if n % 2 else Split.TRAIN,
        )
        for n in range(count)
    ]


def samples(hours: float, host: str = "here") -> Iterator[ResourceSample]:
    """One a minute until now, as a monitor leaves them."""
    now, minutes = datetime.now(UTC), int(60 * hours)
    for n in range(minutes + 1):
        at = now - timedelta(minutes=minutes - n)
        share = (n * 37 % 101) / 101
        yield ResourceSample(at=at, host=host, cpu=share, memory=0.5 + share / 10, disk=0.7, gpu=1 - share)
    yield ResourceSample(at=now, host=host, process="serve", cpu=0.1, memory_bytes=90_000_000)


def pipelines(folder: Path, count: int) -> None:
    """Runs of a pipeline of two stages in a project's folder."""
    home = folder / FOLDER / "pipelines"
    for n in range(count):
        id = f"{NOON + timedelta(hours=n):%Y%m%d-%H%M%S}"
        record = StageRecord(
            stage="train", key=f"{n:012x}", command=("train", "playbook", "--seed", str(n)), parts={}, state="done",
            began=NOON.isoformat(), seconds=12.5, cpu_seconds=11.0, peak_memory=90_000_000, cost=0.0, exit_code=0,
        )  # fmt: skip
        write_json(place_of(home / "look", "train", record.key).with_suffix(".json"), asdict(record))
        run = PipelineRun(
            id=id, pipeline="look", began=NOON.isoformat(), seconds=12.5, exit_code=1, reason="the gate said no",
            stages={"train": ("done", record.key), "serve": ("not reached", "")},
        )  # fmt: skip
        write_json(home / "look" / "runs" / f"{id}.json", run.json())


def questions(path: Path, folder: Path, name: str = "questions.jsonl", *, rows: int = 120, run: str = "asked") -> None:
    """A file of questions, and a run that had it."""
    lines = (json.dumps({"question": f"{n} + {n + 3}?", "answer": 2 * n + 3}) + "\n" for n in range(rows))
    (folder / name).write_text("".join(lines), encoding="utf-8")
    with open_store(path) as kept:
        kept.add_run(
            RunRecord(id=run, kind="train playbook", config={"dataset_name": "custom", "input_path": name}, started_at=NOON)
        )
        kept.mark_run(run, RunState.FINISHED, NOON + timedelta(hours=1), {})


def furnish(path: Path, folder: Path) -> None:
    """Fill a store in a file, and a project's folder, so that no page is empty."""
    project(path)
    with open_store(path) as kept:
        learn(kept)
    with open_documents(path) as written:
        for each in documents(3):
            written.keep(SourceBatch(source=each.source, documents=[each]))
    repository.write(folder / "ours.jsonl", tasks(60))
    (folder / "ours.stats.json").write_text(json.dumps({"repository": "parcels", "seed": 0, "categories": {}}))
    pipelines(folder, 2)
    questions(path, folder)
    with open_alerts(path) as alerts:
        alerts.add_samples(list(samples(24)))
        found = Measurement(rule="error_rate", breached=True, value=0.5, bound=0.05, says="2 of 4 conversations failed")
        if alert := step(AlertRule(name="error_rate", says="too many fail"), None, found, datetime.now(UTC)):
            alerts.add([alert], ("team",))
    begun = TurnEvent(number=0, state=TurnState.RUNNING, at=NOON, spent=TurnSpent(cpu_seconds=30))
    turn = LearnTurn(
        id="t1", subject=LearnSubject("playbook", "desk", "oslo"), began=NOON, trigger="60 new traces", data_digest="d",
        seen=60, events=(begun,),
    )  # fmt: skip
    with open_turns(path) as turns:
        turns.lease(LEASE, "us", NOON, 60)
        turns.begin(turn, "us")


def planned() -> Trace:
    """A plan that was carried out."""
    subtasks = (Subtask(id="read", text="Read the report"), Subtask(id="sum", text="Sum it up", after=("read",)))
    steps = [AgentCall(agent="small", id=each.id, raw={"subtask": each.id, "state": "done"}) for each in subtasks]
    raw = {"plan": plan.written(Plan(instruction="What does it say?", subtasks=subtasks))}
    return Trace(id="planned", task_id="t", candidate_id="base", started_at=NOON, steps=tuple(steps), raw=raw)


def shown() -> list[Trace]:
    """Traces that `addresses` lead to, beside one whose id is t001."""
    return [booking("s", session="visit"), planned()]


_DOCUMENT, _TASK = next(documents(1)).id, tasks(1)[0].id
NOT_FOUND = "/nothing"
_PAGES = {
    "/": ("/",),
    "/alerts": ("/alerts",),
    "/audit": ("/audit",),
    "/datasets": ("/datasets",),
    "/datasets/{name:path}": ("/datasets/questions.jsonl",),
    "/documents": ("/documents", "/documents?q=importer"),
    "/documents/{name}": (f"/documents/{_DOCUMENT}",),
    "/evaluations": ("/evaluations",),
    "/evaluations/{name:path}": (f"/evaluations/{RUNS[1]}", f"/evaluations/{RUNS[1]}?show=all"),
    "/learn": ("/learn",),
    "/login": ("/login",),
    "/performance": ("/performance", "/performance?table=day"),
    "/pipelines": ("/pipelines",),
    "/playbooks": ("/playbooks",),
    "/playbooks/{name:path}": (f"/playbooks/{NEW.id}", f"/playbooks/{NEW.id}?beside={OLD.id}"),
    "/playground": ("/playground", "/playground?trace=t001&step=4"),
    "/releases": ("/releases",),
    "/releases/{name:path}": ("/releases/context:desk%2Foslo",),
    "/runs": ("/runs",),
    "/runs/compare": (f"/runs/compare?a={RUNS[0]}&b={RUNS[1]}",),
    "/runs/{name:path}": (f"/runs/{RUNS[1]}",),
    "/sessions": ("/sessions",),
    "/sessions/{name:path}": ("/sessions/visit",),
    "/system": ("/system",),
    "/tasks": ("/tasks",),
    "/tasks/{name:path}": ("/tasks/ours.jsonl", f"/tasks/ours.jsonl?task={_TASK}&show=tests"),
    "/traces": ("/traces", "/traces?agent=desk"),
    "/traces/{name:path}": ("/traces/t001", "/traces/planned"),
    "/{path:path}": (NOT_FOUND,),
}
"""By route, addresses whose pages a project that is furnished fills."""
_NO_PAGES = {"/statistics", "/static/{name}", "/traces.jsonl"}
"""What a browser does not show: an old address, files."""


def addresses(routes: Iterable[BaseRoute]) -> list[str]:
    """At least one address for each page that a server has; what is not found comes last.

    Raises:
        KeyError: There is a page that nobody has named one for, so that no test would look at it.
    """
    pages = dict.fromkeys(
        route.path
        for route in routes
        if isinstance(route, Route) and "GET" in (route.methods or ()) and route.path not in _NO_PAGES
    )
    found = [address for page in pages for address in _PAGES[page]]
    return [*(each for each in found if each != NOT_FOUND), NOT_FOUND]
