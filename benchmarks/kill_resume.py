"""Kills real trainings at random points and goes on with them: the same bytes as undisturbed, and nothing lost that was kept.

    python benchmarks/kill_resume.py                          # 20 points of each of the five
    python benchmarks/kill_resume.py --kind playbook --points 5 --seed 1 --json

Each training is a command of its own in a folder of its own. It is killed by SIGKILL at a moment drawn evenly from between its
first stored attempt (or, where it stores none, its first checkpoint) and its end, then gone on with as its user would. What is
compared: the digest of what it learned, and that every attempt, evaluation and look which stood in the store when it was killed
stands there afterwards. The exit code is 1 when a single point fails.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from journeyman.stores import open_traces
from tests.support.desk_traces import recorded

_REPOSITORY = Path(__file__).parent.parent
_OVER = "there is no unfinished run"
"""Said where it was killed between the last thing that it wrote and its end."""
_KEPT = {
    "runs": "id",
    "attempts": "run_id, id",
    "evaluations": "id",
    "looks": "*",
    "candidates": "id",
    "moves": "*",
}
"""Tables of the store, and what tells a row of each apart."""

KINDS = ("easy letter", "hard letter")
MODEL = '''
import asyncio, json, re
from journeyman.models.base import Reply

class Fruit:
    """Fails until the rule stands in its prompt, and finds the rule when it fails; ten milliseconds a call."""
    name, dialect, deterministic = "fruit", "full", True
    rule = "Add the counts of both kinds before you reply."

    async def complete(self, request):
        await asyncio.sleep(0.01)
        if request.schema is not None:
            found = [{"verdict": "helpful", "content": self.rule, "about": ""}] if "(wrong)" in request.text else []
            text = json.dumps({"insights": found, "shown": []})
        else:
            counts = [int(found) for found in re.findall(r"holds (\\d+) plums and (\\d+) pears", request.text)[-1]]
            text = f"Answer: {sum(counts) if self.rule in request.text else -1}"
        return Reply(text=text, model=self.name, input_tokens=50, output_tokens=10, cost=0.001, finish="stop")

    async def close(self):
        pass
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One of the five, as its user types it."""

    prepare: Callable[[Path], None]
    begin: str
    resume: str
    begun: Callable[[Path], bool]
    """Whether its first attempt is stored."""
    learned: str
    """A pattern of the files that it leaves."""


def _fruit(folder: Path) -> None:
    (folder / "fruit.py").write_text(MODEL)
    rows = [
        {
            "id": f"{split}-{n}",
            "question": f"A crate holds {n} plums and {n % 13} pears. How many pieces of fruit are in it?",
            "answer": str(n + n % 13),
            "split": split,
        }
        for split, numbers in (("train", range(30)), ("test", range(1000, 1040)))
        for n in numbers
    ]
    (folder / "sums.json").write_text(json.dumps(rows))


def _outcomes(folder: Path, rows: int) -> None:
    """Letters of two kinds: the small model gets one of them right, and costs a fortieth."""
    lines = []
    for at in range(rows):
        right = {"small": float(at % 2 == 0), "large": 1.0}
        outcomes = {name: {"success": right[name], "cost": 0.01 if name == "small" else 0.4, "seconds": 1.0} for name in right}
        request = f"please, {KINDS[at % 2]} number {at}"
        split = "held_out" if at % 4 > 1 else "train"
        row = {"id": f"r{at}", "request": request, "type": KINDS[at % 2], "split": split, "outcomes": outcomes}
        lines.append(json.dumps(row) + "\n")
    (folder / "outcomes.jsonl").write_text("".join(lines))


