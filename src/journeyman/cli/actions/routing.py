"""The work behind `journeyman train router` and `journeyman evaluate router`, apart from their options."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from journeyman.cli.actions.train_playbook import warn_of_few
from journeyman.cli.console import Column, fitted
from journeyman.cli.console import console as stdout
from journeyman.cli.options import provided
from journeyman.cli.shared import console
from journeyman.core.errors import InputError
from journeyman.core.policy import Choice, Forecast
from journeyman.experiments import settings as config
from journeyman.experiments import wiring
from journeyman.experiments.evaluator import HeldOutEvaluator, untrained
from journeyman.experiments.router import training
from journeyman.experiments.router.config import RouterConfig
from journeyman.experiments.router.evaluation import RouterEvaluation, RoutingSide
from journeyman.experiments.router.training import Places, TrainedRouter
from journeyman.experiments.settings import GateSettings
from journeyman.io.atomic import write_text
from journeyman.io.files import check_writable, read_text
from journeyman.models import embedders
from journeyman.models.embedders import Cached
from journeyman.optimizers.outcome_table import OutcomeRow, Parts, Table, parts
from journeyman.optimizers.router import artifact, cold_start, outcomes
from journeyman.optimizers.router.decide import decide_one
from journeyman.optimizers.router.decisions import DecisionLog
from journeyman.optimizers.router.objective import Objective, parse
from journeyman.serving.router import Router, find
from journeyman.stores import open_store, open_traces
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.urls import as_url
from journeyman.tasks.rows import Complaints, read


def train(given: Mapping[str, Any], *, dry_run: bool, quiet: bool) -> dict[str, Any]:
    """Train, or only say what would be; words go to stderr, the table to stdout."""
    wanted = objective(given)
    project = config.load()
    settings = config.configured(RouterConfig, {**RouterConfig.known(provided(given)), "objective": wanted}, project)
    check_writable(given["output"] / artifact.POLICY)
    table = _table(_rows(given, quiet=quiet), given)
    split = parts(table, held_out=settings.held_out_share, validation=settings.validation, least=settings.min_tasks)
    training.learnable(table, split, wanted)
    if not quiet:
        _tell_table(table, split)
    if settings.evaluate:
        warn_of_few(len(split.held_out), settings.min_tasks)
    if dry_run:
        return {"dry_run": True, "rows": len(table), "workers": [_json(table, at) for at in range(len(table.workers))]}
    embedder = _cached(given["embedder"] or project.settings.models.embedder, project.folder)
    with open_store(project.store_url) as store:
        places = Places(folder=given["output"], store=store, artifacts=Artifacts(project.artifacts))
        trained = training.train(table, embedder, settings, places, _progress(quiet=quiet))
    embedder.save()
    if not quiet:
        _tell(trained, given["output"])
    return {**trained.json(), "output": str(given["output"])}


def evaluate(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Measure a router on rows that it has not learned from; words go to stderr, the table to stdout."""
    policy, verdict = find(given["policy"])
    project = config.load()
    table = _table(_rows(given, quiet=quiet), given, policy.fitted.workers)
    held_out, validation, seed = policy.split
    split = parts(table, held_out=held_out, validation=validation, seed=seed, least=project.settings.gate.min_tasks)
    rows = table if given["everything"] else table.take(split.held_out)
    if not len(rows):
        raise InputError("none of these requests is held out; if the router has learned from none of them, say --all")
    clean, _ = untrained(training.tasks_of(rows), policy.trained_on)
    warn_of_few(len(clean), project.settings.gate.min_tasks)
    embedder = _cached(policy.fitted.embedder, project.folder)
    vectors = training.embedded(embedder, rows.requests, _progress(quiet=quiet))
    embedder.save()
    gate = config.configured(GateSettings, GateSettings.known(provided(given)), project).gate
    with open_store(project.store_url) as store:
        name = f"evaluate-{wiring.now():%Y%m%d-%H%M%S-%f}"
        proof = training.examine(policy, (rows, vectors), gate, HeldOutEvaluator(store=store), name)
    if not quiet:
        _tell_proof(proof, policy.objective)
    return {"policy": policy.id, "objective": str(policy.objective), "serves": verdict.serves, **proof.json()}


