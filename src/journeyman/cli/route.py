"""`journeyman route`, `train router` and `evaluate router`: which model should answer?"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import Column, named_columns, number, pour, say, short, table, write
from journeyman.cli.lazy import CommandGroup, Own
from journeyman.cli.options import options, provided
from journeyman.cli.shared import emit, json_option, options_named, read_store_url, settled, together, warn_of_few
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.core.policy import Choice, Forecast
from journeyman.experiments import settings
from journeyman.experiments.router.config import RouterConfig
from journeyman.experiments.settings import GateSettings
from journeyman.io.atomic import write_text
from journeyman.io.files import check_writable, read_text
from journeyman.stores import open_store, open_traces
from journeyman.tasks.rows import Complaints, read

if TYPE_CHECKING:
    from journeyman.experiments.router.evaluation import RouterEvaluation, RoutingSide
    from journeyman.experiments.router.training import TrainedRouter
    from journeyman.models.embedders import Cached
    from journeyman.optimizers.outcome_table import OutcomeRow, Parts, Table
    from journeyman.optimizers.router.objective import Objective
    from journeyman.tasks.base import Dataset

OUTPUT = Path("routers/trained")
"""Where a router is written and looked for, unless it is said."""
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


_BOUNDS = (
    click.option("--max-cost", type=float, metavar="USD", help="A request may cost so much on average."),
    click.option("--min-quality", type=float, metavar="P", help="The cheapest that is right with this probability."),
    click.option("--deadline", type=float, metavar="SECONDS", help="95 of 100 answers must come within it."),
    click.option("--allow", multiple=True, metavar="MODEL", help="Choose among these only."),
    click.option("--deny", multiple=True, metavar="MODEL", help="Never choose this one."),
)
"""What must hold of a choice."""
_READING = (
    click.option(
        "--prices", type=_FILE, metavar="FILE", help="US dollars for a million tokens, by model.  [default: list prices]"
    ),
    click.option(
        "--assume-output-tokens",
        type=click.IntRange(1),
        metavar="N",
        help="How long answers are whose length was not recorded.",
    ),
    click.option("--skip-unusable", is_flag=True, help="Leave lines out that cannot be used."),
)
"""How outcomes are read."""


@click.group(cls=CommandGroup, invoke_without_command=True, subcommand_metavar="[REQUEST]... | anchors [OPTIONS]")
@click.argument("requests", cls=Own, nargs=-1)
@click.option("--policy", default=str(OUTPUT), show_default=True, metavar="DIR|ID", help="The router: its folder, or its id.")
@click.option(
    "--input", "source", metavar="FILE", help="Requests, one a line, or JSON lines with request and type; - for stdin."
)
@click.option("--type", "kind", default="general", help="What kind of request it is, where the router has learned kinds.")
@click.option("--objective", metavar="WORDS", help='What is wanted now, such as "quality - 20*cost".  [default: as trained]')
@together(*_BOUNDS)
@click.option("--explain", is_flag=True, help="Show what each model is expected to bring, and why one was chosen.")
@click.option("--unproven", is_flag=True, help="Let a router choose that no gate has let pass.")
@click.option("--explore", type=click.FloatRange(0, 1), default=0.0, help="Share drawn at random, to learn from.")
@click.option("--online", is_flag=True, help="Choose as outcomes have told a program so far (Thompson sampling); needs --log.")
@click.option("--log", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Add the decisions to this file.")
@click.option("--no-text", is_flag=True, help="Keep digests of requests in the log, and no texts.")
@click.option("--seed", type=int, default=0, help="Of what is drawn.")
@json_option
def command(as_json: bool, requests: tuple[str, ...], **given: Any) -> None:
    """Say which model should answer a request, and why.

    The name of the model goes to stdout, a line for each request; the reason to stderr. Nothing is asked of any model.

    \b
    Examples:
      journeyman route "Prove that there are infinitely many primes." --explain
      journeyman route "What is the capital of Norway?" --objective "quality - 50*cost" --json
      journeyman route --input requests.txt --log decisions.jsonl --explore 0.1
    """
    result = _route(requests, given, quiet=as_json)
    emit(result, as_json=as_json)


@command.command()
@click.option(
    "--outcomes", type=click.Path(path_type=Path, dir_okay=False, exists=True), multiple=True, required=True, metavar="FILE",
    help="What became of requests with the models that are known.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(5), default=30, show_default=True, help="How many; 20 to 50 place a model well.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write them here, not to stdout."
)
@click.option("--seed", type=int, default=0, show_default=True, help="No split hangs on it any more.")
@click.option("--held-out-share", type=click.FloatRange(0, 0.9), default=0.2, show_default=True, help="As for the training.")
@json_option
def anchors(as_json: bool, **given: Any) -> None:
    """Say what to ask a new model: the few requests that tell the most of it.

    How hard each request is, the known models have shown. Ask these of the new one, judge its answers, add model and success to
    each line, and train with --newcomer: it is then placed on all the others. No request is held out.

    \b
    Examples:
      journeyman route anchors --outcomes outcomes.jsonl --count 30 --output anchors.jsonl
      journeyman train router --outcomes outcomes.jsonl --outcomes answers.jsonl --newcomer openai:gpt-5-nano
    """
    emit(_anchors(given, quiet=as_json), as_json=as_json)


@click.command("router")
@click.option("--outcomes", type=_FILE, multiple=True, metavar="FILE", help="What became of requests; see docs/routing.md.")
@click.option(
    "--store",
    is_flag=False,
    flag_value="",
    metavar="[URL]",
    help="Learn from what the store has recorded and somebody judged.",
)
@click.option("--from", "source", type=click.Choice(("traces",)), help="Learn from the project's recorded traces, as --store.")
@click.option("--dataset", metavar="NAME", help="Let models attempt the tasks of a data set, such as repository, for it.")
@click.option("--input", "input_path", metavar="FILE", help="The tasks of that data set.")
@click.option("--held-out-input", "held_out_path", metavar="FILE", help="Held-out ones; else some of --input are set apart.")
@click.option("--domain", default="", metavar="NAME", help="Only tasks of this domain.")
@click.option("--model", "models", multiple=True, metavar="MODEL", help="Who attempts them; repeated, two at least.")
@click.option("--base-url", default="", metavar="URL", help="Another server for models that are named without one.")
@click.option("--max-calls", type=click.IntRange(1), metavar="N", help="Calls of all models together, at most.")
@click.option("--max-spent", type=click.FloatRange(0, min_open=True), metavar="USD", help="What the attempts may cost.")
@click.option("--objective", default="quality", show_default=True, metavar="WORDS", help='Such as "quality - 20*cost".')
@together(*_BOUNDS)
@click.option("--safe", metavar="MODEL", help="Who answers requests of an unknown kind.  [default: the best single one]")
@click.option("--unpriced", is_flag=True, help="Also choose models without a known price, as if they were the dearest.")
@click.option("--embedder", metavar="NAME", help="hashing, or sentence (an extra).  [default: the project's]")
@together(*_READING)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=OUTPUT,
    show_default=True,
    metavar="DIR",
    help="Where the router is written.",
)
@options(
    RouterConfig,
    helps={
        "seed": "Of the training. The split hangs on the requests alone.",
        "min_gain": "Successes a request that the interval's low end must exceed.",
    },
)
@click.option("--dry-run", is_flag=True, help="Read, price and split; train nothing.")
@json_option
def train(as_json: bool, dry_run: bool, **given: Any) -> int:
    """Learn which model answers which request, from what became of earlier ones.

    Success, cost and time of each model are predicted for a request, and the objective chooses. On held-out requests the
    router must bring more than the best single model; one that does not stays in shadow, and whoever serves it asks that
    model. Exit code 1: it did not pass.

    \b
    Examples:
      journeyman train router --outcomes outcomes.jsonl --objective "quality - 20*cost"
      journeyman train router --outcomes outcomes.jsonl --objective "quality where cost <= 0.002" --embedder sentence
      journeyman train router --from traces --objective "quality - 20*cost"
      journeyman train router --store --objective "-cost where quality >= 0.9" --target-stage production
      journeyman train router --outcomes outcomes.jsonl --prices prices.json --assume-output-tokens 250 --dry-run
      journeyman train router --dataset repository --input tasks.jsonl --model openai:gpt-5-mini --model openai:gpt-5-nano
    """
    if given.pop("source") and given["store"] is None:
        given["store"] = ""
    with options_named():
        result = _train(given, dry_run=dry_run, quiet=as_json)
    emit(result, as_json=as_json)
    examined = given["evaluate"] is not False and not dry_run
    return 1 if examined and not (result["passed"] or result["forced"]) else 0


@click.command("router")
@click.option("--policy", default=str(OUTPUT), show_default=True, metavar="DIR|ID", help="The router: its folder, or its id.")
@click.option("--outcomes", type=_FILE, multiple=True, required=True, metavar="FILE", help="What became of requests.")
@click.option("--all", "everything", is_flag=True, help="Use all of the file: nothing in it was learned from.")
@together(*_READING)
@options(GateSettings, helps={"min_gain": "Successes a request that the interval's low end must exceed."})
@json_option
def evaluate(as_json: bool, **given: Any) -> int:
    """Measure a router on requests that it has not learned from.

    Accuracy, cost and utility beside every single model, chance and an oracle, with 95 % intervals; how true its
    probabilities are; and whether it is better than the best single model. Without --all only the held-out part of the file is
    used, found by the split of the training. Exit code 0: it is better, 1: it is not. Every look is counted.

    \b
    Examples:
      journeyman evaluate router --outcomes outcomes.jsonl
      journeyman evaluate router --policy routers/trained --outcomes next_month.jsonl --all --json
    """
    result = _evaluate(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["passed"] else 1


def _train(given: Mapping[str, Any], *, dry_run: bool, quiet: bool) -> dict[str, Any]:
    """Train, or only say what would be; words go to stderr, the table to stdout."""
    from journeyman.experiments.router import training
    from journeyman.optimizers.outcome_table import parts
    from journeyman.optimizers.router import artifact
    from journeyman.stores.artifacts import Artifacts

    objective = _objective(given)
    project = settings.load()
    config = settings.configured(RouterConfig, {**RouterConfig.known(provided(given)), "objective": objective}, project)
    check_writable(given["output"] / artifact.POLICY)
    if dry_run and given["dataset"]:
        attempts = len(_to_attempt(given, config).tasks) * len(set(given["models"]))
        say(f"{counted(attempts, 'attempt')} would be made, and none was")
        return {"dry_run": True, "attempts": attempts}
    rows = _attempted(given, config, quiet=quiet) if given["dataset"] else _rows(given, quiet=quiet)
    outcomes = _outcomes(rows, given)
    split = parts(outcomes, held_out=config.held_out_share, validation=config.validation, least=config.min_tasks)
    training.learnable(outcomes, split, objective)
    if not quiet:
        _show_outcomes(outcomes, split)
    if config.evaluate:
        warn_of_few(len(split.held_out), config.min_tasks)
    if dry_run:
        workers = [_worker_json(outcomes, at) for at in range(len(outcomes.workers))]
        return {"dry_run": True, "rows": len(outcomes), "workers": workers}
    embedder = _cached(given["embedder"] or project.settings.models.embedder, project.folder)
    with open_store(project.store_url) as store:
        places = training.Places(folder=given["output"], store=store, artifacts=Artifacts(project.artifacts))
        trained = training.train(outcomes, embedder, config, places, _progress(quiet=quiet))
    embedder.save()
    if not quiet:
        _show_trained(trained, given["output"])
    return {**trained.json(), "output": str(given["output"])}


def _evaluate(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Measure a router on rows that it has not learned from; words go to stderr, the table to stdout."""
    from journeyman.experiments import wiring
    from journeyman.experiments.evaluator import HeldOutEvaluator, untrained
    from journeyman.experiments.router import training
    from journeyman.optimizers.outcome_table import parts
    from journeyman.serving.router import find

    policy, verdict = find(given["policy"])
    project = settings.load()
    outcomes = _outcomes(_rows(given, quiet=quiet), given, policy.fitted.workers)
    held_out, validation, seed = policy.split
    split = parts(outcomes, held_out=held_out, validation=validation, seed=seed, least=project.settings.gate.min_tasks)
    rows = outcomes if given["everything"] else outcomes.take(split.held_out)
    if not len(rows):
        raise InputError("none of these requests is held out; if the router has learned from none of them, say --all")
    clean, _ = untrained(rows.tasks, policy.trained_on)
    warn_of_few(len(clean), project.settings.gate.min_tasks)
    embedder = _cached(policy.fitted.embedder, project.folder)
    vectors = training.embedded(embedder, rows.requests, _progress(quiet=quiet))
    embedder.save()
    gate = settings.configured(GateSettings, GateSettings.known(provided(given)), project).gate
    with open_store(project.store_url) as store:
        name = f"evaluate-{wiring.now():%Y%m%d-%H%M%S-%f}"
        proof = training.examine(policy, (rows, vectors), gate, HeldOutEvaluator(store=store), name)
    if not quiet:
        _show_proof(proof, policy.objective)
    return {"policy": policy.id, "objective": str(policy.objective), "serves": verdict.serves, **proof.json()}