def _planner(folder: Path) -> None:
    """Phase 1 is over; phase 2 is what is killed."""
    _outcomes(folder, 400)
    examples = [
        {
            "instruction": f"{KINDS[n % 2]} number {n}, and bread for it",
            "targets": {
                "model_selections": [n % 2, None],
                "task_types": [1 + n % 2, 0],
                "dependencies": [[], [0]],
                "tools": [None, 0],
                "texts": [f"Write {KINDS[n % 2]} {n}", "bake"],
            },
            "rewards": {"success": 1.0, "cost": -0.01, "latency": -1.0},
        }
        for n in range(120)
    ]
    prices = [("small", 0.1, 0.2), ("large", 3.0, 9.0)]
    known = {
        "task_types": [{"name": name} for name in ("baking", *KINDS)],
        "models": [{"name": name, "input_price": paid, "output_price": got} for name, paid, got in prices],
        "tools": [{"name": "bake"}],
    }
    (folder / "set.json").write_text(json.dumps({**known, "examples": examples}))
    first = "train planner --phase 1 --data set.json --tracker none --epochs 3 --output-dir checkpoints"
    subprocess.run(command(first.split()), cwd=folder, env=environment(), check=True, capture_output=True)


CLERK = '''
import asyncio
from tests.support.desk_traces import KnownClerk

class SlowClerk(KnownClerk):
    """Ten milliseconds a call."""

    async def complete(self, request):
        await asyncio.sleep(0.01)
        return await super().complete(request)
'''
_BEGAN = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)


def _traces(folder: Path) -> None:
    (folder / "clerk.py").write_text(CLERK)
    with open_traces(folder / ".journeyman" / "journeyman.db") as store:
        store.add(recorded("oslo", 0, 150, customers=120, start=_BEGAN))


def _stored(folder: Path) -> bool:
    return bool(kept(folder)["attempts"])


def _file(pattern: str) -> Callable[[Path], bool]:
    return lambda folder: any(folder.glob(pattern))


TRAININGS: Mapping[str, Training] = {
    "playbook": Training(
        prepare=_fruit,
        begin="train playbook --dataset custom --input sums.json --model fruit:Fruit --num-examples 30 --batch-size 5 "
        "--concurrency 2 --held-out 40 --target-stage production --output learned.json",
        resume="train playbook --resume",
        begun=_stored,
        learned="learned.json",
    ),
    "traces": Training(
        prepare=_traces,
        begin="train playbook --from traces --model clerk:SlowClerk --output learned.json",
        resume="train playbook --from traces --model clerk:SlowClerk --output learned.json",
        begun=lambda folder: bool(kept(folder)["runs"]),
        learned="learned.json",
    ),
    "router": Training(
        prepare=lambda folder: _outcomes(folder, 2000),
        begin="train router --outcomes outcomes.jsonl --output router --objective quality-cost",
        resume="train router --outcomes outcomes.jsonl --output router --objective quality-cost",
        begun=lambda folder: bool(kept(folder)["runs"]),
        # The verdict beside them names its run.
        learned="router/p*",
    ),
    "planner": Training(
        prepare=_planner,
        begin="train planner --phase 2 --replay outcomes.jsonl --tracker none --episodes 4000",
        resume="train planner --phase 2 --replay outcomes.jsonl --tracker none --episodes 4000 --resume",
        begun=_file("checkpoints/phase2/ppo.safetensors"),
        learned="checkpoints/phase2_best.safetensors",
    ),
    "weights": Training(
        prepare=lambda folder: None,
        begin="train weights --method grpo --tasks desk --domain oslo --base-model embedded:small --num-examples 10 "
        "--validation 3 --max-steps 6 --batch-size 4 --gradient-accumulation-steps 2 --num-generations 4 "
        "--max-completion-tokens 48 --fp32 --threads 1 --checkpoint-interval 2 --evaluation-interval 3 --patience 0 "
        "--no-guards --tracker none --held-out 10",
        resume="train weights --resume",
        begun=_file(".journeyman/runs/*/metrics.jsonl"),
        learned=".journeyman/runs/*/checkpoints/step-00006/adapter_model.safetensors",
    ),
}


def command(arguments: str | Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "journeyman", *(arguments.split() if isinstance(arguments, str) else arguments)]


def environment() -> dict[str, str]:
    """With the time held fast, so that bytes can be compared; models of one's own lie in the working folder and the tests."""
    path = os.pathsep.join(filter(None, (".", str(_REPOSITORY), os.environ.get("PYTHONPATH"))))
    fixed = {"SOURCE_DATE_EPOCH": "0", "OMP_NUM_THREADS": "1", "JOURNEYMAN_STORE": "", "PYTHONPATH": path}
    return {**os.environ, **fixed}


