import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from journeyman.core.errors import InputError
from journeyman.experiments.planner.training import watched
from journeyman.models.embedders import HashingEmbedder
from journeyman.optimizers.planner import artifact
from journeyman.optimizers.planner.config import NetworkConfig, SupervisedConfig
from journeyman.optimizers.planner.data import TrainingData
from journeyman.optimizers.planner.policy import LearnedPlanner
from journeyman.optimizers.planner.supervised import Epoch, SupervisedResult, agreement, mean_agreement, train
from tests.support import warm

from .worlds import MODELS, kitchen, office

pytestmark = pytest.mark.training

ROOT = Path(__file__).parents[3]
CONFIG = SupervisedConfig(epochs=20, network=NetworkConfig(width=32, rank=16), patience=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


# Half a minute where the machine does other things besides.
@pytest.fixture(scope="module")
def trained(folder: Path) -> SupervisedResult:
    return train(kitchen(120), HashingEmbedder(256), folder, CONFIG)


def test_it_learns_the_kitchen_where_tools_need_no_model(trained: SupervisedResult) -> None:
    fresh = [example.plan for example in kitchen(40, seed=9).examples]
    planner = LearnedPlanner(trained.model, hires=True)
    plans = planner.plans([plan.instruction for plan in fresh])
    found = mean_agreement([agreement(*pair) for pair in zip(plans, fresh, strict=True)])
    assert found.node_f1 > 0.95
    assert found.edge_f1 > 0.9
    assert {s.worker for plan in plans for s in plan.subtasks} == {""}
    assert {s.type for plan in plans for s in plan.subtasks if s.tool == "fry_egg"} == {"frying"}


def test_the_file_plans_as_the_training_did(trained: SupervisedResult, folder: Path) -> None:
    planner = artifact.load_learned(folder / "phase1_best", HashingEmbedder(256))
    asked = [example.plan.instruction for example in kitchen(10, seed=5).examples]
    assert planner.plans(asked) == LearnedPlanner(trained.model, hires=True).plans(asked)
    assert artifact.read(folder / "phase1_best.safetensors")[1]["embedder"] == "hashing:256"


def test_it_learns_who_does_what(tmp_path: Path) -> None:
    trained = train(office(60), HashingEmbedder(128), tmp_path, CONFIG)
    planner = LearnedPlanner(trained.model, hires=True)
    fresh = [example.plan for example in office(20, seed=9).examples]
    assert [plan.workers for plan in planner.plans([plan.instruction for plan in fresh])] == [plan.workers for plan in fresh]
    assert planner.plan(fresh[0].instruction, models=MODELS[:1]).workers == ("small",)


def test_a_planner_is_not_read_with_another_embedder(trained: SupervisedResult) -> None:
    with pytest.raises(InputError, match="'hashing:256', not 'hashing:64'"):
        artifact.load(trained.best, HashingEmbedder(64))


def test_what_is_no_checkpoint_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_text("no")
    with pytest.raises(InputError, match="is no checkpoint"):
        artifact.read(tmp_path / "a.safetensors")
    with pytest.raises(InputError, match="is not there"):
        artifact.read(tmp_path / "b.safetensors")


def test_too_few_examples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 examples are too few"):
        train(kitchen(1), HashingEmbedder(64), tmp_path, CONFIG)


def test_a_failed_plan_is_neither_remembered_nor_followed(tmp_path: Path) -> None:
    data = kitchen(40)
    failed = tuple(replace(example, success=0.0) for example in data.examples[:10])
    mixed = replace(data, examples=(*failed, *data.examples[10:]))
    run = train(mixed, HashingEmbedder(64), tmp_path, replace(CONFIG, epochs=1))
    remembered = {example.plan.instruction for example in run.model.encoder.memory.examples}
    assert not remembered & {example.plan.instruction for example in failed}


def test_another_training_is_not_resumed(tmp_path: Path) -> None:
    short = replace(CONFIG, epochs=1)
    train(kitchen(40), HashingEmbedder(64), tmp_path, short)
    with pytest.raises(InputError, match="other examples or settings"):
        train(kitchen(41), HashingEmbedder(64), tmp_path, short, resume=True)


def test_the_curves_lie_where_tensorboard_finds_them(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    seen: list[Epoch] = []
    with watched(tmp_path) as tell:

        def progress(epoch: Epoch) -> None:
            seen.append(epoch)
            tell(epoch)

        train(kitchen(40), HashingEmbedder(64), tmp_path, replace(CONFIG, epochs=2), progress=progress)
    assert [epoch.number for epoch in seen] == [1, 2]
    (written,) = (tmp_path / "tensorboard").iterdir()
    assert b"phase1/val_loss" in written.read_bytes()


class Training:
    """A training in a process of its own, which writes a line for each epoch."""

    def __init__(self, folder: Path, how: str, *, stall: int = 0, server: str = "one") -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._said = folder.with_suffix(f".{how}")
        program = ("-m", "tests.optimizers.planner.program", str(folder), "5", str(stall), how)
        with self._said.open("w") as out:
            self.process = warm.start(*program, stdout=out.fileno(), cwd=ROOT, server=server)

    @property
    def epochs(self) -> list[str]:
        return self._said.read_text().split()


def test_kill_9_and_resume_lose_no_epoch_and_end_in_the_same_bytes(tmp_path: Path) -> None:
    whole = Training(tmp_path / "whole", "new")
    killed = Training(tmp_path / "killed", "new", stall=3)
    until = time.monotonic() + 120
    while len(killed.epochs) < 3 and killed.process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    killed.process.send_signal(signal.SIGKILL)
    assert killed.process.wait() == -signal.SIGKILL
    assert killed.epochs == ["1", "2", "3"]
    resumed = Training(tmp_path / "killed", "resume", server="other")
    assert (resumed.process.wait(120), resumed.epochs) == (0, ["4", "5"])
    assert (whole.process.wait(120), whole.epochs) == (0, ["1", "2", "3", "4", "5"])
    for name in ("phase1_best", "phase1_last"):
        file = f"{name}.safetensors"
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "killed" / file).read_bytes()
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == [
        "phase1_best.safetensors",
        "phase1_last.safetensors",
    ]


def test_one_seed_makes_one_planner_and_leaves_the_callers_chance_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    for name in ("a", "b"):
        train(kitchen(40), HashingEmbedder(64), tmp_path / name, replace(CONFIG, epochs=2, augmentations=20))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (tmp_path / "a" / "phase1_best.safetensors").read_bytes() == (
        tmp_path / "b" / "phase1_best.safetensors"
    ).read_bytes()


def test_data_without_workers_leaves_them_to_the_policy(tmp_path: Path) -> None:
    data = kitchen(40)
    examples = [replace(e, plan=e.plan.with_workers([""] * len(e.plan.subtasks))) for e in data.examples]
    run = train(TrainingData.of(examples, tools=data.tools), HashingEmbedder(64), tmp_path, replace(CONFIG, epochs=1))
    planner = artifact.load_learned(run.best, HashingEmbedder(64))
    assert set(planner.plan("a fried egg", models=MODELS).workers) == {""}


@pytest.mark.parametrize("broken", ["memory", "model.", "network"])
def test_a_file_that_was_changed_is_refused_in_a_sentence(broken: str, tmp_path: Path) -> None:
    run = train(kitchen(40), HashingEmbedder(64), tmp_path, replace(CONFIG, epochs=1))
    tensors, said = artifact.read(run.best)
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(broken)}
    artifact.write(run.best, kept, {**said, "network": {"wide": 3}} if broken == "network" else said)
    with pytest.raises(InputError, match="is no planner that can be used"):
        artifact.load(run.best, HashingEmbedder(64))
