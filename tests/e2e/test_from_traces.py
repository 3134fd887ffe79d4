"""From live traces to a candidate and on to live traffic: `serve`, stock clients whose tool refuses, two commands."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman.experiments.playbook.from_traces import gather
from journeyman.optimizers.playbook.evidence import EvidenceGroup, evidence_groups
from journeyman.optimizers.playbook.safeguards import cut_echoes
from journeyman.stores.traces import open_traces
from journeyman.tasks.desk.customers import orders
from tests.serving.gateway.test_process import served, stopped, until
from tests.support import warm
from tests.support.clerk import clerk
from tests.support.desk_customers import visits

pytestmark = pytest.mark.service

RULES = {
    "dates: day first, with dots", "prices: in cents", "address: call the field place", "cities: capital letters",
    "rush: high or low",
}  # fmt: skip


@pytest.fixture(scope="module")
def up() -> Iterator[str]:
    """A clerk that knows what each customer wants, and no house's ways."""
    with clerk() as url:
        yield url


def run(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = warm.run("-m", "journeyman", *arguments, "--json", cwd=folder, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.training
def test_what_an_api_refused_becomes_rules_that_are_checked_and_served(tmp_path: Path, up: str) -> None:
    tasks = orders("oslo", 130)
    with served(tmp_path, "--upstream", f"{up}/v1", "--no-pages") as (url, process):
        taken = visits(url, "oslo", tasks[:110], customers=110)
        assert sum(taken) < 0.2 * len(taken)
        assert until(lambda: sum(len(trace.calls) == 2 for trace in gathered(tmp_path)) == 110)

        planned = run(tmp_path, "train", "playbook", "--from", "traces", "--reflector-model", "embedded", "--dry-run")
        (slot,) = planned["slots"]
        assert (slot["agent"], slot["domain"], slot["traces"]) == ("desk", "oslo", 110)
        assert slot["examined"]["attempts"] >= 30

        learned = run(tmp_path, "train", "playbook", "--from", "traces", "--reflector-model", "embedded", "--no-leave-one-out")
        (slot,) = learned["slots"]
        assert slot["verdict"] == "checked", slot["reason"]
        assert slot["examination"]["candidate"] >= 0.95
        assert slot["calls"] <= sum(planned["slots"][0]["calls"].values())
        rows = json.loads((tmp_path / slot["playbook_path"]).read_text())["bullets"]
        assert {row["content"] for row in rows} == RULES
        known = {trace.id for trace in gathered(tmp_path)}
        for row in rows:
            told = row["provenance"]
            assert told["origin"] == "environment"
            assert told["principals"] >= 3
            assert len(told["traces"]) >= 3
            assert set(told["traces"]) <= known

        # Nothing is new: nobody is asked again.
        (again,) = run(tmp_path, "train", "playbook", "--from", "traces", "--reflector-model", "embedded")["slots"]
        assert (again["calls"], again["candidate"], again["verdict"]) == (0, slot["candidate"], "checked")

        # What is checked may be shown to a share of new sessions; here to all of them.
        about = ("--agent", "desk", "--domain", "oslo", "--share", "1")
        run(tmp_path, "releases", "start", slot["candidate"], *about, "--reason", "the API's refusals taught it")
        assert until(lambda: sum(visits(url, "oslo", tasks[110:114], customers=4, first=1000)) == 4)
        assert sum(visits(url, "oslo", tasks[114:], customers=16, first=2000)) >= 15
        assert stopped(process) == 0


def gathered(folder: Path) -> list[Any]:
    with open_traces(str(folder / ".journeyman/journeyman.db"), make=False) as store:
        return list(store.traces())


# The same from every wire.


def groups_of(folder: Path) -> list[EvidenceGroup]:
    with open_traces(str(folder / ".journeyman/journeyman.db"), make=False) as store:
        (found,) = gather(store.traces())
    assert all(attempt.principal_known for attempt in found.attempts)
    return evidence_groups(found.attempts, cut=cut_echoes)


def told_by(groups: list[EvidenceGroup]) -> list[tuple[str, str, str, int, int]]:
    return sorted((g.tool, g.argument, g.template, len(g.principals), len(g.members)) for g in groups)


def recorded_by(wire: str, folder: Path, up: str) -> list[tuple[str, str, str, int, int]]:
    """The evidence in 110 orders that came by a wire."""
    folder.mkdir()
    with served(folder, "--upstream", up if wire == "messages" else f"{up}/v1", "--no-pages") as (url, process):
        visits(url, "oslo", orders("oslo", 110), wire=wire, customers=110, server=up)
        assert until(lambda: sum(len(trace.calls) == 2 for trace in gathered(folder)) == 110, 60)
        assert stopped(process) == 0
    return told_by(groups_of(folder))


@pytest.fixture(scope="module")
def by_chat(up: str, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str, int, int]]:
    found = recorded_by("chat", tmp_path_factory.mktemp("recorded") / "chat", up)
    assert found
    return found


@pytest.mark.training
@pytest.mark.parametrize("wire", ["stream", "messages", "responses", "otlp"])
def test_every_wire_gives_the_same_evidence_and_rules_that_are_checked(
    tmp_path: Path, up: str, by_chat: list[tuple[str, str, str, int, int]], wire: str
) -> None:
    folder = tmp_path / wire
    assert recorded_by(wire, folder, up) == by_chat
    # Nobody has seen who answers an agent that only reports.
    named = ("--model", f"openai:clerk@{up}/v1") if wire == "otlp" else ()
    more = ("--reflector-model", "embedded", "--no-leave-one-out", *named)
    (slot,) = run(folder, "train", "playbook", "--from", "traces", *more)["slots"]
    assert slot["verdict"] == "checked", slot["reason"]
    rows = json.loads((folder / slot["playbook_path"]).read_text())["bullets"]
    assert {row["content"] for row in rows} == RULES
