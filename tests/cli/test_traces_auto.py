"""`journeyman traces autolabel` learns from people's labels, says what it lacks, and is held to what it said."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from journeyman.cli import root
from journeyman.core.errors import InputError
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import AUTO, Query
from journeyman.stores.traces.labels import ticket, to_audit
from tests.test_autolabel import RUNS, good

pytestmark = pytest.mark.training


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_traces(tmp_path / "store.db") as store:
        store.add(RUNS)
    return tmp_path / "store.db"


def invoke(*arguments: str, typed: str | None = None) -> tuple[int, dict[str, Any], str]:
    done = CliRunner().invoke(root, ["traces", *arguments, "--json"], standalone_mode=False, input=typed)
    assert done.exception is None, done.output
    return done.return_value or 0, json.loads(done.stdout), done.stderr


def test_from_the_first_label_to_a_withdrawal_and_back(path: Path) -> None:
    at = ("--store", str(path))
    code, silent, told = invoke("autolabel", *at)
    assert code == 1
    assert silent["silent"] == "people labelled 0 good and 0 bad; it takes 5 of each, and 22 at least that it is right about"
    assert "journeyman traces label --random" in told
    # A person goes through 50 that chance has drawn, as somebody who can tell.
    truth = {trace.id: good(trace) for trace in RUNS}
    drawn = sorted(truth, key=ticket)[:50]
    keys = "".join("y\n" if truth[id] else "n\n" for id in drawn)
    _, sat, _ = invoke("label", "--random", "--limit", "50", "--who", "ann", *at, typed=keys)
    assert (sat["good"], sat["bad"]) == (sum(truth[id] for id in drawn), 50 - sum(truth[id] for id in drawn))
    dry = invoke("autolabel", *at, "--dry-run")[1]
    code, done, _ = invoke("autolabel", *at)
    assert code == 0
    assert (dry["good"], dry["bad"]) == (done["good"], done["bad"])
    assert done["upper"] <= 0.1
    with open_traces(path) as store:
        own = {line.id: line.label for line in store.page(Query(), limit=1000).lines if line.labelled_by == AUTO}
        asked = to_audit(store.labels())
    assert len(own) == done["good"] + done["bad"] >= 55
    assert [own[id] == truth[id] for id in own].count(True) >= 0.95 * len(own)
    # Those of the audit come first where a person labels, and nobody is told what the labeler said of them.
    code, audited, _ = invoke("autolabel", "--audit", *at)
    assert (code, audited["audit"]["waiting"], audited["audit"]["answered"]) == (0, len(asked), 0)
    wrong = "".join("n\n" if own[id] else "y\n" for id in asked)
    _, sat, shown = invoke("label", "--audit", "--who", "ann", *at, typed=wrong)
    assert sat["good"] + sat["bad"] == len(asked)
    assert AUTO not in shown
    code, failed, told = invoke("autolabel", "--audit", *at)
    assert code == 1
    assert failed["audit"]["wrong"] == len(asked)
    assert "so the audit failed" in failed["silent"]
    assert "journeyman traces autolabel --undo" in told
    assert failed["withdrawn"] == len(own)
    with open_traces(path) as store:
        assert not any(line.labelled_by == AUTO for line in store.page(Query(), limit=1000).lines)
    assert invoke("autolabel", "--undo", *at)[1]["undone"] == len(own)
    with open_traces(path) as store:
        back = {line.id: line.label for line in store.page(Query(), limit=1000).lines if line.labelled_by == AUTO}
    assert back == {id: label for id, label in own.items() if id not in asked}


def test_two_things_to_do_at_once_are_refused(path: Path) -> None:
    for arguments in (("autolabel", "--audit", "--undo"), ("label", "--random", "--telling")):
        done = CliRunner().invoke(root, ["traces", *arguments, "--store", str(path)], standalone_mode=False)
        assert isinstance(done.exception, InputError)
        assert "give one of them" in str(done.exception)


def test_a_person_is_asked_first_for_what_teaches_most(path: Path) -> None:
    answers = CliRunner().invoke(
        root,
        ["traces", "label", "--telling", "--limit", "4", "--who", "ann", "--store", str(path), "--json"],
        input="y\nn\ns\ns\n",
    )
    assert json.loads(answers.stdout) == {"who": "ann", "good": 1, "bad": 1, "skipped": 2, "left": 0}
