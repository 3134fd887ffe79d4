"""Expert workflows as a torch data set, with items of one shape so that any DataLoader takes them."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.data import Dataset

from journeyman.core.errors import InputError
from journeyman.optimizers.planner.data import TrainingData
from journeyman.optimizers.planner.loss import PADDING


class WorkflowDataset(Dataset):  # type: ignore[misc]
    """n workflows, each with the same number of entries in all that is said of it.

    An item is a mapping of `instruction` (str), `index` (int, to find the rest by), `length` (int), `task_types` (k,) and
    `model_selections` (k,), padded with -100, and `dependencies` (k, k), 1 where the row's output is needed by the column,
    k being the longest workflow's number of subtasks.
    """

    def __init__(
        self,
        instructions: Sequence[str],
        subtask_sequences: Sequence[Sequence[str]],
        task_types: Sequence[Sequence[int]],
        dependencies: Sequence[Sequence[Sequence[int]]],
        model_selections: Sequence[Sequence[int]],
    ) -> None:
        """Types and models are numbers; a subtask's dependencies are the places of those before it.

        Raises:
            InputError: Something is said of more or fewer workflows or subtasks than there are, or of one that is not there.
        """
        self.instructions = tuple(instructions)
        self.subtask_sequences = tuple(tuple(texts) for texts in subtask_sequences)
        given = {"task_types": task_types, "dependencies": dependencies, "model_selections": model_selections}
        for name, rows in {"subtask_sequences": subtask_sequences, **given}.items():
            if len(rows) != len(self.instructions):
                raise InputError(f"{name} has {len(rows)} rows for {len(self.instructions)} instructions; each needs one")
        for name, rows in given.items():
            for at, (row, texts) in enumerate(zip(rows, self.subtask_sequences, strict=True)):
                if len(row) != len(texts):
                    raise InputError(f"workflow {at}: {name} has {len(row)} entries for {len(texts)} subtasks; each needs one")
        self.most = max((len(texts) for texts in self.subtask_sequences), default=0)
        self._types = [self._padded(row) for row in task_types]
        self._workers = [self._padded(row) for row in model_selections]
        self._needs = [self._matrix(row, at) for at, row in enumerate(dependencies)]

    @classmethod
    def of(cls, data: TrainingData) -> "WorkflowDataset":
        """The examples of a file. A subtask that nobody was chosen for has -100."""
        types = {card.name: at for at, card in enumerate(data.task_types)}
        models = {card.name: at for at, card in enumerate(data.models)}
        plans = [example.plan for example in data.examples]
        places = [{subtask.id: at for at, subtask in enumerate(plan.subtasks)} for plan in plans]
        return cls(
            instructions=[plan.instruction for plan in plans],
            subtask_sequences=[[subtask.text for subtask in plan.subtasks] for plan in plans],
            task_types=[[types[subtask.type] for subtask in plan.subtasks] for plan in plans],
            dependencies=[
                [[at[id] for id in subtask.after] for subtask in plan.subtasks] for plan, at in zip(plans, places, strict=True)
            ],
            model_selections=[[models.get(subtask.worker, PADDING) for subtask in plan.subtasks] for plan in plans],
        )

    def __len__(self) -> int:
        return len(self.instructions)

    def __getitem__(self, at: int) -> dict[str, str | int | Tensor]:
        return {
            "instruction": self.instructions[at],
            "index": at,
            "length": len(self.subtask_sequences[at]),
            "task_types": self._types[at],
            "model_selections": self._workers[at],
            "dependencies": self._needs[at],
        }

    def _padded(self, row: Sequence[int]) -> Tensor:
        return torch.tensor([*row, *[PADDING] * (self.most - len(row))], dtype=torch.long)

    def _matrix(self, rows: Sequence[Sequence[int]], at: int) -> Tensor:
        made = torch.zeros(self.most, self.most)
        for place, parents in enumerate(rows):
            if wrong := [parent for parent in parents if not 0 <= parent < len(rows)]:
                raise InputError(
                    f"workflow {at}: subtask {place} depends on {wrong[0]}; there are subtasks 0 to {len(rows) - 1}"
                )
            made[list(parents), place] = 1
        return made