def _objective(given: Mapping[str, Any], trained: "Objective | None" = None) -> "Objective":
    """The objective that the options say, together; what they do not say is as it was trained."""
    from journeyman.optimizers.router.objective import Objective, parse

    objective = parse(given["objective"]) if given["objective"] else trained or Objective()
    if given["objective"] and trained is not None:
        objective = replace(objective, allow=trained.allow, deny=trained.deny, safe=trained.safe, unpriced=trained.unpriced)
    limits = {name: given[name] for name in ("max_cost", "min_quality", "deadline", "safe") if given.get(name) is not None}
    lists = {name: given[name] for name in ("allow", "deny") if given.get(name)}
    return replace(objective, **limits, **lists, unpriced=bool(given.get("unpriced")) or objective.unpriced)


def _rows(given: Mapping[str, Any], *, quiet: bool) -> "tuple[OutcomeRow, ...]":
    from journeyman.optimizers.router import outcomes

    url = given.get("store")
    if not given["outcomes"] and url is None:
        raise InputError("nothing to learn from is named; give --outcomes FILE, or --store for what the project has recorded")
    left_out: list[str] | None = [] if given["skip_unusable"] else None
    rows = outcomes.rows_of_files(given["outcomes"], left_out) if given["outcomes"] else ()
    if not quiet:
        say(*(f"left out: {line}" for line in left_out or ()))
    if url is not None:
        with open_traces(read_store_url(url), make=False) as store:
            rows += outcomes.rows_of_store(store)
    if not rows:
        raise InputError("the store holds no request that one model alone answered and somebody judged; label or score some")
    return rows