def objective(given: Mapping[str, Any], trained: Objective | None = None) -> Objective:
    """The objective that the options say, together; what they do not say is as it was trained."""
    said = parse(given["objective"]) if given["objective"] else trained or Objective()
    if given["objective"] and trained is not None:
        said = replace(said, allow=trained.allow, deny=trained.deny, safe=trained.safe, unpriced=trained.unpriced)
    told = {name: given[name] for name in ("max_cost", "min_quality", "deadline", "safe") if given.get(name) is not None}
    lists = {name: given[name] for name in ("allow", "deny") if given.get(name)}
    return replace(said, **told, **lists, unpriced=bool(given.get("unpriced")) or said.unpriced)


def _rows(given: Mapping[str, Any], *, quiet: bool) -> tuple[OutcomeRow, ...]:
    url = given.get("store")
    if not given["outcomes"] and url is None:
        raise InputError("nothing to learn from is named; give --outcomes FILE, or --store for what the project has recorded")
    left_out: list[str] | None = [] if given["skip_unusable"] else None
    found = outcomes.rows_of_files(given["outcomes"], left_out) if given["outcomes"] else ()
    for line in (left_out or ()) if not quiet else ():
        console().print(f"left out: {line}", markup=False, soft_wrap=True)
    if url is not None:
        with open_traces(as_url(url) if url else config.load().store_url) as store:
            found += outcomes.rows_of_store(store)
    if not found:
        raise InputError("the store holds no request that one model alone answered and somebody judged; label or score some")
    return found


def _table(rows: Sequence[OutcomeRow], given: Mapping[str, Any], workers: Sequence[str] = ()) -> Table:
    """Of the rows, with prices. `workers` gives the columns and their order, where a router knows them already."""
    names = workers or tuple(dict.fromkeys(name for row in rows for name in row.outcomes))
    cards = outcomes.cards(names, given["prices"])
    return outcomes.table(rows, cards, workers=names, output_tokens=given["assume_output_tokens"])


def _cached(name: str, folder: Path) -> Cached:
    """Vectors by a model take their time, and are kept; those by hashing do not."""
    embedder = embedders.load(name)
    kept = "".join(c if c.isalnum() else "-" for c in embedder.name)
    return Cached(embedder, None if name.startswith("hashing") else folder / "embeddings" / f"{kept}.npz")


