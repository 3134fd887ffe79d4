"""`journeyman traces autolabel` learns from people's labels, and says when it cannot."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from journeyman.cli import root
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import AUTO, Query
from tests.test_autolabel import NOW, RUNS, good

pytestmark = pytest.mark.training


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_traces(tmp_path / "store.db") as store:
        store.add(RUNS)
    return tmp_path / "store.db"


def test_it_says_what_it_lacks_and_labels_once_it_has_it(path: Path) -> None:
    run = CliRunner()
    arguments = ["traces", "autolabel", "--store", str(path), "--json"]
    silent = run.invoke(root, arguments, standalone_mode=False)
    assert silent.return_value == 1
    assert "it takes 20 of each" in json.loads(silent.stdout)["silent"]
    assert "journeyman traces label --telling" in silent.stderr
    with open_traces(path) as store:
        for trace in RUNS[:80]:
            store.label(trace.id, good(trace), who="ann", at=NOW)
    dry = json.loads(run.invoke(root, [*arguments, "--dry-run"], standalone_mode=False).stdout)
    done = json.loads(run.invoke(root, arguments, standalone_mode=False).stdout)
    assert (dry["good"], dry["bad"]) == (done["good"], done["bad"])
    with open_traces(path) as store:
        own = [line for line in store.page(Query(), limit=1000).lines if line.labelled_by == AUTO]
    assert len(own) == done["good"] + done["bad"] > 40


def test_a_person_is_asked_first_for_what_teaches_most(path: Path) -> None:
    answers = CliRunner().invoke(
        root,
        ["traces", "label", "--telling", "--limit", "4", "--who", "ann", "--store", str(path), "--json"],
        input="y\nn\ns\ns\n",
    )
    assert json.loads(answers.stdout) == {"who": "ann", "good": 1, "bad": 1, "skipped": 2, "left": 0}