def _to_attempt(given: Mapping[str, Any], config: RouterConfig) -> "Dataset":
    """The tasks that models are to attempt.

    Raises:
        InputError: Two models at least are not named, or there are no such tasks.
    """
    from journeyman.experiments import wiring
    from journeyman.experiments.playbook.config import TrainingConfig

    if given["outcomes"] or given.get("store") is not None:
        raise InputError("--dataset lets models attempt tasks, --outcomes and --store say what became of others; name one")
    if len(set(given["models"])) < 2:
        raise InputError("a router chooses among two models at least: --model MODEL --model MODEL")
    named = {"dataset_name": given["dataset"], "min_clusters": config.min_clusters, "domain": given["domain"]}
    files = {name: given[name] for name in ("input_path", "held_out_path") if given[name]}
    return wiring.load_dataset(settled(TrainingConfig, {**named, **files}))


def _attempted(given: Mapping[str, Any], config: RouterConfig, *, quiet: bool) -> "tuple[OutcomeRow, ...]":
    """What becomes of the tasks of a data set with each of the models: attempted now, where that is not known yet."""
    from journeyman.experiments import wiring
    from journeyman.experiments.router.training import OUTCOMES

    dataset, path = _to_attempt(given, config), given["output"] / OUTCOMES
    for name in given["models"]:
        wiring.check(name, base_url=given["base_url"])
    if not quiet:
        say(f"{counted(len(dataset.tasks), 'task')}; what becomes of them is kept in {path}")
    wiring.try_walls(dataset)
    rows, missing = asyncio.run(_attempts(dataset, path, given, _progress(quiet=quiet)))
    if missing and not quiet:
        say(f"left out: {missing}; they are attempted when this is typed again")
    if not rows:
        raise InputError(f"nothing is known of any task: {missing}")
    return rows