def _progress(*, quiet: bool) -> training.Progress:
    screen, started = console(), set[str]()

    def said(what: str, done: int, total: int) -> None:
        if quiet or (what in started and done != total and done * 10 // total == (done - 256) * 10 // total):
            return
        started.add(what)
        screen.print(f"{what} {done}/{total}" if total > 1 else f"{what} …" if not done else f"{what}: done")

    return said


def _json(table: Table, at: int) -> dict[str, Any]:
    success, cost, seconds = (_mean(values, at) for values in (table.success, table.cost, table.seconds))
    return {
        "model": table.workers[at],
        "asked": int((table.errors | (table.success == table.success))[:, at].sum()),
        "success": success,
        "cost": cost,
        "seconds": seconds,
        "errors": int(table.errors[:, at].sum()),
    }


def _mean(values: Any, at: int) -> float | None:
    known = values[:, at][values[:, at] == values[:, at]]
    return float(known.mean()) if len(known) else None


def _tell_table(table: Table, split: Parts) -> None:
    left = f", {len(split.left_out)} left out, as other rows of theirs are set apart" if split.left_out else ""
    console().print(
        f"{len(table)} requests: {len(split.train)} to learn from, {len(split.validation)} to choose by, "
        f"{len(split.held_out)} held out{left}"
    )
    columns = [
        Column(name="model", words=True),
        *(Column(name=name) for name in ("asked", "right", "cost", "seconds", "errors")),
    ]
    for at in range(len(table.workers)):
        told = _json(table, at)
        cells = (told["model"], f"{told['asked']}", _share(told["success"]), _usd(told["cost"]), _plain(told["seconds"]))
        for column, cell in zip(columns, (*cells, f"{told['errors']}"), strict=True):
            column.cells.append(Text(cell))
    console().print(fitted(columns, console().width))


def _tell(trained: TrainedRouter, folder: Path) -> None:
    if trained.proof is not None:
        _tell_proof(trained.proof, trained.policy.objective)
    out = console()
    for line in (
        *(() if trained.proof else (trained.reason,)),
        f"router {trained.policy.id} in {folder} ({trained.stage.value})",
        f"Use it: journeyman route --policy {folder} --explain REQUEST"
        if trained.passed or trained.forced
        else f"It is not proven, so {trained.policy.best} answers; --unproven shows what it would choose.",
    ):
        out.print(line, markup=False, soft_wrap=True)


def _tell_proof(proof: RouterEvaluation, wanted: Objective) -> None:
    """The table of all ways of choosing, and the verdict."""
    names = ("accuracy", "cost", "seconds", "utility", "95 % interval")
    columns = [Column(name="", words=True), *(Column(name=name, spare=at) for at, name in enumerate(names))]
    for name, side in proof.sides.items():
        said = f"{name} (best single)" if name == proof.best else name
        for column, cell in zip(columns, (said, *_cells(side)), strict=True):
            column.cells.append(Text(cell))
    out = stdout()
    out.print(fitted(columns, out.width))
    low, high = proof.interval
    for line in (
        f"on {proof.requests} requests, utility is {wanted} in successes a request",
        f"gain over {proof.best}: {_signed(proof.gain)} ({_signed(low)} to {_signed(high)})",
        f"probabilities: ECE {_plain(proof.ece)}, Brier {_plain(proof.brier)}; "
        f"wrong of the most confident: {', '.join(f'{at}: {risk:.1%}' for at, risk in proof.risks.items())}",
        f"{'passed' if proof.report.passed else 'not passed'}: {proof.report.reason} "
        f"(in scores, of which 1 is {proof.span:.3g} successes)",
    ):
        out.print(line, soft_wrap=True)


def _cells(side: RoutingSide) -> tuple[str, ...]:
    interval = "" if side.utility_low is None else f"{side.utility_low:+.4f} to {side.utility_high:+.4f}"
    return _share(side.accuracy), _usd(side.cost), _plain(side.seconds), _signed(side.utility), interval


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.6f}"


