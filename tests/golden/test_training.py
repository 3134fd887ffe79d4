"""A small training of a playbook: what it writes, to the byte, undisturbed and gone on with after every stop."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from journeyman import OfflineTrainer, PlaybookStage
from tests.support.offline import config, everywhere
from tests.support.pupil import Pupil, restless


@pytest.fixture
def pupil(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pupil:
    made = everywhere(monkeypatch, tmp_path)
    made.latency = restless(1)
    return made


def run_of(run_id: str) -> Path:
    return Path(".journeyman") / "runs" / run_id


def unnamed(run_id: str, written: bytes) -> str:
    """Without the run's name, which is made of all settings: a new one would change every line."""
    name = json.loads((run_of(run_id) / "config.json").read_text(encoding="utf-8"))["name"]
    return written.decode().replace(f'"{name}/', '"run/').replace(f'"{name}"', '"run"')


def entries(journal: str) -> str:
    """The journal without its digests, for the same reason."""
    found = [
        {key: value for key, value in json.loads(line).items() if key not in ("hash", "previous")}
        for line in journal.splitlines()
    ]
    return "".join(json.dumps(entry) + "\n" for entry in found)


def figures() -> str:
    found = json.loads(Path("metrics/offline_training_metrics.json").read_text(encoding="utf-8"))
    del found["timing"]
    return json.dumps(found, indent=2, sort_keys=True) + "\n"


def written(run_id: str) -> tuple[bytes, bytes, str]:
    return Path("playbooks/offline_trained.json").read_bytes(), (run_of(run_id) / "journal.jsonl").read_bytes(), figures()


def test_a_training_writes_what_it_wrote_also_when_it_was_stopped_after_every_batch(
    pupil: Pupil, golden: Callable[[str, str], None]
) -> None:
    whole = OfflineTrainer(config(target_stage=PlaybookStage.PRODUCTION)).train()
    assert whole.finished
    undisturbed = written(whole.run_id)

    result = OfflineTrainer(config(target_stage=PlaybookStage.PRODUCTION, max_cost=0.001)).train()
    stops = 0
    while not result.finished:
        stops += 1
        spent = sum(role["cost"] for role in result.metrics.json()["roles"].values())
        result = OfflineTrainer(config(max_cost=spent + 0.001 if stops < 4 else 9)).resume(result.run_id)
    assert stops == 4
    assert written(result.run_id) == undisturbed

    playbook, journal, metrics = undisturbed
    golden("training-playbook.json", unnamed(whole.run_id, playbook))
    golden("training-journal.jsonl", entries(unnamed(whole.run_id, journal)))
    golden("training-metrics.json", metrics)
