"""Why methods learn or do not, a setting at a time: each cell is one training of the embedded model, in a process of its own.

    python benchmarks/bench_methods.py --record --rows FOLDER --seeds 3            recorded attempts, once, for all cells
    python benchmarks/bench_methods.py --ablation dpo --rows FOLDER --seeds 3 --jobs 2 > lines.jsonl
    python benchmarks/bench_methods.py --ablation curriculum --cell uniform --seed 4 --rows FOLDER
    python benchmarks/bench_methods.py --summary lines.jsonl

A cell is a line of JSON: what share of 200 held-out tasks is right afterwards, the same while it learned where that is
asked for, how many completions were written, how it ended. The bars: DPO and offline GRPO at least 90 % of KTO's, a
curriculum at most 0.75 of the updates that tasks drawn uniformly take to 90 % of the held-out tasks, two agents that share
what they wrote at most 0.70 of the completions with neither 2 points worse, a transfer half of the updates from scratch and
2 points forgotten.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

HELD_OUT, VALIDATION = 200, 64
ENOUGH = 0.90
"""Of the held-out tasks: the updates to that many are what a curriculum and a transfer are compared by."""
BASE = "embedded:base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One way to train."""

    method: str
    rows: str = ""
    """Which recorded attempts it learns from: `kto` (labels) or `groups`; none where it writes its own."""
    domain: str = "oslo"
    settings: Mapping[str, Any] = field(default_factory=dict)
    look_every: int = 0
    """Updates between looks at the held-out tasks; 0 for one at the end."""
    work: "Work | None" = None
    """What is done instead of one training."""


Work = Callable[["Cell", int, Path], dict[str, Any]]
"""Is told the seed and the folder of recorded rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What a training came to."""

    right: float
    curve: Sequence[tuple[int, float]]
    ended: str
    reason: str
    kept: int
    steps: int
    completions: int
    """That were written to learn from."""
    adapter: str
    metrics: Sequence[Mapping[str, Any]]
    """Of the updates that looked at the validation tasks."""

    def json(self) -> dict[str, Any]:
        enough = next((step for step, right in self.curve if right >= ENOUGH), None)
        return {**asdict(self), "adapter": "", "enough_at": enough}


class Counted:
    """A judge that counts the completions which were written to learn from."""

    def __init__(self, judge: Any) -> None:
        self._judge = judge
        self.written = 0

    def judge(self, attempts: Sequence[Any]) -> Any:
        self.written += sum(not trace.id.startswith("validation/") for _, trace in attempts)
        return self._judge.judge(attempts)


def settled(cell: Cell, seed: int, start: str = "") -> Any:
    """The config of a training with the defaults that anybody gets."""
    from journeyman.optimizers.weights import model_shape, sizing
    from journeyman.optimizers.weights.config import TrainingConfig

    hardware = sizing.detect_hardware()
    told = {"base_model": BASE, "dataset_name": "desk", "validation": VALIDATION, **cell.settings}
    if hardware.gpu is None:
        # Some processors multiply bf16 natively: cells are to mean the same on all.
        told["use_bf16"] = False
    config = TrainingConfig(method=cell.method, domain=cell.domain, seed=seed, start_adapter=start, **told)
    return sizing.resolve(config, model_shape.find(config.base_model)[0], hardware)


def opened(config: Any, folder: Path, tasks: Sequence[Any]) -> Any:
    """A model that is ready to be trained in that folder."""
    from journeyman.experiments.weights.__main__ import Prompts, TaskJudge
    from journeyman.optimizers.weights.job import TrainingJob
    from journeyman.optimizers.weights.train import TrainingSetup, run
    from journeyman.tasks.desk.world import Desk

    loaded, prompts = run.load(config), Prompts(config)
    return TrainingSetup(
        config=config,
        job=TrainingJob(folder),
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        tasks=tasks,
        rows=(),
        put=lambda task: prompts(task, "terse"),
        judge=Counted(TaskJudge(Desk())),
        callbacks=(),
    )