def _plain(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _signed(value: float | None) -> str:
    return "unknown" if value is None else f"{value:+.4f}"


# The work behind `journeyman route anchors`, apart from its options.


def run_anchors(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Requests go to the file or to stdout, words to stderr."""
    table = outcomes.table(outcomes.rows_of_files(given["outcomes"]))
    split = parts(
        table,
        held_out=given["held_out_share"],
        validation=RouterConfig().validation,
        least=RouterConfig().min_tasks,
    )
    rows = cold_start.questions(table, split.train, given["count"])
    lines = [{"request": table.requests[row], "type": table.types[row]} for row in rows]
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    if given["output"]:
        write_text(given["output"], text)
    elif not quiet:
        click.echo(text, nl=False)
    if not quiet:
        said = f"{len(lines)} of {len(split.train)} requests to ask a new model; add model and success to each line"
        console().print(said, markup=False, soft_wrap=True)
    return {"anchors": lines, "output": str(given["output"]) if given["output"] else None}


# The work behind `journeyman route`, apart from its options.

_SHORT = 100
_REQUEST = ("request", "question", "prompt", "instruction", "query")


def run(requests: tuple[str, ...], given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Route the requests; names go to stdout, a line each, and reasons to stderr."""
    asked = list(_asked(requests, given["source"], given["kind"]))
    if not asked:
        raise InputError('no request is given; say it, as in: journeyman route "Prove that …", or name a file: --input FILE')
    log = DecisionLog(given["log"], texts=not given["no_text"]) if given["log"] else None
    drawing = {name: given[name] for name in ("unproven", "explore", "seed", "online")}
    router = Router.load(given["policy"], log=log, **drawing)
    wanted = objective(given, router.policy.objective)
    found = []
    for request, kind in asked:
        choice = router.route(request, type=kind, objective=wanted)
        found.append(_json_routing_requests(request, choice))
        if not quiet:
            _tell_routing_requests(request, choice, wanted, explain=given["explain"], many=len(asked) > 1)
    return {"policy": router.policy.id, "objective": str(wanted), "proven": router.verdict.serves, "choices": found}


def _asked(requests: tuple[str, ...], source: str | None, kind: str) -> Iterator[tuple[str, str]]:
    """Requests with their types."""
    for request in requests:
        if not request.strip():
            raise InputError("a request is empty; say what is asked")
        yield request, kind
    if source == "-":
        lines = _of_stdin().splitlines()
    elif source is not None and not _is_json_lines(Path(source)):
        lines = read_text(source).splitlines()
    else:
        lines = []
        yield from _of_json(Path(source), kind) if source else ()
    yield from ((line, kind) for line in lines if line.strip())


def _of_stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8 text (byte {error.start})") from None


def _is_json_lines(path: Path) -> bool:
    return {".json", ".jsonl"} & set(path.suffixes) != set()


def _of_json(path: Path, kind: str) -> Iterator[tuple[str, str]]:
    bad = Complaints(f"{path} holds lines that are no requests")
    found = []
    for row in read(path, bad):
        request = next((row.value[name] for name in _REQUEST if isinstance(row.value.get(name), str)), "")
        if not request.strip():
            bad.add(row.where, 'no request; a line is {"request": …, "type": …}')
        found.append((request, str(row.value.get("type") or kind)))
    bad.check()
    yield from found


def _json_routing_requests(request: str, choice: Choice) -> dict[str, Any]:
    told = {name: getattr(choice, name) for name in ("worker", "propensity", "candidates", "reason", "explored", "fallback")}
    decision = {"decision": choice.extra["decision"]} if "decision" in choice.extra else {}
    return {"request": request, **told, **decision, "forecasts": [asdict(each) for each in choice.forecasts]}


def _tell_routing_requests(request: str, choice: Choice, wanted: Objective, *, explain: bool, many: bool) -> None:
    if not explain:
        click.echo(choice.worker)
        console().print(choice.reason, markup=False, soft_wrap=True)
        return
    out = stdout()
    if many:
        out.print(Text(request if len(request) <= _SHORT else f"{request[: _SHORT - 1]}…", style="bold"), soft_wrap=True)
    columns = [Column(name="", words=True), *(Column(name=name) for name in ("right", "cost", "p50", "p95", "utility"))]
    columns.append(Column(name="", words=True, spare=1))
    ranked = sorted(choice.forecasts, key=lambda each: (each.worker != choice.worker, -each.success))
    for each in ranked:
        for column, cell in zip(columns, _cells_routing_requests(each, choice, wanted), strict=True):
            column.cells.append(Text(cell))
    out.print(fitted(columns, out.width))
    out.print(choice.reason, soft_wrap=True)


def _cells_routing_requests(forecast: Forecast, choice: Choice, wanted: Objective) -> tuple[str, ...]:
    alone = decide_one((forecast,), wanted)
    chosen = "chosen" if forecast.worker == choice.worker else "" if alone.worker else alone.reason
    return (
        forecast.worker,
        f"{forecast.success:.3f}",
        "unknown" if forecast.cost is None else f"${forecast.cost:.6f}",
        *("unknown" if value is None else f"{value:.2f} s" for value in (forecast.p50, forecast.p95)),
        f"{alone.utility:+.4f}" if alone.worker else "-",
        chosen,
    )
