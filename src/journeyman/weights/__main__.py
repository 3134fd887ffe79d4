"""The training program: `python -m journeyman.weights RUN`, in a process of its own, also under `accelerate launch`.

Exit codes: 0 it went well, 2 the input cannot be used, 3 a guard stopped it and the last good checkpoint was kept, 130 it was
interrupted, after a checkpoint.
"""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from journeyman import embed, rewards
from journeyman.agents import prompts
from journeyman.embed.cache import Cached
from journeyman.errors import JourneymanError
from journeyman.learn.playbook import files
from journeyman.learn.playbook.choose import chooser
from journeyman.learn.weights.config import TrainingConfig
from journeyman.learn.weights.job import Ended
from journeyman.learn.weights.job import TrainingJob as Job
from journeyman.learn.weights.program import INTERRUPTED, end_with_parent
from journeyman.learn.weights.rows import TextOrMessages as Said
from journeyman.learn.weights.train.run import run
from journeyman.models.base import Dialect
from journeyman.playbook import Playbook
from journeyman.rewards.engine import RewardEngine
from journeyman.task import Task
from journeyman.weights import tasks
from journeyman.weights.judging import TaskJudge


class Prompts:
    """How tasks are put to the model in training: as `agents.answer` puts them, with a playbook's bullets or bare."""

    def __init__(self, config: TrainingConfig) -> None:
        playbook = files.load(config.context) if config.context else Playbook()
        self._choose = chooser(playbook, Cached(embed.load("hashing"))) if playbook.active else lambda _: ()

    def __call__(self, task: Task, dialect: Dialect) -> Said:
        messages = prompts.answer(task, self._choose(task), dialect)
        return tuple({"role": message.role, "content": message.content} for message in messages)


def main(arguments: Sequence[str]) -> int:
    end_with_parent()
    try:
        job = Job(Path(arguments[0]))
        config = job.config
        put = Prompts(config)
        if not config.dataset_name:
            report = run(job, put, None)
        else:
            engine = RewardEngine([rewards.load(name) for name in config.rewards]) if config.rewards else None
            with closing(TaskJudge(tasks.verifier(config), engine)) as judge:
                report = run(job, put, judge)
    except JourneymanError as error:
        sys.stderr.write(f"journeyman: {error}\n")
        return 2
    if report is None:
        return INTERRUPTED
    return 3 if report.ended is Ended.GUARDED else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
