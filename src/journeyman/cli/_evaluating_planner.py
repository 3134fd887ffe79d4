"""The work behind `journeyman evaluate planner`, apart from its options."""

from collections.abc import Mapping
from typing import Any

from journeyman import app, config
from journeyman.agents.orchestrator import Limits, Orchestrator
from journeyman.cli import _planner_settings as settings
from journeyman.cli._bar import bar
from journeyman.cli._shared import console
from journeyman.cli._training import warn_of_few
from journeyman.errors import InputError, MissingExtra
from journeyman.experiments.evaluator import HeldOutEvaluator
from journeyman.gate import BetterOnHeldOut
from journeyman.plan_result import ExecutionResult
from journeyman.stores import open_store
from journeyman.task import Split


def run(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Compare two planners, and say which is better."""
    try:
        made = _on_plans(given) if given["data"] else _live(given, quiet=quiet)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[planner]'") from error
    if not quiet:
        out = console()
        for name in ("candidate", "baseline"):
            numbers = ", ".join(f"{key} {_said(key, value)}" for key, value in made[name].items())
            out.print(f"{name:<10} {numbers}", soft_wrap=True)
        if made["refused"]:
            out.print(f"no plan could be made for {made['refused']} instructions", style="yellow")
        out.print(f"{'passed' if made['passed'] else 'not passed'}: {made['reason']}", soft_wrap=True)
    return made


def _on_plans(given: Mapping[str, Any]) -> dict[str, Any]:
    from journeyman.learn.planner import data
    from journeyman.planning import policies
    from journeyman.planning.examining import Contender, PlanExamination

    kept = policies.find(given["planner"])
    rival = policies.find(given["against"]) if given["against"] else None
    found = data.read(given["data"])
    examination = PlanExamination(examples=found.examples, gate=BetterOnHeldOut(least_gain=given["least_gain"]))
    baseline = (
        Contender(id=rival.id, make=rival.planner.plan, trained_on=rival.trained_on)
        if rival
        else Contender(id="nearest plan", make=kept.learned.nearest)
    )
    candidate = Contender(id=kept.id, make=kept.planner.plan, trained_on=kept.trained_on)
    with open_store(config.load().store_url) as store:
        made = examination.evaluate(candidate, baseline, HeldOutEvaluator(store=store), id=_command())
    left_out = len(made.report.evaluation.contaminated)
    return {**made.json(), "planner": kept.id, "against": baseline.id, "left_out": left_out}


def _command() -> str:
    return f"evaluate-planner-{app.now():%Y%m%d-%H%M%S-%f}"


def _live(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    from journeyman.planning import collecting, crews, policies
    from journeyman.planning.arenas import known_runs
    from journeyman.planning.examining import Contender, LiveExamination
    from journeyman.planning.live import scored
    from journeyman.rewards.utility import Utility

    warn_of_few(given["held_out"], BetterOnHeldOut().least_tasks)
    kept = policies.find(given["planner"])
    rival = policies.find(given["against"]) if given["against"] else None
    models = [card.name for card in kept.learned.model.models.cards]
    if not models or not crews.at_the_desk(models):
        raise InputError("nobody can tell whether what its models do is right; compare plans instead, with --data FILE")
    crew = crews.crew_of(models, replies=config.load().folder / "replies")
    dollars, seconds = settings.pay(given["pay"] or "")
    utility = Utility.of(
        known_runs(kept.learned, timed=seconds is not None), dollars_per_success=dollars, seconds_per_success=seconds
    )
    with bar("executions", 2 * given["held_out"], quiet=quiet, pause=5) as done:

        def heard(_: ExecutionResult) -> None:
            done(1)

        examination = LiveExamination(
            asked=collecting.at_the_desk(given["held_out"], given["seed"], Split.HELD_OUT),
            orchestrator=Orchestrator(crew=crew, limits=Limits(together=settings.CONCURRENCY)),
            utility=utility,
            gate=scored(BetterOnHeldOut(least_gain=given["least_gain"]), utility),
            heard=heard,
        )
        with open_store(config.load().store_url) as store:
            made = examination.evaluate(
                Contender(id=kept.id, make=crews.planner_for(crew, kept).make, trained_on=kept.trained_on),
                Contender(
                    id=rival.id if rival else "expert",
                    make=crews.planner_for(crew, rival).make,
                    trained_on=rival.trained_on if rival else frozenset(),
                ),
                HeldOutEvaluator(store=store),
                id=_command(),
            )
    return {**made.json(), "planner": kept.id, "against": rival.id if rival else "expert"}


def _said(key: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"${value:.6f}" if key == "cost" else f"{value:.2f} s" if key == "seconds" else f"{value:.3f}"