def share_right(work: Any, tasks: Sequence[Any]) -> float:
    """What share of the tasks the model gets right, greedily."""
    from journeyman.optimizers.weights.train import sampling
    from journeyman.optimizers.weights.train.masks import RowEncoder

    encode, right = RowEncoder(work.tokenizer).prompt, 0
    with sampling._inference(work.model):
        for start in range(0, len(tasks), sampling.BATCH):
            batch = tasks[start : start + sampling.BATCH]
            prompts = [encode(work.put(task)) for task in batch]
            output = sampling.generate(work.model, work.tokenizer, prompts, work.config.max_completion_tokens)
            texts = work.tokenizer.batch_decode(output, skip_special_tokens=True)
            attempts = [
                (task, sampling.attempt(task, work.put(task), text, id=f"validation/{task.id}", model=BASE))
                for task, text in zip(batch, texts, strict=True)
            ]
            right += sum((score.total or 0.0) >= 1.0 for score in work.judge.judge(attempts))
    return right / len(tasks)


def held_out(domain: str, seed: int) -> Sequence[Any]:
    from journeyman.core.task import Split
    from journeyman.tasks import desk

    return desk.load(domain, sizes={Split.HELD_OUT: HELD_OUT}, seed=seed).tasks


def learn(cell: Cell, seed: int, folder: Path, *, rows: Sequence[Any] = (), start: str = "") -> Learned:
    """Train in this process as `journeyman train weights` does, and look at the held-out tasks.

    Args:
        folder: Of the training; made.
        rows: Recorded attempts.
        start: The adapter to go on from.
    """
    from transformers import PrinterCallback

    from journeyman.core.task import Split
    from journeyman.optimizers.weights.data import write
    from journeyman.optimizers.weights.job import task_lines
    from journeyman.optimizers.weights.train import run
    from journeyman.tasks import desk

    config = settled(cell, seed, start)
    sizes = {Split.TRAIN: config.num_examples, Split.VALIDATION: config.validation}
    dataset, examined = desk.load(cell.domain, sizes=sizes, seed=seed), held_out(cell.domain, seed)
    folder.mkdir(parents=True)
    work = opened(config, folder, dataset.split(Split.TRAIN))
    work.job.tasks.write_text("".join(task_lines(dataset.tasks)))
    if rows:
        write(work.job.rows, rows)
    if cell.method != "grpo":
        work = replace(work, rows=run._rows(work))
    module, builder = run._METHODS[cell.method]
    trainer = getattr(import_module(f"journeyman.optimizers.weights.train.{module}"), builder)(work)
    trainer.remove_callback(PrinterCallback)
    curve: list[tuple[int, float]] = []
    if cell.look_every:
        trainer.add_callback(_looks(cell.look_every, curve, lambda: share_right(work, examined)))
    outcome = run.train(trainer, work)
    assert outcome is not None
    run._save(work, work.model)
    return Learned(
        right=share_right(work, examined),
        curve=curve,
        ended=str(outcome.ended.value),
        reason=outcome.reason,
        kept=outcome.kept_step,
        steps=outcome.updates[-1].step,
        completions=work.judge.written,
        adapter=str(work.job.adapter),
        metrics=[_told(each) for each in outcome.updates if each.validation is not None],
    )


def _told(update: Any) -> dict[str, Any]:
    own = {name: getattr(update, name) for name in ("step", "validation", "solved", "loss", "entropy", "ess", "reward")}
    more = {name: value for name, value in update.more.items() if name.startswith(("logps", "rewards", "solved", "curriculum"))}
    return {name: round(value, 4) for name, value in {**own, **more}.items() if value is not None}


