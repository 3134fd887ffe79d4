import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from journeyman.core.errors import InputError
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.planner.config import PPOConfig
from journeyman.optimizers.planner.policy import DecisionState, ModelSelector
from journeyman.optimizers.planner.ppo import Choose, Chosen, Episode, Step, TableReplay, train
from journeyman.rewards.utility import Utility
from journeyman.stats import Floats

pytestmark = pytest.mark.training

QUICK = PPOConfig(episodes=2048, learning_rate=1e-2, gamma=1.0, kl_coef=0.0, entropy_coef=0.003, target_kl=0.1, batch=64)


def table(success: Floats) -> Table:
    n, m = success.shape
    return Table.judged([f"request {at}" for at in range(n)], success, [f"worker-{at}" for at in range(m)])


def bandit(seed: int) -> TableReplay:
    """Four kinds of requests, each with another worker that is right most often, and by far not always."""
    chance = np.random.default_rng(seed)
    kinds = np.arange(200) % 4
    best = chance.permutation(4)
    rates = np.where(best[kinds][:, None] == np.arange(4), 0.9, 0.3)
    return TableReplay.of(table((chance.random((200, 4)) < rates).astype(float)), np.eye(4)[kinds], Utility())


@pytest.mark.parametrize("seed", range(4))
def test_the_best_worker_for_each_kind_of_request_is_found(seed: int) -> None:
    environment = bandit(seed)
    selector = ModelSelector(np.eye(4), 4, width=16, seed=seed)
    history = train(environment, selector, replace(QUICK, seed=seed))
    means = [np.mean(environment.worth[kind::4], axis=0) for kind in range(4)]
    chances = selector.probabilities([environment.state(kind) for kind in range(4)])
    assert [int(row.argmax()) for row in chances] == [int(row.argmax()) for row in means]
    brought = np.mean([chances[kind] @ means[kind] for kind in range(4)])
    assert brought > 0.95 * np.mean([row.max() for row in means])
    assert history[-1].reward > history[0].reward + 0.2


class TwoSteps:
    """What is cheap at first makes success impossible later: only credit across decisions finds the best way.

    Worker 0 does the first subtask for nothing and half as well; worker 1 costs a fifth of a success. Of the second, that costs
    a tenth, worker 0 is right for one kind of plan, and worker 1 for the other.
    """

    workers = ("cheap", "dear")

    def __len__(self) -> int:
        return 2

    def episodes(self, which: Sequence[int], choose: Choose) -> Sequence[Episode]:
        return [self.episode(kind, at, choose) for at, kind in enumerate(which)]

    def episode(self, kind: int, episode: int, choose: Choose) -> Episode:
        node = np.eye(4, dtype=np.float32)
        states = [
            DecisionState(node=node[row], prior=np.zeros(2, np.float32), allowed=np.ones(2, np.bool_), episode=episode, at=at)
            for at, row in enumerate((kind, 2 + kind))
        ]
        first, second = (choose(state) for state in states)
        success = (0.5, 1.0)[first.action] * (second.action == kind)
        rewards = (-0.2 * first.action, success - 0.1)
        return tuple(Step(state=s, chosen=c, reward=r) for s, c, r in zip(states, (first, second), rewards, strict=True))


def worth(environment: TwoSteps, index: int, actions: Sequence[int]) -> float:
    (episode,) = environment.episodes([index], lambda state: Chosen(action=actions[state.at], log_prob=0.0))
    return sum(step.reward for step in episode)


@pytest.mark.parametrize("seed", range(3))
def test_in_a_plan_of_two_decisions_the_best_of_all_assignments_is_found(seed: int) -> None:
    environment = TwoSteps()
    best = [max(worth(environment, kind, pair) for pair in itertools.product((0, 1), repeat=2)) for kind in (0, 1)]
    assert best == pytest.approx([0.7, 0.7])
    selector = ModelSelector(np.eye(2), 4, width=16, seed=seed)
    train(environment, selector, replace(QUICK, seed=seed))

    look = selector.frozen()

    def greedy(state: DecisionState) -> Chosen:
        log_probs, _ = look(state)
        return Chosen(action=int(log_probs.argmax()), log_prob=float(log_probs.max()))

    found = [sum(step.reward for step in episode) for episode in environment.episodes([0, 1], greedy)]
    assert found == pytest.approx(best)


