import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.plan import Plan, Subtask
from journeyman.optimizers.planner.data import Example
from journeyman.optimizers.planner.network import acyclicity, compute_supervised_loss, outcome_weights

pytestmark = pytest.mark.training


def random_graph(seed: int, k: int) -> torch.Tensor:
    return torch.rand(k, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.integers(1, 7), st.integers(0, 10**6))
def test_a_graph_without_cycles_measures_zero_and_one_with_a_cycle_more(k: int, seed: int) -> None:
    forward = random_graph(seed, k).triu(1)
    shuffled = torch.randperm(k, generator=torch.Generator().manual_seed(seed))
    assert acyclicity(forward[shuffled][:, shuffled]) == pytest.approx(0, abs=1e-9)
    with_loop = forward + torch.eye(k, dtype=torch.float64) * 0.5
    assert acyclicity(with_loop) > 0.01


def test_the_measure_counts_the_walks_that_come_back() -> None:
    pair = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert float(acyclicity(pair)) == pytest.approx(2 * np.cosh(1) - 2, rel=1e-5)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_measures_gradient_is_what_finite_differences_say(seed: int) -> None:
    graph = random_graph(seed, 5).requires_grad_()
    acyclicity(graph).backward()
    assert graph.grad is not None
    step = 1e-6
    for i in range(5):
        for j in range(5):
            moved = torch.zeros(5, 5, dtype=torch.float64)
            moved[i, j] = step
            slope = (acyclicity(graph.detach() + moved) - acyclicity(graph.detach() - moved)) / (2 * step)
            assert float(graph.grad[i, j]) == pytest.approx(float(slope), rel=1e-5, abs=1e-7)


def test_descent_on_the_measure_removes_a_cycle_and_leaves_what_is_in_none() -> None:
    weights = torch.tensor(
        [[0.0, 0.9, 0.0, 0.8], [0.0, 0.0, 0.9, 0.0], [0.5, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], requires_grad=True
    )
    before = acyclicity(weights).item()
    for _ in range(400):
        weights.grad = None
        acyclicity(weights).backward()
        assert weights.grad is not None
        with torch.no_grad():
            weights -= 0.5 * weights.grad
    assert before > 0.05
    assert acyclicity(weights).item() < 1e-3
    assert weights[0, 3].item() == pytest.approx(0.8)


def outputs(b: int = 2, k: int = 3) -> dict[str, torch.Tensor]:
    made = {"nodes": torch.zeros(b, 4), "repeats": torch.zeros(b, 4), "there": torch.ones(b, 4, dtype=torch.bool)}
    made |= {"times": torch.full((b, 4, 5), 0.2)}
    made |= {"task_types": torch.zeros(b, k, 5), "model_selections": torch.zeros(b, k, 2), "lengths": torch.zeros(b, 13)}
    made |= {"start": torch.zeros(b, k), "successors": torch.zeros(b, k, k), "dependencies": torch.zeros(b, k, k)}
    made |= {"workflow_graph": torch.full((b, k, k), 0.5), "value": torch.zeros(b), "real": torch.ones(b, k, dtype=torch.bool)}
    return made


def test_the_total_is_the_cross_entropy_and_the_weighted_graph_term() -> None:
    targets = {"task_types": torch.zeros(2, 3, dtype=torch.long), "model_selections": torch.ones(2, 3, dtype=torch.long)}
    found = compute_supervised_loss(outputs(), targets, lambda_dag=0.3)
    assert float(found["ce_loss"]) == pytest.approx(np.log(5) + np.log(2), rel=1e-5)
    assert float(found["dag_loss"]) > 0
    assert float(found["total_loss"]) == pytest.approx(float(found["ce_loss"]) + 0.3 * float(found["dag_loss"]), rel=1e-6)
    padded = {name: torch.cat([rows, torch.full((2, 4), -100)], 1) for name, rows in targets.items()}
    assert compute_supervised_loss(outputs(), padded)["ce_loss"] == found["ce_loss"]


def test_an_example_without_weight_moves_nothing() -> None:
    made = {name: rows.clone().requires_grad_(rows.is_floating_point()) for name, rows in outputs().items()}
    targets = {
        "task_types": torch.ones(2, 3, dtype=torch.long),
        "nodes": torch.tensor([[1.0, 0, 2, 0], [0, 1, 0, 0]]),
        "lengths": torch.tensor([3, 1]),
        "dependencies": torch.zeros(2, 3, 3),
        "weights": torch.tensor([1.0, 0.0]),
    }
    compute_supervised_loss(made, targets, lambda_dag=0.3)["total_loss"].backward()
    for name in ("task_types", "nodes", "lengths", "dependencies", "start", "successors"):
        gradient = made[name].grad
        assert gradient is not None
        assert gradient[0].abs().sum() > 0
        assert gradient[1].abs().sum() == 0


def example(success: float | None, cost: float | None = None) -> Example:
    return Example(plan=Plan(instruction="x", subtasks=(Subtask(id="1", text="x"),)), success=success, cost=cost)


def test_plans_that_failed_are_no_experts_and_cheap_successes_count_more() -> None:
    found = outcome_weights([example(1.0, 0.01), example(1.0, 0.04), example(0.0, 0.001), example(1.0, 0.02)])
    assert found[2] == 0
    assert found[0] > found[3] > found[1] > 0
    assert found[[0, 1, 3]].mean() == pytest.approx(1)


def test_plans_that_nobody_carried_out_count_alike() -> None:
    assert outcome_weights([example(None), example(None)]).tolist() == [1, 1]
    assert outcome_weights([example(0.0)]).tolist() == [0]