async def _attempts(
    dataset: "Dataset", path: Path, given: Mapping[str, Any], progress: Callable[[str, int, int], None]
) -> "tuple[tuple[OutcomeRow, ...], str]":
    from journeyman.agents.replay import CallBudget, within
    from journeyman.experiments import wiring
    from journeyman.experiments.router.training import Attempting

    budget = CallBudget(given["max_calls"], given["max_spent"])
    clients = {name: wiring.connect(name, base_url=given["base_url"]) for name in given["models"]}
    if given["max_calls"] or given["max_spent"]:
        clients = {name: within(client, budget) for name, client in clients.items()}
    try:
        return await Attempting(dataset=dataset, models=clients, path=path, progress=progress).outcomes()
    finally:
        await wiring.closed(dataset)
        for client in clients.values():
            await client.close()


def _outcomes(rows: "Sequence[OutcomeRow]", given: Mapping[str, Any], workers: Sequence[str] = ()) -> "Table":
    """Of the rows, with prices. `workers` gives the columns and their order, where a router knows them already."""
    from journeyman.optimizers.router import outcomes

    names = workers or tuple(dict.fromkeys(name for row in rows for name in row.outcomes))
    cards = outcomes.cards(names, given["prices"])
    return outcomes.table(rows, cards, workers=names, output_tokens=given["assume_output_tokens"])


