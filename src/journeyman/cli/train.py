"""`journeyman train`: learn from tasks."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import emit, json_option, options_named

# The options of `journeyman train planner`.

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("planner")
@click.option(
    "--phase", type=click.Choice(["1", "2"]), default="1", show_default=True, help="1: from examples; 2: by reinforcement."
)
@click.option(
    "--output-dir",
    type=_FOLDER,
    default=Path("checkpoints"),
    show_default=True,
    metavar="DIR",
    help="Checkpoints, metrics and the result.",
)
@click.option(
    "--config",
    "config_file",
    type=_FILE,
    metavar="FILE",
    help="Settings as YAML, as in training.phase1_supervised and training.phase2_rl.",
)
@click.option("--data", type=_FILE, metavar="FILE", help="Phase 1: examples; see `journeyman dataset planner`.")
@click.option("--epochs", type=click.IntRange(1), help="Times through the examples.  [default: 50]")
@click.option("--batch-size", type=click.IntRange(1), help="Examples of one update.  [default: 32]")
@click.option("--learning-rate", type=float, help="[default: by phase]")
@click.option(
    "--lambda-dag", type=click.FloatRange(0), help="Weight of the acyclicity term.  [default: 0, as decoding is safe]"
)
@click.option("--augment", "synthetic_augmentations", type=click.IntRange(0), help="Synthetic examples to add.  [default: 0]")
@click.option(
    "--validation", type=click.FloatRange(0, 0.9), help="Share of examples to choose the best epoch by.  [default: 0.2]"
)
@click.option("--patience", type=click.IntRange(0), help="Epochs without progress before it stops; 0 for never.  [default: 6]")
@click.option("--embedder", metavar="NAME", help="hashing, or sentence (an extra).  [default: hashing]")
@click.option(
    "--checkpoint",
    metavar="PLANNER",
    help="Phase 2: the planner to start from, a file or an id.  [default: phase1_best in --output-dir]",
)
@click.option("--episodes", type=click.IntRange(1), help="Phase 2: executions to learn from.  [default: 1000]")
@click.option(
    "--steps",
    type=click.Choice(["expert", "planner"]),
    help="Phase 2, live: whose steps are carried out, the desk's expert's or phase 1's own.  [default: expert]",
)
@click.option("--replay", type=_FILE, metavar="FILE", help="Phase 2: recorded outcomes to act on, instead of real workers.")
@click.option(
    "--reward",
    type=click.Choice(["utility", "documented"]),
    help="Phase 2: what it learns by; it is examined by the utility.  [default: utility]",
)
@click.option(
    "--success-value", "pay", metavar="USD,SECONDS", help="What one more success is worth to you, in money and in time."
)
@click.option("--explain-reward", is_flag=True, help="Show what the reward makes of your own logs (--logs), and train nothing.")
@click.option(
    "--logs", type=click.Path(path_type=Path, exists=True), metavar="PATH", help="Execution logs, for --explain-reward."
)
@click.option("--held-out", type=click.IntRange(1), help="Phase 2: held-out instructions to examine on.  [default: 200]")
@click.option("--no-evaluate", "evaluate", flag_value=False, default=None, help="Phase 2: do not examine at the end.")
@click.option(
    "--target-stage", type=click.Choice(["shadow", "production"]), help="Where it goes if it passes.  [default: shadow]"
)
@click.option("--force", is_flag=True, default=None, help="Go there even if it does not pass; this is recorded.")
@click.option("--tracker", type=click.Choice(["tensorboard", "wandb", "none"]), help="[default: tensorboard, where installed]")
@click.option("--seed", type=int, help="[default: 0]")
@click.option("--resume", is_flag=True, help="Go on with the phase in --output-dir where it was stopped or killed.")
@click.option("--dry-run", is_flag=True, help="Read and check everything; train nothing.")
@json_option
def planner(as_json: bool, **given: Any) -> int:
    """Learn to plan: from examples, then from what executions brought.

    Phase 1 learns subtasks, their order, their types and their workers from plans that succeeded. Phase 2 starts there and
    learns who should do what, with a reward for each real execution; what it learned is released only if it beats the planner
    of phase 1 and the best single model on held-out instructions. A killed run goes on with --resume and loses no epoch.

    \b
    Examples:
      journeyman train planner --phase 1 --data training_data.json --output-dir checkpoints/ --epochs 50 --batch-size 32
      journeyman train planner --phase 2 --checkpoint checkpoints/phase1_best --episodes 1000
      journeyman train planner --phase 2 --checkpoint checkpoints/phase1_best --replay outcomes.jsonl
      journeyman train planner --explain-reward --logs execution_logs/
    """
    from journeyman.cli.actions import train_planner

    with options_named():
        result = train_planner.run({name: value for name, value in given.items() if value is not None}, quiet=as_json)
    emit(result, as_json=as_json)
    return 1 if result.get("passed") is False else 0


# The options of `journeyman train router`.

OUTPUT = Path("routers/trained")
"""Where a router is written and looked for, unless it is said."""


@click.command("router")
@click.option("--outcomes", type=_FILE, multiple=True, metavar="FILE", help="What became of requests; see docs/routing.md.")
@click.option(
    "--store",
    is_flag=False,
    flag_value="",
    metavar="[URL]",
    help="Learn from what the store has recorded and somebody judged.",
)
@click.option("--objective", default="quality", show_default=True, metavar="WORDS", help='Such as "quality - 20*cost".')
@click.option("--max-cost", type=float, metavar="USD", help="A request may cost so much on average.")
@click.option("--min-quality", type=float, metavar="P", help="The cheapest that is right with this probability.")
@click.option("--deadline", type=float, metavar="SECONDS", help="95 of 100 answers must come within it.")
@click.option("--allow", multiple=True, metavar="MODEL", help="Choose among these only.")
@click.option("--deny", multiple=True, metavar="MODEL", help="Never choose this one.")
@click.option("--safe", metavar="MODEL", help="Who answers requests of an unknown kind.  [default: the best single one]")
@click.option("--unpriced", is_flag=True, help="Also choose models without a known price, as if they were the dearest.")
@click.option("--embedder", metavar="NAME", help="hashing, or sentence (an extra).  [default: the project's]")
@click.option("--prices", type=_FILE, metavar="FILE", help="US dollars for a million tokens, by model.  [default: list prices]")
@click.option(
    "--assume-output-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="How long answers are whose length was not recorded.",
)
@click.option(
    "--newcomer", multiple=True, metavar="MODEL", help="Was asked a few only: place it by how hard they are. See route anchors."
)
@click.option("--skip-unusable", is_flag=True, help="Leave lines out that cannot be used.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=OUTPUT,
    show_default=True,
    metavar="DIR",
    help="Where the router is written.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the training. The split hangs on the requests alone.")
@click.option("--held-out-share", type=click.FloatRange(0, 0.9), default=0.2, show_default=True, help="To prove it on.")
@click.option(
    "--min-gain", "least_gain", type=float, help="Successes a request that the interval's low end must exceed.  [default: 0]"
)
@click.option(
    "--target-stage", type=click.Choice(["shadow", "production"]), default="shadow", help="Where it goes if it passes."
)
@click.option("--force", is_flag=True, help="Go there even if it does not pass; this is recorded.")
@click.option("--no-evaluate", "evaluate", is_flag=True, flag_value=False, default=True, help="Do not prove it at the end.")
@click.option("--dry-run", is_flag=True, help="Read, price and split; train nothing.")
@json_option
def router(as_json: bool, dry_run: bool, **given: Any) -> int:
    """Learn which model answers which request, from what became of earlier ones.

    Success, cost and time of each model are predicted for a request, and the objective chooses. On held-out requests the
    router must bring more than the best single model; one that does not stays in shadow, and whoever serves it asks that
    model. Exit code 1: it did not pass.

    \b
    Examples:
      journeyman train router --outcomes outcomes.jsonl --objective "quality - 20*cost"
      journeyman train router --outcomes outcomes.jsonl --objective "quality where cost <= 0.002" --embedder sentence
      journeyman train router --store --objective "-cost where quality >= 0.9" --target-stage production
      journeyman train router --outcomes outcomes.jsonl --prices prices.json --assume-output-tokens 250 --dry-run
    """
    from journeyman.cli.actions import routing

    result = routing.train(given, dry_run=dry_run, quiet=as_json)
    emit(result, as_json=as_json)
    examined = given["evaluate"] and not dry_run
    return 1 if examined and not (result["passed"] or result["forced"]) else 0


@click.group()
def command() -> None:
    """Learn from tasks, and prove on held-out ones that it helps.

    \b
    Examples:
      journeyman train playbook --dataset desk --domain oslo
      journeyman train weights --method grpo --tasks desk --domain oslo
      journeyman train planner --phase 1 --data training_data.json
      journeyman train router --outcomes outcomes.jsonl --objective "quality - 20*cost"
    """


command.add_command(planner)
command.add_command(router)


@command.command("playbook")
@click.option("--dataset", "dataset_name", help="gsm8k, custom, humaneval, mbpp or desk.  [default: gsm8k]")
@click.option(
    "--input", "input_path", metavar="FILE", help="The data set: GSM8K's JSON lines, or JSON with question and answer."
)
@click.option("--held-out-input", "held_out_path", metavar="FILE", help="Held-out tasks; else some are set apart from --input.")
@click.option("--split", "dataset_split", help="train or validation.  [default: train]")
@click.option("--domain", help="Only tasks of this domain; for the desk, the shop.")
@click.option("--num-examples", type=int, help="Training tasks.  [default: 100]")
@click.option("--model", "--generator-model", "generator_model", metavar="MODEL", help="Such as openai:gpt-5-mini.")
@click.option("--reflector-model", metavar="MODEL", help="Draws the insights.  [default: the same]")
@click.option("--base-url", metavar="URL", help="Another server for both models.")
@click.option("--initial-playbook", type=click.Path(path_type=Path), metavar="FILE", help="Go on from this playbook.")
@click.option("--output", "output_playbook_path", metavar="FILE", help="[default: playbooks/offline_trained.json]")
@click.option(
    "--metrics-output", "output_metrics_path", metavar="FILE", help="[default: metrics/offline_training_metrics.json]"
)
@click.option(
    "--optimizer", metavar="NAME", help="How it learns: playbook, gepa (an extra), or MODULE:CLASS.  [default: playbook]"
)
@click.option("--batch-size", "batch_merge_size", type=int, help="Tasks attempted and merged together.  [default: 10]")
@click.option("--epochs", type=int, help="Times through the tasks.  [default: 1]")
@click.option("--attempts", type=int, help="Attempts at each task; several are compared.  [default: 1]")
@click.option("--concurrency", type=int, help="Calls at once, fewer while the server is busy.  [default: 10]")
@click.option("--reflect-on", type=click.Choice(["all", "failures"]), help="[default: all]")
@click.option("--min-support", type=int, help="Tasks that must teach a bullet before it is shown.  [default: 1]")
@click.option("--similarity-threshold", type=float, help="Cosine from which two bullets are one.  [default: 0.8]")
@click.option("--embedder", help="hashing, or sentence (an extra).  [default: hashing]")
@click.option("--token-budget", type=int, help="Tokens of bullets in a prompt.  [default: 2000]")
@click.option(
    "--target-stage", type=click.Choice(["shadow", "production"]), help="Where it goes if it passes.  [default: shadow]"
)
@click.option("--force", is_flag=True, default=None, help="Go there even if it does not pass; this is recorded.")
@click.option("--no-evaluate", "evaluate", flag_value=False, default=None, help="Do not evaluate at the end.")
@click.option("--held-out", type=int, help="Held-out tasks to evaluate on, at most.  [default: 200]")
@click.option("--attempts-per-task", "trials", type=int, help="Attempts at each held-out task.  [default: 1]")
@click.option("--checkpoint-interval", type=int, help="Examples between checkpoints.  [default: 50]")
@click.option("--no-checkpoints", "save_checkpoints", flag_value=False, default=None, help="Write no checkpoints.")
@click.option("--max-cost", type=float, metavar="USD", help="Stop cleanly once this is spent.")
@click.option("--seed", type=int, help="Of shuffles and samples.  [default: 0]")
@click.option(
    "--resume", is_flag=False, flag_value="", metavar="[RUN]", help="Go on with a run: the newest unfinished, or RUN."
)
@click.option("--dry-run", is_flag=True, help="Check the data and price the run; ask no model.")
@click.option("--scenarios", metavar="FILE", help="Train on scenarios instead: things to build, in YAML or JSON.")
@click.option("--examples", is_flag=True, default=None, help="Train on the five scenarios that ship with Journeyman.")
@click.option("--interactive", is_flag=True, default=None, help="Type scenarios in, and train on them.")
@click.option("--skillbook", metavar="FILE", help="Go on from this playbook if it is there, and write to it.")
@click.option("--ptc-url", metavar="URL", help="Run the programs of scenarios, humaneval or mbpp at this code service.")
@click.option("--unsafe-local", is_flag=True, default=None, help="Run them without walls. For code that you trust.")
@click.option(
    "--max-repairs", type=click.IntRange(0, 19), help="Calls for a scenario after the first, to repair.  [default: 2]"
)
@click.option("--rounds", type=int, hidden=True, help="As it was: the calls for a scenario, the first among them.")
@json_option
def playbook(as_json: bool, dry_run: bool, resume: str | None, initial_playbook: Path | None, **given: Any) -> None:
    """Learn a playbook from a data set, or from scenarios.

    Attempts the tasks, reflects on what went wrong, merges the insights after each batch, and at the end compares agent with
    and without the playbook on held-out tasks. A playbook that does not pass stays in shadow.

    \b
    Examples:
      journeyman train playbook --dataset desk --domain oslo --output playbooks/oslo.json
      journeyman train playbook --dataset gsm8k --input train.jsonl --model openai:gpt-5-mini --dry-run
      journeyman train playbook --scenarios my_scenarios.yaml --model openai:gpt-5-mini
      journeyman train playbook --resume
    """
    from journeyman.cli.actions import scenarios, train_playbook

    options = {name: value for name, value in given.items() if value is not None}
    if (repairs := options.pop("max_repairs", None)) is not None:
        options["rounds"] = 1 + repairs
    run = scenarios.run if scenarios.asked(options, resume) else train_playbook.run
    with options_named():
        result = run(options, initial_playbook, resume=resume, dry_run=dry_run, quiet=as_json)
    emit(result, as_json=as_json)


@command.command("weights")
@click.option(
    "--method", type=click.Choice(["grpo", "grpo-offline", "kto", "dpo", "rft"]), help="How it learns.  [default: grpo]"
)
@click.option(
    "--tasks", "dataset_name", help="Tasks to learn from and to be examined on: desk, gsm8k, custom, humaneval, mbpp."
)
@click.option("--input", "input_path", metavar="FILE", help="The file of the tasks.")
@click.option("--domain", help="Only tasks of this domain; for the desk, the shop.")
@click.option("--num-examples", type=int, help="Training tasks.  [default: 400]")
@click.option("--validation", type=int, help="Tasks to choose the best checkpoint by.  [default: 64]")
@click.option("--data", metavar="FILE", help="Rows to learn from, JSONL or Parquet: see `journeyman dataset build`.")
@click.option("--base-model", metavar="MODEL", help="A Hugging Face id, a folder, or embedded:SIZE.")
@click.option("--start-adapter", metavar="RUN", help="Go on from this adapter: a run, or a folder.")
@click.option("--playbook", "context", metavar="FILE", help="Show these bullets in every prompt, while learning and examined.")
@click.option("--reward", "rewards", multiple=True, metavar="NAME", help="A reward that counts beside the verifier.")
@click.option("--environment", metavar="MODULE:NAME", help="A world with tools to attempt the tasks in, over several turns.")
@click.option("--lora-r", type=int, help="Rank of the adapter.  [default: 16]")
@click.option("--lora-alpha", type=int, help="[default: 32]")
@click.option("--lora-dropout", type=float, help="[default: 0]")
@click.option("--target-modules", multiple=True, metavar="LAYER", help="Layers to adapt.  [default: all linear ones]")
@click.option("--learning-rate", type=float, help="[default: by method and size]")
@click.option("--num-epochs", "--epochs", type=float, help="Times through the data.  [default: 3]")
@click.option("--max-steps", type=int, help="Updates, whatever the epochs.")
@click.option("--batch-size", "per_device_batch_size", type=int, help="Completions in one pass.  [default: what fits]")
@click.option("--gradient-accumulation-steps", type=int, help="Passes of one update.  [default: by batch size]")
@click.option("--num-generations", type=int, help="Completions of a prompt that are compared.  [default: by size]")
@click.option("--temperature", type=float, help="Of the sampling.  [default: 1]")
@click.option(
    "--max-prompt-tokens", type=int, help="Longer prompts lose their beginning; tasks of GRPO with such are left out."
)
@click.option("--max-completion-tokens", type=int, help="Longer completions are cut off.")
@click.option("--beta", type=float, help="How much it counts to stay near the start.  [default: by method]")
@click.option("--clip", type=float, help="How far a probability ratio may move, in grpo.  [default: 0.2]")
@click.option(
    "--no-importance", "importance", flag_value=False, default=None, help="Offline GRPO the wrong way, to see it fail."
)
@click.option("--no-curriculum", "curriculum", flag_value=False, default=None, help="Take the tasks as they come.")
@click.option("--bf16/--fp32", "use_bf16", default=None, help="[default: bf16 where the hardware does it natively]")
@click.option("--gradient-checkpointing/--no-gradient-checkpointing", default=None, help="Less memory, a third more time.")
@click.option("--threads", type=int, help="[default: the cores that this process may use]")
@click.option("--checkpoint-interval", type=int, help="Updates between checkpoints.  [default: 10]")
@click.option("--evaluation-interval", type=int, help="Updates between looks at the validation tasks.")
@click.option("--patience", type=int, help="Looks without progress before it stops early; 0 for never.  [default: 5]")
@click.option("--no-guards", "guards", flag_value=False, default=None, help="Let a policy collapse.")
@click.option("--tracker", type=click.Choice(["tensorboard", "trackio", "wandb", "none"]), help="[default: tensorboard]")
@click.option("--generation", type=click.Choice(["auto", "transformers", "vllm"]), help="What samples.  [default: auto]")
@click.option("--seed", type=int, help="[default: 0]")
@click.option("--launch", metavar="NAME", help="Train in several processes: cpu, gpus, fsdp or a file; see docs/weights.md.")
@click.option("--workers", metavar="ray[:ADDRESS]", help="Train on a Ray cluster that shares the run's folder.")
@click.option("--profile", help="Hardware to plan for: auto_detect, cpu_only, gpu_enabled, ryzen_optimized.")
@click.option("--quick", is_flag=True, default=None, help="A short run, to see that everything works.")
@click.option("--held-out", type=int, help="Held-out tasks to examine on, at most.  [default: 200]")
@click.option("--attempts-per-task", "trials", type=int, help="Attempts at each held-out task.  [default: 1]")
@click.option("--no-evaluate", "evaluate", flag_value=False, default=None, help="Do not examine at the end.")
@click.option("--earlier", multiple=True, metavar="DOMAIN", help="Show what is forgotten of a domain learned before.")
@click.option(
    "--target-stage", type=click.Choice(["shadow", "production"]), help="Where it goes if it passes.  [default: shadow]"
)
@click.option("--force", is_flag=True, default=None, help="Go there even if it does not pass; this is recorded.")
@click.option(
    "--resume", is_flag=False, flag_value="", metavar="[RUN]", help="Go on with a run: the newest unfinished, or RUN."
)
@click.option("--dry-run", is_flag=True, default=None, help="Estimate memory, time and cost; train nothing.")
@json_option
def weights(as_json: bool, **given: Any) -> None:
    """Learn in the weights: train a LoRA adapter, and prove it on held-out tasks.

    From tasks, completions are sampled from the model in training and judged; from --data, recorded ones are learned from. The
    training is a process of its own; a run that was killed goes on with --resume. An adapter that does not pass the gate stays
    in shadow.

    \b
    Examples:
      journeyman train weights --method grpo --tasks desk --domain oslo
      journeyman train weights --method kto --data kto.jsonl --base-model Qwen/Qwen2.5-1.5B-Instruct --dry-run
      journeyman train weights --method rft --tasks gsm8k --input train.jsonl --base-model models/mine
      journeyman train weights --resume
    """
    from journeyman.cli.actions import train_weights

    options = {name: value for name, value in given.items() if value is not None and value != ()}
    with options_named():
        result = train_weights.run(options, quiet=as_json)
    emit(result, as_json=as_json)
