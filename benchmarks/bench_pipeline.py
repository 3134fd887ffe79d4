"""How good the forecast of `journeyman pipeline plan` is, and whether a budget of money holds.

    python -m benchmarks.bench_pipeline
    python -m benchmarks.bench_pipeline --part money --json

`desk`: the preset, run three times, each time with another seed of the training, so that nothing is there already; before each
run what `plan` says, after it what the run took. What comes behind the gate is not carried out where that refuses. `money`: a
playbook learned from a model on loopback that has a price, three times in the same way, then under budgets. The bars: at the
third run time within twice the forecast, either way; never above a budget of money by more than a tenth.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from journeyman.cli.pipeline import preset
from journeyman.optimizers.weights import llamacpp
from tests.support.llm_server import Answer, completion, serving
from tests.support.pupil import answer, write_sums

RUNS = 3
TWICE, TENTH = 2.0, 1.1
BUDGETS = (0.75, 0.5, 0.25)
"""Of what a whole run costs."""
MONEY = """
[pipeline]
name = "money"
{budget}
[train]
command = "train playbook"
dataset = "custom"
input = "sums.json"
model = "openai:pupil@{url}"
batch_size = 5
held_out = 40

[evaluate]
command = "evaluate"
playbook = "{{train.playbook_path}}"
dataset = "custom"
input = "sums.json"
model = "openai:pupil@{url}"
accepts = [0, 1]
"""
PRICES = '[prices."openai:pupil@{url}"]\ninput = 10.0\noutput = 40.0\n'


def typed(folder: Path, *arguments: str) -> dict[str, Any]:
    """The last line of a command as JSON; with a refusal or a budget it ends with 1."""
    words = [sys.executable, "-m", "journeyman", *arguments, "--json"]
    environment = {**os.environ, "OPENAI_API_KEY": "none", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2")}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def forecast(folder: Path, *sets: str) -> Iterator[dict[str, Any]]:
    """Each run: what was forecast of each stage that it then carried out, and what that took."""
    for seed in range(RUNS):
        changed = ("--set", f"train.seed={seed}", *sets)
        before = {each["stage"]: each for each in typed(folder, "pipeline", "plan", *changed)["stages"]}
        run = typed(folder, "pipeline", "run", *changed)
        done = [name for name, (state, _) in run["stages"].items() if state == "done" and before[name]["seconds"]]
        found: dict[str, Any] = {"run": seed + 1, "reason": run["reason"], "stages": len(done)}
        for what in ("seconds", "cpu_seconds", "cost"):
            told = [before[name][what] for name in done]
            sums = [sum(each[at] for each in told) for at in range(3)] if told and None not in told else None
            found[what] = {"forecast": sums, "took": run[what]}
        # The whole takes long: what is known is said at once.
        print(json.dumps(found), file=sys.stderr, flush=True)
        yield found


def is_within(found: dict[str, Any], what: str) -> bool:
    _, middle, _ = found[what]["forecast"]
    return bool(middle / TWICE <= found[what]["took"] <= middle * TWICE)


@contextmanager
def priced(folder: Path) -> Iterator[str]:
    """A server whose model costs what it reads and writes, by its words."""

    def said(body: dict[str, Any]) -> Answer:
        asked = "\n\n".join(message["content"] for message in body["messages"])
        text = answer(asked)
        read, wrote = len(asked.split()), len(text.split())
        return completion(text, usage={"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote})

    with serving() as server:
        server.default = said
        (folder / "journeyman.toml").write_text(PRICES.format(url=server.url))
        write_sums(folder / "sums.json", train=100, held_out=80)
        yield server.url


def money(folder: Path) -> dict[str, Any]:
    with priced(folder) as url:
        (folder / "pipeline.toml").write_text(MONEY.format(url=url, budget=""))
        runs = list(forecast(folder))
        whole = runs[-1]["cost"]["took"]
        budgets = []
        for seed, share in enumerate(BUDGETS, start=RUNS):
            bound = f"[pipeline.budget]\ncost = {share * whole:.6f}\n"
            (folder / "pipeline.toml").write_text(MONEY.format(url=url, budget=bound))
            run = typed(folder, "pipeline", "run", "--set", f"train.seed={seed}")
            budgets.append({"budget": share * whole, "cost": run["cost"], "reason": run["reason"]})
    return {"runs": runs, "budgets": budgets, "held": all(each["cost"] <= TENTH * each["budget"] for each in budgets)}


def desk(folder: Path, steps: int | None) -> dict[str, Any]:
    (folder / "pipeline.toml").write_text(preset("desk"))
    servers = folder / ".journeyman" / "servers"
    runs = []
    for found in forecast(folder, *(["--set", f"train.max_steps={steps}"] if steps else ())):
        runs.append(found)
        # One rollout is open in a slot, and what was deployed need not answer any more.
        if not found["reason"]:
            typed(folder, "releases", "close", "weights", "--reason", "the next run")
        for server in llamacpp.running(servers):
            llamacpp.stop(servers, server.model)
    return {"runs": runs, "within": {what: is_within(runs[-1], what) for what in ("seconds", "cpu_seconds")}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--part", choices=("desk", "money"), nargs="+", default=["desk", "money"])
    parser.add_argument("--steps", type=int, metavar="N", help="updates of the desk's training, instead of the preset's")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for part in options.part:
        with tempfile.TemporaryDirectory() as folder:
            found[part] = desk(Path(folder), options.steps) if part == "desk" else money(Path(folder))
        if not options.json:
            print(part, *(json.dumps(each) for each in found[part].pop("runs")), json.dumps(found[part]), sep="\n  ")
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
