import pytest
import torch
from torch.utils.data import DataLoader

from journeyman.core.errors import InputError
from journeyman.optimizers.planner.supervised import WorkflowDataset

from .worlds import kitchen

pytestmark = pytest.mark.training


def documented() -> WorkflowDataset:
    return WorkflowDataset(
        instructions=["Summarize this", "Translate and draw that"],
        subtask_sequences=[["summarize"], ["translate", "draw"]],
        task_types=[[3], [5, 7]],
        dependencies=[[[]], [[], [0]]],
        model_selections=[[2], [0, 1]],
    )


def test_any_loader_takes_workflows_of_different_lengths() -> None:
    (batch,) = DataLoader(documented(), batch_size=32)
    assert batch["instruction"] == ["Summarize this", "Translate and draw that"]
    assert batch["length"].tolist() == [1, 2]
    assert batch["task_types"].tolist() == [[3, -100], [5, 7]]
    assert batch["model_selections"].tolist() == [[2, -100], [0, 1]]
    assert batch["dependencies"].tolist() == [[[0, 0], [0, 0]], [[0, 1], [0, 0]]]


def test_examples_become_workflows_with_all_their_edges() -> None:
    data = kitchen(10)
    found = WorkflowDataset.of(data)
    assert len(found) == 10
    for item, example in zip(found, data.examples, strict=True):
        needs = item["dependencies"]
        assert isinstance(needs, torch.Tensor)
        k = len(example.plan.subtasks)
        assert needs[:k, :k].int().tolist() == [list(row) for row in example.plan.adjacency]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"task_types": [[3]]}, "task_types has 1 rows for 2 instructions"),
        ({"model_selections": [[2], [0]]}, "workflow 1: model_selections has 1 entries for 2 subtasks"),
        ({"dependencies": [[[]], [[], [2]]]}, "workflow 1: subtask 1 depends on 2"),
    ],
)
def test_what_does_not_fit_together_is_named(changed: dict[str, list[list[int]]], said: str) -> None:
    whole = {
        "instructions": ["a", "b"],
        "subtask_sequences": [["x"], ["y", "z"]],
        "task_types": [[3], [5, 7]],
        "dependencies": [[[]], [[], [0]]],
        "model_selections": [[2], [0, 1]],
    }
    with pytest.raises(InputError, match=said):
        WorkflowDataset(**{**whole, **changed})  # type: ignore[arg-type]
