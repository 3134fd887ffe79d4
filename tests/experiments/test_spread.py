"""The same bytes whoever does the work: scoring, validation, generation, evaluation of agents, collection."""

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from journeyman.cli import main
from journeyman.experiments.task_generation.generate import FOLDER
from journeyman.io.executors.local import Processes
from tests.support import jobs, postgres, repository_tasks
from tests.support.repositories import package
from tests.support.wheels import without_network

SAMPLE = Path(__file__).parents[1] / "data" / "tau-bench" / "gpt-4o-airline-sample.jsonl"
WORKERS = [pytest.param("local:2", marks=pytest.mark.service), pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with tasks that were made in it."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_network(monkeypatch, folder / "wheels")
        monkeypatch.chdir(folder)
        package(folder)
        repository_tasks.environment(folder / FOLDER)
        assert main(["tasks", "generate", "--from", "parcels", *_FEW, "-o", "here.jsonl", "--json"]) in (0, 1)
        yield folder


_FEW = ("--categories", "bug_fix=3,docs=1", "--count", "4")


@pytest.fixture(scope="module")
def workers(request: pytest.FixtureRequest, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Who does the work, in the project's folder, for all tests of this module."""
    if request.param != "postgres":
        yield request.param
        return
    pytest.importorskip("procrastinate", reason="needs the extra: pip install 'journeyman[workers]'")
    with pytest.MonkeyPatch.context() as monkeypatch, postgres.database() as url:
        jobs.install(tmp_path_factory.mktemp("package"), monkeypatch)
        with jobs.worker(url, "--processes", "1"), jobs.worker(url, "--processes", "1"):
            yield url


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = main([*arguments, "--json"])
    out = capsys.readouterr()
    assert code in (0, 1), out.err
    found: dict[str, Any] = json.loads(out.out)
    return found


_ASKED = ({"role": "user", "content": "Write a program"},)


@pytest.mark.parametrize("workers", WORKERS, indirect=True)
def test_scores_are_the_same_bytes_whoever_computes_them(
    workers: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = ("total = sum(range({n}))", "raise SystemExit({n})", "assert {n} > 3", "print('\\0\"{n}\"')")
    replies = [f"```python\n{programs[n % 4].format(n=n)}\n```" for n in range(12)]
    rows = [
        {"task_id": f"t{n // 4}", "messages": [*_ASKED, {"role": "assistant", "content": text}]}
        for n, text in enumerate(replies)
    ]
    (project / "programs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for who, out in (("here", "a.jsonl"), (workers, "b.jsonl")):
        said(capsys, "score", str(SAMPLE), "programs.jsonl", "--no-cache", "--workers", who, "--out", out)
    assert digest(project / "a.jsonl") == digest(project / "b.jsonl")
    told = [json.loads(line)["rewards"]["code_execution"]["score"] for line in (project / "b.jsonl").read_text().splitlines()]
    assert told[-12:] == [1, 0, 0, 1, 1, 0, 1, 1, 1, 0, 1, 1]


@pytest.mark.parametrize("workers", WORKERS, indirect=True)
def test_tasks_are_the_same_bytes_whoever_tries_them(workers: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "tasks", "generate", "--from", "parcels", *_FEW, "-o", "there.jsonl", "--force", "--workers", workers)
    assert digest(project / "here.jsonl") == digest(project / "there.jsonl")


# By those who are furthest away alone: each way searches all files that a sandbox shows, which takes long.
@pytest.mark.parametrize("workers", WORKERS[1:], indirect=True)
def test_tasks_are_found_sound_whoever_examines_them(workers: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = (project / "here.jsonl").read_text().splitlines(keepends=True)
    (project / "two.jsonl").write_text("".join(tasks[:2]))
    here, there = (said(capsys, "tasks", "validate", "two.jsonl", "--workers", who) for who in ("here", workers))
    costs = ("cpu_seconds", "runs")
    assert {k: v for k, v in here.items() if k not in costs} == {k: v for k, v in there.items() if k not in costs}
    assert here["runs"] == there["runs"] > 0


@pytest.mark.parametrize("workers", WORKERS, indirect=True)
def test_agents_are_measured_the_same_whoever_lets_them_attempt(
    workers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ("evaluate", "agent", "--tasks", "here.jsonl", "--agent", "reference", "--against", "nothing")
    measured = []
    for who in ("here", workers):
        # Looks at the same held-out tasks are counted, in one store.
        monkeypatch.setenv("JOURNEYMAN_STORE", f"{workers[:5]}-{who[:5]}.db")
        measured.append(said(capsys, *told, "--workers", who))
    here, there = measured
    assert {k: v for k, v in here.items() if k != "run"} == {k: v for k, v in there.items() if k != "run"}
    assert (here["baseline"], here["candidate"]) == (0, 1)


@pytest.mark.parametrize("workers", WORKERS, indirect=True)
def test_what_was_recorded_comes_in_the_same_whoever_reads_it(
    workers: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exports = project / "exports"
    exports.mkdir(exist_ok=True)
    rows = SAMPLE.read_text().splitlines(keepends=True)
    for at in range(3):
        (exports / f"{at}.jsonl").write_text("".join(rows[at::3]))
    (exports / "broken.jsonl").write_text(rows[0] + '{"messages": 7}\n')
    digests = set()
    for at, who in enumerate(("here", workers)):
        store = f"collected-{workers[:5]}-{at}.db"
        found = said(capsys, "collect", "exports", "--store", store, "--workers", who)
        assert (found["traces"], len(found["errors"])) == (len(rows) + 1, 1)
        assert main(["traces", "export", "--store", store, "--out", "traces.jsonl"]) == 0
        capsys.readouterr()
        digests.add(digest(project / "traces.jsonl"))
    assert len(digests) == 1


@pytest.mark.postgres
def test_a_worker_killed_midway_costs_nothing_and_nothing_is_there_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("procrastinate", reason="needs the extra: pip install 'journeyman[workers]'")
    from journeyman.io import executors

    jobs.install(tmp_path / "package", monkeypatch)
    log = tmp_path / "log"
    items = [{"number": number, "sleep": 0.2, "log": str(log)} for number in range(24)]
    with (
        postgres.database() as url,
        jobs.worker(url, "--processes", "1") as first,
        jobs.worker(url, "--processes", "1"),
        executors.load(f"postgres:{url}") as pool,
    ):
        results = pool.map(jobs.square, items)
        found = [next(results) for _ in range(4)]
        first.kill()
        began = time.monotonic()
        found += results
        with psycopg.connect(url) as connection:
            for table in ("procrastinate_jobs", "journeyman_items", "journeyman_results"):
                assert connection.execute(f"select count(*) from {table}").fetchone() == (0,), table
    assert found == [number**2 for number in range(24)]
    assert time.monotonic() - began < 60
    # What the killed one was at is done again; its result is there once.
    done = sorted(map(int, log.read_text().split()))
    assert set(done) == set(range(24))
    assert len(done) <= 25


@pytest.mark.postgres
def test_sigterm_lets_a_worker_finish_its_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("procrastinate", reason="needs the extra: pip install 'journeyman[workers]'")
    from journeyman.io import executors

    jobs.install(tmp_path / "package", monkeypatch)
    log = tmp_path / "log"
    items: list[dict[str, Any]] = [{"number": 0}, {"number": 7, "sleep": 2, "log": str(log)}]
    with postgres.database() as url, jobs.worker(url, "--processes", "1") as worker, executors.load(f"postgres:{url}") as pool:
        results = pool.map(jobs.square, items)
        assert next(results) == 0
        time.sleep(0.7)
        worker.terminate()
        assert next(results) == 49
        assert worker.wait(timeout=20) == 0
    assert log.read_text() == "7\n"


@pytest.fixture(scope="module")
def process() -> Iterator[Processes]:
    """What a worker lets do its work."""
    with Processes(1) as pool:
        yield pool


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"job": "os:system", "item": '{"command": "id"}'}, "a worker does no 'os:system'"),
        ({"job": "read", "item": '{"paths": ["/etc/passwd"], "format": null}'}, "outside of the folder"),
        ({"job": "read", "item": '{"paths": ["../x"], "format": null}'}, "outside of the folder"),
        ({"job": "read", "item": '{"paths": ["x"], "format": "os:system"}'}, "workers know"),
        ({"job": "score", "item": '{"rewards": {"learned": {}}, "rows": []}'}, "knows no reward 'learned'"),
        ({"job": "score", "item": "7"}, "no object of JSON"),
        ({"job": "score", "item": '{"rewards": {}, "rows": [], "more": 1}'}, "more: Extra inputs"),
        ({"job": "score", "item": '{"rewards": {}, "rows": []}', "version": "0.0"}, "install the same"),
        ({"job": "score", "item": '{"rewards": {}, "rows": []}', "seconds": "soon"}, "no number of seconds"),
    ],
)
def test_a_worker_does_only_what_it_knows_and_only_in_its_own_folder(
    process: Processes, asked: dict[str, Any], why: str
) -> None:
    pytest.importorskip("procrastinate", reason="needs the extra: pip install 'journeyman[workers]'")
    from importlib.metadata import version

    from journeyman.io.executors.postgres import _outcome

    found = _outcome(process, {"version": version("journeyman"), **asked})
    assert why in str(found.get("raised"))