def kept(folder: Path) -> dict[str, set[str]]:
    """What the store acknowledges, by table; empty where there is none yet."""
    found: dict[str, set[str]] = {name: set() for name in _KEPT}
    path = folder / ".journeyman" / "journeyman.db"
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as store:
        for name, columns in _KEPT.items():
            found[name] = {" ".join(map(str, row)) for row in store.execute(f"select {columns} from {name}")}
    return found


def learned(training: Training, folder: Path) -> dict[str, str]:
    """The digests of the files that it left."""
    files = (path for path in sorted(folder.glob(training.learned)) if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def finish(arguments: str, folder: Path) -> None:
    """Run a command to its end; 1 is the gate's no.

    Raises:
        RuntimeError: It failed.
    """
    done = subprocess.run(command(arguments), cwd=folder, env=environment(), capture_output=True, text=True, timeout=900)
    if _OVER in done.stderr:
        return
    if done.returncode not in (0, 1) or "Traceback" in done.stderr:
        raise RuntimeError(f"{arguments} ended with {done.returncode}: {done.stderr[-2000:]}")


def undisturbed(training: Training, folder: Path) -> tuple[dict[str, str], float]:
    """What it learns, and the seconds between its first stored attempt and its end.

    Raises:
        RuntimeError: It left nothing.
    """
    training.prepare(folder)
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            command(training.begin), cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=said
        ) as process,
    ):
        began = _wait(training, folder, process)
        process.wait(900)
        seconds = time.monotonic() - began
        said.seek(0)
        told = said.read().decode(errors="replace")
    found = learned(training, folder)
    if not found:
        raise RuntimeError(f"{training.begin} left nothing of {training.learned}: {told[-2000:]}")
    return found, seconds


def killed(training: Training, folder: Path, seconds: float) -> dict[str, set[str]] | None:
    """Begin it, and kill it so many seconds after its first stored attempt; what was kept then, `None` where it was over."""
    training.prepare(folder)
    with subprocess.Popen(
        command(training.begin),
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        _wait(training, folder, process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        if process.poll() is not None:
            return None
        # With the training process of the weights: a machine that loses power spares no child.
        os.killpg(process.pid, signal.SIGKILL)
    return kept(folder)


def _wait(training: Training, folder: Path, process: "subprocess.Popen[bytes]") -> float:
    until = time.monotonic() + 600
    while not training.begun(folder) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    return time.monotonic()


def points(kind: str, count: int, seed: int) -> dict[str, object]:
    """Kill one training at so many points, each in a fresh folder."""
    training, chance, faults = TRAININGS[kind], random.Random(f"{kind} {seed}"), list[str]()
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch, "whole")
        whole.mkdir()
        right, seconds = undisturbed(training, whole)
        done = over = 0
        while done < count and over < 5 * count:
            folder = Path(scratch, f"{done}-{over}")
            folder.mkdir()
            moment = chance.uniform(0, seconds)
            before = killed(training, folder, moment)
            if before is None:
                over += 1
                continue
            done += 1
            try:
                finish(training.resume, folder)
            except RuntimeError as error:
                faults.append(f"{moment:.2f} s: {error}")
                continue
            after = kept(folder)
            lost = {name: len(ids - after[name]) for name, ids in before.items() if ids - after[name]}
            if lost:
                faults.append(f"{moment:.2f} s: lost {lost}")
            if learned(training, folder) != right:
                faults.append(f"{moment:.2f} s: other bytes")
    return {"kind": kind, "points": done, "over_before": over, "window_seconds": round(seconds, 2), "faults": faults}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", action="append", choices=TRAININGS, help="all five unless said")
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = []
    for kind in given.kind or TRAININGS:
        result = points(kind, given.points, given.seed)
        found.append(result)
        if not given.json:
            print(f"{kind:9} {result['points']} points over {result['window_seconds']} s: {result['faults'] or 'nothing lost'}")
    if given.json:
        print(json.dumps(found))
    return int(any(result["faults"] for result in found))


if __name__ == "__main__":
    raise SystemExit(main())
