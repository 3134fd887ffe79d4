"""What is learned from recorded traces holds nobody's data: not in files, not on the screen, not in what programs read."""

import json
import logging
from pathlib import Path

import pytest

from journeyman.cli import main
from journeyman.stores import open_store, open_traces
from tests.support.gossip import VALUES, files_below, kept_enums, leaked, personal_traces

pytestmark = pytest.mark.service

REFLECTOR = "tests.support.gossip:Gossip"
SERVED = ["--model", "tests.support.gossip:Silent"]
COMMAND = [
    "train",
    "playbook",
    "--from",
    "traces",
    "--last",
    "3650d",
    "--held-out-share",
    "0.1",
    "--reflector-model",
    REFLECTOR,
]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("gossip")
    traces, planted = personal_traces()
    (folder / ".journeyman").mkdir()
    with open_traces(str(folder / ".journeyman" / "journeyman.db")) as store:
        store.add(traces)
    return folder, planted


def test_of_500_planted_values_none_leaves_the_traces(
    values: tuple[Path, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder, planted = values
    monkeypatch.chdir(folder)
    caplog.set_level(logging.DEBUG)
    assert len(planted) == VALUES
    said = []
    for more in (["--dry-run"], ["--dry-run", "--json"], [*SERVED, "--json"], ["--no-evaluate"]):
        assert main([*COMMAND, *more]) == 0
        read = capsys.readouterr()
        said.append(read.out + read.err)
    found = json.loads(said[2].splitlines()[-1])["slots"][0]
    files = files_below(folder)
    with open_store(str(folder / ".journeyman" / "journeyman.db")) as store:
        candidate = store.candidate(found["candidate"])
    assert candidate is not None
    assert found["shown"] > 0
    assert len(list(leaked(planted, repr([trace.steps for trace in personal_traces()[0]])))) > 0.95 * VALUES
    assert any("reflections.jsonl" in name for name in files)
    places = {**files, "candidate": candidate.body, "log": caplog.text}
    places |= {f"output {number}": text for number, text in enumerate(said)}
    assert {name: gone for name, text in places.items() if (gone := list(leaked(planted, text)))} == {}
    # One that names a privilege ("premium economy") waits for a person, and is kept.
    assert kept_enums(files["playbooks/desk-travel.json"]) >= 0.95