def test_learning_is_from_the_recorded_action_and_its_recorded_probability() -> None:
    seen: list[tuple[int, float]] = []
    environment = bandit(0)

    class Recording:
        workers = environment.workers

        def __len__(self) -> int:
            return len(environment)

        def episodes(self, which: Sequence[int], choose: Choose) -> Sequence[Episode]:
            episodes = environment.episodes(which, choose)
            seen.extend((step.chosen.action, step.chosen.log_prob) for episode in episodes for step in episode)
            return episodes

    config = PPOConfig(episodes=64, epochs=1)
    (update,) = train(Recording(), ModelSelector(np.eye(4), 4), config)
    assert len(seen) == 64
    assert [log_prob for _, log_prob in seen] == pytest.approx([np.log(0.25)] * 64)
    assert update.approx_kl == pytest.approx(0.0, abs=1e-9)
    assert len({action for action, _ in seen}) == 4


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    found = {}
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        train(bandit(0), ModelSelector(np.eye(4), 4), PPOConfig(episodes=128, seed=seed), folder=tmp_path / name)
        found[name] = (tmp_path / name / "ppo.safetensors").read_bytes()
    assert found["one"] == found["same"] != found["other"]


def test_a_run_that_goes_on_ends_with_the_bytes_of_one_that_never_stopped(tmp_path: Path) -> None:
    whole, parts = PPOConfig(episodes=320), PPOConfig(episodes=128)
    straight = train(bandit(0), ModelSelector(np.eye(4), 4), whole, folder=tmp_path / "whole")
    train(bandit(0), ModelSelector(np.eye(4), 4), parts, folder=tmp_path / "parts")
    # The weights that one goes on with are those of the folder, whatever the selector was.
    resumed = train(bandit(0), ModelSelector(np.eye(4), 4, seed=9), whole, folder=tmp_path / "parts")
    assert resumed == straight
    assert (tmp_path / "whole/ppo.safetensors").read_bytes() == (tmp_path / "parts/ppo.safetensors").read_bytes()


PROGRAM = """
import sys, time
from pathlib import Path
from tests.optimizers.planner.test_ppo import *
def told(update) -> None:
    print(update.update, flush=True)
    # Who reads this may be slow to kill; the run must not be over by then.
    time.sleep(0.5 * (update.update > 5))
train(bandit(0), ModelSelector(np.eye(4), 4), PPOConfig(episodes=1280), folder=Path(sys.argv[1]), heard=told)
"""


def test_a_run_killed_at_any_moment_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "killed")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert running.stdout is not None
    for line in running.stdout:
        if int(line) == 3:
            running.send_signal(signal.SIGKILL)
            break
    running.communicate(timeout=60)
    assert running.returncode == -signal.SIGKILL
    finished = PPOConfig(episodes=1280)
    again = train(bandit(0), ModelSelector(np.eye(4), 4), finished, folder=tmp_path / "killed")
    assert again == train(bandit(0), ModelSelector(np.eye(4), 4), finished, folder=tmp_path / "whole")
    assert (tmp_path / "killed/ppo.safetensors").read_bytes() == (tmp_path / "whole/ppo.safetensors").read_bytes()


def test_a_folder_of_another_run_and_a_broken_one_are_refused_with_a_sentence(tmp_path: Path) -> None:
    train(bandit(0), ModelSelector(np.eye(4), 4), PPOConfig(episodes=64), folder=tmp_path)
    with pytest.raises(InputError, match="begun with another learning_rate"):
        train(bandit(0), ModelSelector(np.eye(4), 4), PPOConfig(episodes=64, learning_rate=1.0), folder=tmp_path)
    with pytest.raises(InputError, match="another shape"):
        train(bandit(0), ModelSelector(np.eye(4), 4, width=8), PPOConfig(episodes=128), folder=tmp_path)
    (tmp_path / "ppo.safetensors").write_bytes(b"{}")
    with pytest.raises(InputError, match="cannot be read"):
        train(bandit(0), ModelSelector(np.eye(4), 4), PPOConfig(), folder=tmp_path)


def test_an_update_stops_when_it_has_gone_too_far() -> None:
    steps = []
    for most in (1e-6, 10.0):
        config = PPOConfig(episodes=64, minibatch=16, learning_rate=0.1, target_kl=most)
        steps.append(train(bandit(0), ModelSelector(np.eye(4), 4), config)[0].steps)
    assert steps[0] < steps[1] == 16


def test_the_pull_to_the_supervised_policy_keeps_it_near() -> None:
    away = []
    for pull in (0.0, 50.0):
        config = replace(QUICK, kl_coef=pull, episodes=512)
        away.append(train(bandit(0), ModelSelector(np.eye(4), 4), config)[-1].kl_to_prior)
    assert away[1] < 0.1 * away[0]


@pytest.mark.parametrize(("name", "value"), [("episodes", 0), ("gamma", 1.5), ("learning_rate", 0.0), ("minibatch", 0)])
def test_a_setting_that_cannot_be_is_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        PPOConfig(**{name: value})  # type: ignore[arg-type]


def test_the_defaults_are_the_documented_ones() -> None:
    config = PPOConfig()
    assert (config.gamma, config.lambda_gae, config.clip_epsilon) == (0.99, 0.95, 0.2)
    assert (config.value_coef, config.entropy_coef, config.learning_rate) == (0.5, 0.01, 3e-5)
    assert (config.episodes, config.most_steps) == (1000, 50)
