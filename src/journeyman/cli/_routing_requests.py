"""The work behind `journeyman route`, apart from its options."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from journeyman.cli._routing import objective
from journeyman.cli._shared import console
from journeyman.cli._table import Column, fitted
from journeyman.cli._table import console as stdout
from journeyman.errors import InputError
from journeyman.learn.playbook.files import read_text
from journeyman.learn.router.decide import decide_one
from journeyman.learn.router.decisions import DecisionLog
from journeyman.learn.router.objective import Objective
from journeyman.policy import Choice, Forecast
from journeyman.route import Router
from journeyman.tasks.rows import Complaints, read

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
        found.append(_json(request, choice))
        if not quiet:
            _tell(request, choice, wanted, explain=given["explain"], many=len(asked) > 1)
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


def _json(request: str, choice: Choice) -> dict[str, Any]:
    told = {name: getattr(choice, name) for name in ("worker", "propensity", "candidates", "reason", "explored", "fallback")}
    decision = {"decision": choice.extra["decision"]} if "decision" in choice.extra else {}
    return {"request": request, **told, **decision, "forecasts": [asdict(each) for each in choice.forecasts]}


def _tell(request: str, choice: Choice, wanted: Objective, *, explain: bool, many: bool) -> None:
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
        for column, cell in zip(columns, _cells(each, choice, wanted), strict=True):
            column.cells.append(Text(cell))
    out.print(fitted(columns, out.width))
    out.print(choice.reason, soft_wrap=True)


def _cells(forecast: Forecast, choice: Choice, wanted: Objective) -> tuple[str, ...]:
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
