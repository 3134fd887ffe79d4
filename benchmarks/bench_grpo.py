"""GRPO by `grpo` beside the same configuration as a plain TRL script, on the embedded model.

    python benchmarks/bench_grpo.py [--size small] [--steps 8] [--rounds 3] [--threads 1] [--device cpu] [--json]

Both train in processes of their own, in turns: plain, ours (the same tasks in the same order), ours with the curriculum. Prints
the time of a step after the first two, as processor seconds and by the clock, the peak of memory (on a GPU, of the GPU's), and
the mean reward of all steps; medians over the rounds, and ratios to the plain script. The bounds: at most 1.05 times its time
and its memory, and rewards that differ by no more than 0.05.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

KINDS = ("plain", "ours", "curriculum")
BATCH, GENERATIONS, TOKENS, TEMPERATURE, RATE = 64, 8, 64, 1.2, 3e-3
FIELDS = ("cpu_seconds", "seconds", "peak_mib", "reward", "last_reward")
BOUND = 1.05


def put(task: Any) -> tuple[dict[str, str], ...]:
    """As `agents.answer` puts it to the embedded model, with nothing told."""
    return {"role": "system", "content": "reply"}, {"role": "user", "content": task.question}


def tasks() -> Any:
    from journeyman.core.task import Split
    from journeyman.tasks import desk

    return desk.load("oslo", sizes={Split.TRAIN: 400}, seed=0).tasks


def plain(size: str, steps: int, folder: str) -> Any:
    """What a user of TRL would write."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from journeyman.models import embedded_weights
    from journeyman.tasks.desk.world import faults

    known = {task.id: task for task in tasks()}

    def reward(completions: Any, task: Any, **_: Any) -> list[float]:
        return [graded(said[0]["content"], json.loads(known[id].answer)) for said, id in zip(completions, task, strict=True)]

    def graded(reply: str, expected: Any) -> float:
        wrong = faults(reply, expected)
        right = max(0.0, 1 - len(wrong) / (2 + len(expected["arguments"]))) if wrong[:1] != ["call: not a JSON object"] else 0.0
        return (right + (not wrong)) / 2

    where = embedded_weights(size)
    settings = GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=BATCH,
        num_generations=GENERATIONS,
        max_completion_length=TOKENS,
        temperature=TEMPERATURE,
        learning_rate=RATE,
        lr_scheduler_type="linear",
        max_steps=steps,
        beta=0.0,
        loss_type="dapo",
        epsilon_high=0.28,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=not torch.cuda.is_available(),
        dataloader_pin_memory=False,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        seed=0,
    )
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(where, dtype="float32", attn_implementation="eager"),
        processing_class=AutoTokenizer.from_pretrained(where, padding_side="left"),
        reward_funcs=[reward],
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": list(put(task)), "task": task.id} for task in tasks()]),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )


def ours(size: str, steps: int, folder: str, *, curriculum: bool) -> Any:
    from journeyman.experiments.weights.__main__ import TaskJudge
    from journeyman.optimizers.weights.config import TrainingConfig
    from journeyman.optimizers.weights.job import TrainingJob as Job
    from journeyman.optimizers.weights.train import TrainingSetup as Work
    from journeyman.optimizers.weights.train.online import grpo
    from journeyman.optimizers.weights.train.run import load
    from journeyman.tasks.desk.world import Desk

    config = TrainingConfig(
        base_model=f"embedded:{size}",
        learning_rate=RATE,
        max_steps=steps,
        per_device_batch_size=BATCH,
        gradient_accumulation_steps=1,
        num_generations=GENERATIONS,
        temperature=TEMPERATURE,
        max_completion_tokens=TOKENS,
        beta=0.0,
        curriculum=curriculum,
    )
    loaded = load(config)
    return grpo(
        Work(
            config=config,
            job=Job(Path(folder)),
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            tasks=tasks(),
            rows=(),
            put=put,
            judge=TaskJudge(Desk()),
            callbacks=(),
        )
    )


def one(kind: str, size: str, steps: int, threads: int) -> dict[str, float]:
    """Train in this process."""
    import torch
    from transformers import TrainerCallback

    torch.set_num_threads(threads)
    clock: list[tuple[float, float]] = []

    class Clock(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.append((time.process_time(), time.perf_counter()))

    with tempfile.TemporaryDirectory() as folder:
        trainer = plain(size, steps, folder) if kind == "plain" else ours(size, steps, folder, curriculum=kind != "ours")
        trainer.add_callback(Clock())
        trainer.train()
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    cpu, wall = ([b - a for a, b in pairwise(each[1:])] for each in zip(*clock, strict=True))
    on_gpu = torch.cuda.is_available()
    peak = torch.cuda.max_memory_allocated() / 1024 if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "cpu_seconds": statistics.mean(cpu),
        "seconds": statistics.mean(wall),
        "peak_mib": peak / 1024,
        "reward": statistics.mean(rewards),
        "last_reward": statistics.mean(rewards[-5:]),
    }


def asked(kind: str, options: argparse.Namespace) -> dict[str, float]:
    """Train in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--one",
        kind,
        *(f"--{name}={getattr(options, name)}" for name in ("size", "steps", "threads")),
    ]
    hidden = {} if options.device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
    told = {"OMP_NUM_THREADS": str(options.threads), "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    environment = {**os.environ, **hidden, **told}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=3600)
    if run.returncode:
        sys.exit(run.stderr[-3000:])
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="small")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--one", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.one:
        warnings.simplefilter("ignore")
        print(json.dumps(one(options.one, options.size, options.steps, options.threads)))
        return
    rounds = [{kind: asked(kind, options) for kind in KINDS} for _ in range(options.rounds)]
    table = {kind: {name: statistics.median(each[kind][name] for each in rounds) for name in FIELDS} for kind in KINDS}
    ratios = {
        kind: {name: statistics.median(each[kind][name] / each["plain"][name] for each in rounds) for name in FIELDS[:3]}
        for kind in KINDS[1:]
    }
    kept = (
        all(ratio <= BOUND for ratio in ratios["ours"].values())
        and abs(table["ours"]["reward"] - table["plain"]["reward"]) <= 0.05
    )
    if options.json:
        print(json.dumps({"medians": table, "ratios": ratios, "within_bounds": kept}))
        return
    print(f"{'':12}" + "".join(f"{name:>14}" for name in FIELDS))
    for kind in KINDS:
        print(f"{kind:12}" + "".join(f"{table[kind][name]:14.3f}" for name in FIELDS))
    for kind, found in ratios.items():
        print(f"{kind}/plain".ljust(16) + "".join(f"{name} {ratio:.3f}  " for name, ratio in found.items()))
    print("within the bounds" if kept else "OUT OF BOUNDS")


if __name__ == "__main__":
    main()