def _cached(name: str, folder: Path) -> "Cached":
    """Vectors by a model take their time, and are kept; those by hashing do not."""
    from journeyman.models import embedders

    embedder = embedders.load(name)
    file = "".join(c if c.isalnum() else "-" for c in embedder.name)
    return embedders.Cached(embedder, None if name.startswith("hashing") else folder / "embeddings" / f"{file}.npz")


def _progress(*, quiet: bool) -> Callable[[str, int, int], None]:
    started = set[str]()

    def show(what: str, done: int, total: int) -> None:
        if quiet or (what in started and done != total and done * 10 // total == (done - 256) * 10 // total):
            return
        started.add(what)
        say(f"{what} {done}/{total}" if total > 1 else f"{what} …" if not done else f"{what}: done")

    return show


def _worker_json(outcomes: "Table", at: int) -> dict[str, Any]:
    success, cost, seconds = (_mean(values, at) for values in (outcomes.success, outcomes.cost, outcomes.seconds))
    return {
        "model": outcomes.workers[at],
        "asked": int((outcomes.errors | (outcomes.success == outcomes.success))[:, at].sum()),
        "success": success,
        "cost": cost,
        "seconds": seconds,
        "errors": int(outcomes.errors[:, at].sum()),
    }


def _mean(values: Any, at: int) -> float | None:
    known = values[:, at][values[:, at] == values[:, at]]
    return float(known.mean()) if len(known) else None


def _show_outcomes(outcomes: "Table", split: "Parts") -> None:
    left = f", {len(split.left_out)} left out, as other rows of theirs are set apart" if split.left_out else ""
    say(
        f"{counted(len(outcomes), 'request')}: {len(split.train)} to learn from, {len(split.validation)} to choose by, "
        f"{len(split.held_out)} held out{left}"
    )
    rows = []
    for at in range(len(outcomes.workers)):
        worker = _worker_json(outcomes, at)
        numbers = _share(worker["success"]), _usd(worker["cost"]), number(worker["seconds"]), str(worker["errors"])
        rows.append((worker["model"], str(worker["asked"]), *numbers))
    table(named_columns("model", "asked", "right", "cost", "seconds", "errors"), rows)


def _show_trained(trained: "TrainedRouter", folder: Path) -> None:
    if trained.proof is not None:
        _show_proof(trained.proof, trained.policy.objective)
    else:
        say(trained.reason)
    say(
        f"router {trained.policy.id} in {folder} ({trained.stage.value})",
        f"Use it: journeyman route --policy {folder} --explain REQUEST"
        if trained.passed or trained.forced
        else f"It is not proven, so {trained.policy.best} answers; --unproven shows what it would choose.",
    )
    if trained.passed:
        say(f"Bring it to live requests for the model auto: journeyman releases start {trained.policy.id}")


def _show_proof(proof: "RouterEvaluation", objective: "Objective") -> None:
    """The table of all ways of choosing, and the verdict."""
    names = ("accuracy", "cost", "seconds", "utility", "95 % interval")
    columns = [Column(name="", words=True), *(Column(name=name, spare=at) for at, name in enumerate(names))]
    sides = ((f"{name} (best single)" if name == proof.best else name, side) for name, side in proof.sides.items())
    table(columns, [(name, *_side_cells(side)) for name, side in sides])
    low, high = proof.interval
    write(
        f"on {counted(proof.requests, 'request')}, utility is {objective} in successes a request",
        f"gain over {proof.best}: {_signed(proof.gain)} ({_signed(low)} to {_signed(high)})",
        f"probabilities: ECE {number(proof.ece)}, Brier {number(proof.brier)}; "
        f"wrong of the most confident: {', '.join(f'{at}: {risk:.1%}' for at, risk in proof.risks.items())}",
        f"{'passed' if proof.passed else 'not passed'}: {proof.reason}",
    )


def _side_cells(side: "RoutingSide") -> tuple[str, ...]:
    interval = "" if side.utility_low is None else f"{side.utility_low:+.4f} to {side.utility_high:+.4f}"
    return _share(side.accuracy), _usd(side.cost), number(side.seconds), _signed(side.utility), interval


def _share(value: float | None) -> str:
    return number(value, ".1%")


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.6f}"