def _looks(every: int, curve: list[tuple[int, float]], look: Callable[[], float]) -> Any:
    from transformers import TrainerCallback

    class Looks(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % every == 0:
                curve.append((state.global_step, look()))

    return Looks()


# What is recorded once: attempts of an agent whose playbook is half learned, as in `bench_weights.py`.


def record(folder: Path, seed: int) -> None:
    """Rows for KTO and groups, in `folder`/`seed`; left alone where they are."""
    from journeyman.experiments.weights.pipeline import Comparison

    target = folder / str(seed)
    if target.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        comparison = Comparison(folder=Path(made), seed=seed)
        comparison.learn_playbook()
        whole = Path(made) / "rows"
        whole.mkdir()
        for path in comparison._rows():
            path.rename(whole / path.name)
        # Cells that run side by side may all have made it: the first one's stays.
        with suppress(OSError):
            whole.rename(target)


def recorded(folder: Path, seed: int, name: str) -> list[Any]:
    """Rows by their name: `kto`, `groups`, or `groups 0.1` for groups of whose completions one in ten is right."""
    from journeyman.optimizers.weights.data import read

    if not name:
        return []
    record(folder, seed)
    kind, _, share = name.partition(" ")
    rows = list(read(folder / str(seed) / f"{kind}.jsonl"))
    return thinned(rows, float(share), seed) if share else rows


def thinned(groups: Sequence[Any], share: float, seed: int) -> list[Any]:
    """Groups without so many right completions, drawn at random, that no more than a share of the rest is right."""
    from journeyman.optimizers.weights.rows import normalised

    places = [(at, n) for at, group in enumerate(groups) for n, score in enumerate(group.scores) if score >= 1]
    wrong = sum(len(group.scores) for group in groups) - len(places)
    left_out = set(random.Random(seed).sample(places, max(0, len(places) - round(wrong * share / (1 - share)))))
    thin = []
    for at, group in enumerate(groups):
        kept = [n for n in range(len(group.scores)) if (at, n) not in left_out]
        scores = tuple(group.scores[n] for n in kept)
        completions = tuple(group.completions[n] for n in kept)
        if scores:
            thin.append(replace(group, completions=completions, scores=scores, rewards=normalised(scores), logprobs=()))
    return thin


def train_once(cell: Cell, seed: int, rows: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return learn(cell, seed, Path(folder) / "run", rows=recorded(rows, seed, cell.rows)).json()


# Two agents, each with an adapter of its own, learn the same job in rounds: each writes completions, and learns from a pool.

AGENTS, ROUNDS, AGE, UPDATES, BATCH = 2, 5, 2, 8, 64
"""Agents; rounds; rounds after which a completion leaves the pool; updates of a round, and completions of an update."""


def in_rounds(cell: Cell, seed: int, _: Path, *, prompts: int, shared: bool) -> dict[str, Any]:
    """Each agent writes 8 completions of so many tasks a round, and learns by offline GRPO from what is up to `AGE` rounds old.

    Args:
        shared: Whether it is one pool. Log-probabilities of whoever wrote are kept, and weigh as recorded ones do.
    """
    usual = {"max_steps": UPDATES, "per_device_batch_size": BATCH, "validation": 0}
    cell = replace(cell, settings={**usual, **cell.settings})
    pools: list[list[list[Any]]] = [[] for _ in range(AGENTS)]
    starts = [""] * AGENTS
    curves: list[list[float]] = [[] for _ in range(AGENTS)]
    completions = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(ROUNDS):
            for agent, pool in enumerate(pools):
                # Tasks that no other agent and no other round has.
                first = (number * AGENTS + agent) * prompts
                pool.append(write_groups(cell, seed, folder, slice(first, first + prompts), starts[agent]))
                completions += sum(len(group.completions) for group in pool[-1])
            for agent in range(AGENTS):
                readable = pools if shared else [pools[agent]]
                rows = [row for pool in readable for groups in pool[-AGE:] for row in groups]
                learned = learn(cell, seed * 10 + agent, folder / f"{agent}-{number}", rows=rows, start=starts[agent])
                starts[agent] = learned.adapter
                curves[agent].append(learned.right)
            print(f"round {number + 1}: {[curve[-1] for curve in curves]}", file=sys.stderr, flush=True)
    return {"right": fmean(curve[-1] for curve in curves), "curves": curves, "completions": completions}


def write_groups(cell: Cell, seed: int, folder: Path, part: slice, start: str) -> list[Any]:
    """Groups of completions of a part of the shop's tasks."""
    from journeyman.core.task import Split
    from journeyman.optimizers.weights.train import sampling
    from journeyman.tasks import desk

    tasks = desk.load(cell.domain, sizes={Split.TRAIN: part.stop}, seed=seed).tasks[part]
    work = opened(settled(cell, seed * 1000 + part.start, start), folder, tasks)
    return list(sampling.groups(work, tasks))


# From one shop to another: what an adapter of the first brings, and what of the first is left.


def transferred(cell: Cell, seed: int, rows: Path, *, first: Cell) -> dict[str, Any]:
    """Learn one shop, then another from there; what is right at both afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        before = learn(first, seed, Path(folder) / "first", rows=recorded(rows, seed, first.rows))
        after = learn(cell, seed, Path(folder) / "second", start=before.adapter)
        config = settled(replace(first, settings={}), seed, after.adapter)
        left = share_right(opened(config, Path(folder), ()), held_out(first.domain, seed))
    return {**after.json(), "first_before": before.right, "first_after": left}


def _dpo(**settings: Any) -> Cell:
    return Cell(method="dpo", rows="groups", settings=settings)


def _offline(rows: str = "groups", **settings: Any) -> Cell:
    return Cell(method="grpo-offline", rows=rows, settings=settings)


def _online(domain: str = "oslo", **settings: Any) -> Cell:
    return Cell(method="grpo", domain=domain, look_every=5, settings={"patience": 0, **settings})


def _rounds(prompts: int, *, shared: bool) -> Cell:
    return Cell(method="grpo-offline", work=partial(in_rounds, prompts=prompts, shared=shared))


_KTO = Cell(method="kto", rows="kto")
SHARES = (0.02, 0.05, 0.1)
"""Of the recorded completions that are right, fewer than there are."""
CELLS: Mapping[str, Mapping[str, Cell]] = {
    "others": {
        "kto": _KTO,
        **{f"kto, {share:.0%} right": replace(_KTO, rows=f"groups {share}") for share in SHARES},
        "rft": Cell(method="rft", rows="kto"),
    },
    "dpo": {
        "plain": _dpo(imitation=0.0),
        "imitation 0.2": _dpo(imitation=0.2),
        "imitation 1": _dpo(imitation=1.0),
        "beta 1": _dpo(beta=1.0, imitation=0.0),
        "beta 1, imitation 1": _dpo(beta=1.0, imitation=1.0),
        "rate 3e-4": _dpo(learning_rate=3e-4, imitation=0.0),
        "rate 1e-3": _dpo(learning_rate=1e-3, imitation=0.0),
        "rate 1e-3, imitation 1": _dpo(learning_rate=1e-3, imitation=1.0),
        **{f"{share:.0%} right": replace(_dpo(imitation=1.0), rows=f"groups {share}") for share in SHARES},
    },
    "grpo": {
        "recorded": _offline(max_steps=30),
        "recorded, 60 updates": _offline(max_steps=60),
        "recorded, 120 updates": _offline(max_steps=120),
        "recorded, rate 1e-3": _offline(max_steps=60, learning_rate=1e-3),
        "recorded, rate 6e-3": _offline(max_steps=60, learning_rate=6e-3),
        **{f"{share:.0%} right": _offline(f"groups {share}", max_steps=60) for share in SHARES},
        "recorded, without ratios": _offline(max_steps=60, importance=False),
        "own attempts": _offline("", max_steps=30, guards=False),
        "own attempts, 60 updates of 64": _offline("", max_steps=60, per_device_batch_size=64, guards=False),
    },
    "curriculum": {"uniform": _online("lima", curriculum=False), "p(1-p)": _online("lima")},
    "replay": {
        "apart": _rounds(32, shared=False),
        "apart, half": _rounds(16, shared=False),
        "shared, half": _rounds(16, shared=True),
    },
    "transfer": {"from oslo": replace(_online("lima"), work=partial(transferred, first=_KTO))},
}
"""From scratch, a transfer's rival, is the curriculum's `p(1-p)`: the same shop."""


def run_cell(ablation: str, name: str, seed: int, rows: Path, updates: int | None) -> dict[str, Any]:
    cell = CELLS[ablation][name]
    if updates is not None:
        cell = replace(cell, settings={**cell.settings, "max_steps": updates})
    started, cpu = time.monotonic(), time.process_time()
    try:
        found = (cell.work or train_once)(cell, seed, rows)
    except Exception as error:  # noqa: BLE001 - a cell that breaks is a line of the table, and the others go on
        found = {"error": f"{type(error).__name__}: {error}"[:500]}
    spent = {"seconds": round(time.monotonic() - started, 1), "cpu_seconds": round(time.process_time() - cpu, 1)}
    return {"ablation": ablation, "cell": name, "seed": seed, **found, **spent}


def asked(work: tuple[str, str, int], options: argparse.Namespace) -> str:
    """A cell in a process of its own, on one thread."""
    ablation, cell, seed = work
    command = [sys.executable, __file__, f"--ablation={ablation}", f"--cell={cell}", f"--seed={seed}", f"--rows={options.rows}"]
    command += [f"--updates={options.updates}"] if options.updates is not None else []
    hidden = {} if options.device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
    environment = {**os.environ, **hidden, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False, timeout=3600)
    lines = [line for line in ended.stdout.splitlines() if line.startswith('{"ablation"')]
    return (
        lines[-1]
        if lines
        else json.dumps({"ablation": ablation, "cell": cell, "seed": seed, "error": f"exit {ended.returncode}"})
    )


def summary(lines: Iterable[str]) -> Iterator[str]:
    """A line for each cell: its seeds side by side."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        told = json.loads(line)
        found[told["ablation"], told["cell"]].append(told)
    for (ablation, cell), cells in found.items():
        cells.sort(key=lambda told: int(told["seed"]))
        right = " ".join("failed" if "error" in told else f"{told['right']:6.1%}" for told in cells)
        enough = " ".join(str(told["enough_at"] or "-") for told in cells if told.get("curve"))
        more = "; ".join(f"{told['error']}" for told in cells if "error" in told) or " ".join(
            f"{told.get('ended', '')}@{told.get('kept', '')}" for told in cells
        )
        forgot = " ".join(f"{told['first_before']:.1%}>{told['first_after']:.1%}" for told in cells if "first_after" in told)
        wrote = fmean(told.get("completions", 0) for told in cells)
        cpu = fmean(told["cpu_seconds"] for told in cells if "cpu_seconds" in told)
        yield f"{ablation:11}{cell:26} {right}  {enough}  {forgot}  wrote {wrote:.0f}  CPU {cpu:.0f} s  {more}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ablation", choices=list(CELLS))
    parser.add_argument("--cell", help="one, in this process, with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3, help="of each cell, where no cell is named")
    parser.add_argument("--rows", type=Path, default=Path(".journeyman/bench_methods"), help="folder of recorded attempts")
    parser.add_argument("--record", action="store_true", help="make the recorded attempts")
    parser.add_argument("--updates", type=int, help="of each training; for a try")
    parser.add_argument("--jobs", type=int, default=1, help="cells at once")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="of the lines in it")
    options = parser.parse_args()
    if options.summary:
        print(*summary(options.summary.read_text().splitlines()), sep="\n")
        return
    if options.record:
        for seed in range(options.seeds):
            record(options.rows, seed)
        return
    if not options.ablation:
        parser.error("name an --ablation")
    if options.cell:
        warnings.simplefilter("ignore")
        print(json.dumps(run_cell(options.ablation, options.cell, options.seed, options.rows, options.updates)), flush=True)
        return
    work = itertools.product([options.ablation], CELLS[options.ablation], range(options.seeds))
    with ThreadPoolExecutor(options.jobs) as pool:
        for line in pool.map(partial(asked, options=options), work):
            print(line, flush=True)


if __name__ == "__main__":
    main()