def _signed(value: float | None) -> str:
    return number(value, "+.4f")


def _anchors(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Requests go to the file or to stdout, words to stderr."""
    from journeyman.optimizers.outcome_table import parts
    from journeyman.optimizers.router import cold_start, outcomes

    usual = RouterConfig()
    known = outcomes.table(outcomes.rows_of_files(given["outcomes"]))
    split = parts(known, held_out=given["held_out_share"], validation=usual.validation, least=usual.min_tasks)
    rows = cold_start.questions(known, split.train, given["count"])
    lines = [{"request": known.requests[row], "type": known.types[row]} for row in rows]
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    if given["output"]:
        write_text(given["output"], text)
    elif not quiet:
        pour(text)
    if not quiet:
        say(f"{len(lines)} of {counted(len(split.train), 'request')} to ask a new model; add model and success to each line")
    return {"anchors": lines, "output": str(given["output"]) if given["output"] else None}


# Requests are routed.

_REQUEST = ("request", "question", "prompt", "instruction", "query")


def _route(requests: tuple[str, ...], given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Route the requests; names go to stdout, a line each, and reasons to stderr."""
    from journeyman.optimizers.router.decisions import DecisionLog
    from journeyman.serving.router import Router

    typed = list(_typed(requests, given["source"], given["kind"]))
    if not typed:
        raise InputError('no request is given; say it, as in: journeyman route "Prove that …", or name a file: --input FILE')
    log = DecisionLog(given["log"], texts=not given["no_text"]) if given["log"] else None
    drawing = {name: given[name] for name in ("unproven", "explore", "seed", "online")}
    router = Router.load(given["policy"], log=log, **drawing)
    objective = _objective(given, router.policy.objective)
    choices = []
    for request, kind in typed:
        choice = router.route(request, type=kind, objective=objective)
        choices.append(_choice_json(request, choice))
        if not quiet and given["explain"]:
            _explain(request if len(typed) > 1 else "", choice, objective)
        elif not quiet:
            write(choice.worker)
            say(choice.reason)
    return {"policy": router.policy.id, "objective": str(objective), "proven": router.verdict.serves, "choices": choices}


def _typed(requests: tuple[str, ...], source: str | None, kind: str) -> Iterator[tuple[str, str]]:
    """Requests with their types."""
    for request in requests:
        if not request.strip():
            raise InputError("a request is empty; say what is asked")
        yield request, kind
    if source is not None and source != "-" and {".json", ".jsonl"} & set(Path(source).suffixes):
        yield from _of_json(Path(source), kind)
    elif source is not None:
        text = _of_stdin() if source == "-" else read_text(source)
        yield from ((line, kind) for line in text.splitlines() if line.strip())


def _of_stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8 text (byte {error.start})") from None


def _of_json(path: Path, kind: str) -> list[tuple[str, str]]:
    bad = Complaints(f"{path} holds lines that are no requests")
    requests = []
    for row in read(path, bad):
        request = next((row.value[name] for name in _REQUEST if isinstance(row.value.get(name), str)), "")
        if not request.strip():
            bad.add(row.where, 'no request; a line is {"request": …, "type": …}')
        requests.append((request, str(row.value.get("type") or kind)))
    bad.check()
    return requests


def _choice_json(request: str, choice: Choice) -> dict[str, Any]:
    names = ("worker", "propensity", "candidates", "reason", "explored", "fallback")
    decision = {"decision": choice.extra["decision"]} if "decision" in choice.extra else {}
    forecasts = [asdict(each) for each in choice.forecasts]
    return {"request": request, **{name: getattr(choice, name) for name in names}, **decision, "forecasts": forecasts}


def _explain(title: str, choice: Choice, objective: "Objective") -> None:
    columns = [*named_columns("", "right", "cost", "p50", "p95", "utility"), Column(name="", words=True, spare=1)]
    ranked = sorted(choice.forecasts, key=lambda each: (each.worker != choice.worker, -each.success))
    table(columns, [_forecast_cells(each, choice, objective) for each in ranked], title=short(title) if title else "")
    write(choice.reason)


def _forecast_cells(forecast: Forecast, choice: Choice, objective: "Objective") -> tuple[str, ...]:
    from journeyman.optimizers.router.decide import decide_one

    alone = decide_one((forecast,), objective)
    return (
        forecast.worker,
        f"{forecast.success:.3f}",
        _usd(forecast.cost),
        *("unknown" if value is None else f"{value:.2f} s" for value in (forecast.p50, forecast.p95)),
        f"{alone.utility:+.4f}" if alone.worker else "-",
        "chosen" if forecast.worker == choice.worker else "" if alone.worker else alone.reason,
    )
