"""`journeyman deployment`: versions of learned weights by their names: serve one, watch it, compare two, take one back."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import head, minute, number, rows_table, say
from journeyman.cli.deploy import DeployOptions, by_llamacpp, by_ollama, is_served, replaces_option
from journeyman.cli.shared import OptionForm, acting, answering, form_of, read_store_url, show_evidence, store_url
from journeyman.core.candidate import BASE, ServedModel
from journeyman.core.errors import InputError, ModelError, ReleaseError
from journeyman.core.rollout import ANY, EventKind, LiveReleases, Slot, SlotKind

if TYPE_CHECKING:
    from journeyman.serving.releases.control import Person
    from journeyman.stores.rollouts import RolloutStore
    from journeyman.stores.traces.base import StatisticsGroup

_SLOT = ("agent", "domain")
_WORD = ("force", "reason")


_FORMS: Mapping[str, OptionForm] = {
    "deploy": OptionForm(("model_path", "model_id"), ("to", "host", "port", "replaces", *_SLOT, *_WORD)),
    "monitor": OptionForm(("model_id",), ()),
    "ab_test": OptionForm(("model_a", "model_b", "test_name"), (*_SLOT, *_WORD)),
    "rollback": OptionForm(("model_id",), ("reason",)),
}


@click.command()
@click.option("--deploy", is_flag=True, help="Serve a version under a name, and tell gateways where it answers.")
@click.option("--monitor", is_flag=True, help="Say whether a version answers, whom it serves, and how that went.")
@click.option("--ab-test", is_flag=True, help="Compare a version with the one in production: half of the new sessions each.")
@click.option("--rollback", is_flag=True, help="Take a version back, wherever it serves.")
@click.option("--model-path", metavar="FILE", help="A GGUF file, or what `journeyman deploy` takes as RUN.")
@click.option("--model-id", metavar="NAME", help="What the version is called, as agent_v1.0; elsewhere v1.0 is enough.")
@click.option("--model-a", metavar="NAME", help="The version that is in production.")
@click.option("--model-b", metavar="NAME", help="The version that is compared with it.")
@click.option("--test-name", metavar="NAME", help="What the comparison is called.")
@click.option("--to", type=click.Choice(("llamacpp", "ollama")), help="What serves it.  [default: llamacpp]")
@click.option("--host", metavar="HOST", help="With --to ollama: where it is, as OLLAMA_HOST has it.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="With llama.cpp: on loopback.  [default: a free one]")
@click.option("--agent", metavar="NAME", help="Of this agent's requests.  [default: every agent's]")
@click.option("--domain", metavar="NAME", help="Of this domain's requests.  [default: every domain's]")
@replaces_option
@click.option("--force", is_flag=True, help="Although no gate let it pass; needs --reason, and is kept as forced.")
@click.option("--reason", metavar="TEXT", help="Why, in one sentence; it is kept.")
@answering
def command(*, store: str | None, quiet: bool, **given: Any) -> dict[str, Any]:
    """Serve versions of learned weights, watch them, compare two, and take one back.

    One of --deploy, --monitor, --ab-test and --rollback says what is done. The first version that is deployed for an agent
    and a domain goes into production at once, where its gate passed; where none was asked, with --force and --reason. A later
    one answers beside it, and serves nobody before --ab-test or `journeyman releases start`. Whatever is done, agents ask
    `journeyman serve`, and notice nothing.

    \b
    Examples:
      journeyman deployment --deploy --model-path models/agent.gguf --model-id agent_v1.0
      journeyman deployment --monitor --model-id agent_v1.0
      journeyman deployment --ab-test --model-a v1.0 --model-b v1.1 --test-name performance_test
      journeyman deployment --rollback --model-id agent_v1.1
    """
    form = form_of(given, _FORMS)
    return _ACTS[form](store, quiet, given)


def _opened(store: str | None) -> "RolloutStore":
    from journeyman.stores.rollouts import open_rollouts

    return open_rollouts(read_store_url(store), make=False)


def _name(live: LiveReleases, candidate_id: str) -> str:
    """What weights are called."""
    model = live.models.get(candidate_id)
    return candidate_id if model is None else model.model


def _serves(live: LiveReleases, model: ServedModel) -> list[Slot]:
    """The slots that it is in production of."""
    return sorted(slot for slot, move in live.production.items() if move.candidate_id == model.candidate_id)


def _production(live: LiveReleases, slot: Slot) -> str:
    """One sentence."""
    now = live.baseline(slot).candidate_id
    return f"nothing is in production of {slot}" if now == BASE else f"{_name(live, now)} is in production of {slot}"


# Serve.


def _deploy(store: str | None, quiet: bool, given: Mapping[str, Any]) -> dict[str, Any]:
    for option, to in (("host", "ollama"), ("port", "llamacpp")):
        if given[option] is not None and (given["to"] or "llamacpp") != to:
            raise InputError(f"--{option} is for --to {to}")
    by = acting(given["reason"] or "")
    by.check_force(given["force"])
    wish = DeployOptions(
        run=given["model_path"],
        name=given["model_id"],
        force=given["force"],
        release=True,
        replaces=given["replaces"],
        store=store,
        reason=given["reason"] or "",
    )
    served = _answering_already(wish) or _started(wish, given)
    slot = Slot(SlotKind.WEIGHTS, given["agent"] or ANY, given["domain"] or ANY)
    told = _first(store_url(store), served, slot, by, force=given["force"])
    if not quiet:
        say(told["said"])
    where = {"model": served.model, "candidate": served.candidate_id, "url": served.url, "slot": str(slot)}
    return {"done": True, **where, **told}


def _answering_already(wish: DeployOptions) -> ServedModel | None:
    """The same file under the same name, where it was deployed before and runs: who only forces it need not end it first."""
    from journeyman.stores.rollouts import open_rollouts

    # A project's first candidate may come with its store.
    with open_rollouts(store_url(wish.store), make=False) as kept:
        known = next((each for each in kept.live().models.values() if each.model == wish.name), None)
    return known if known is not None and is_served(wish, known) else None


def _started(wish: DeployOptions, given: Mapping[str, Any]) -> ServedModel:
    """
    Raises:
        ReleaseError: It does not answer, or its gate did not pass and nobody forces it.
    """
    if given["to"] == "ollama":
        well, result = by_ollama(wish, host=given["host"])
    else:
        well, result, _ = by_llamacpp(wish, port=given["port"] or 0)
    if not well:
        raise ReleaseError(f"{wish.name} is not deployed: {result.get('reason') or 'it said nothing when it was asked'}")
    return ServedModel.from_json(result["served"])


def _first(url: str, served: ServedModel, slot: Slot, by: "Person", *, force: bool) -> dict[str, Any]:
    """Put a version into production where nothing is; else say what is, and what to type."""
    from journeyman.serving.releases import control
    from journeyman.stores.rollouts import open_rollouts

    with open_rollouts(url) as kept:
        live, model = kept.live(), served.model
        now = live.baseline(slot).candidate_id
        if now == served.candidate_id:
            return {"production": now, "said": _production(live, slot)}
        if now != BASE:
            next_one = f"--ab-test --model-a {_name(live, now)} --model-b {model} --test-name NAME"
            return {"production": now, "said": f"{_production(live, slot)}; to compare: journeyman deployment {next_one}"}
        wanted = control.RolloutRequest(
            candidates=lambda registry: [control.kept_candidate(registry, served.candidate_id)],
            plan=control.plan_of({"holdback": 0}, "the first version", share=1.0),
            by=by,
            agent=slot.agent,
            domain=slot.domain,
            force=force,
        )
        try:
            begun = control.start(url, wanted).rollout
        except ReleaseError as error:
            how = "the same once more with --force --reason TEXT puts it into production"
            return {"production": now, "said": f"{model} answers, and serves nobody yet: {error}; {how}"}
        reason = by.reason.strip() or f"the first version in {slot}: {begun.events[0].cause.reason}"
        control.move(kept, begun, control.RolloutMove(kind=EventKind.PROMOTE, by=by._replace(reason=reason)))
        live = kept.live()
    return {
        "production": live.baseline(slot).candidate_id,
        "said": f"{_production(live, slot)}: its requests are answered by it",
    }


# Watch.


def _monitor(store: str | None, quiet: bool, given: Mapping[str, Any]) -> dict[str, Any]:
    from journeyman.experiments import settings
    from journeyman.serving.releases.artifacts import check_answers
    from journeyman.serving.releases.control import evidence_told, named_model
    from journeyman.stores.traces import open_traces
    from journeyman.stores.traces.base import Query

    with _opened(store) as kept:
        live = kept.live()
        model = named_model(live, given["model_id"])
        id = model.candidate_id
        open_ones = [each for each in live.rollouts if id in {arm.candidate_id for arm in (*each.arms, each.baseline)}]
        seen = [each.told() | evidence_told(kept, each, kept.evidence(each.id)) for each in open_ones]
    with open_traces(read_store_url(store), make=False) as traces:
        calls = traces.statistics(Query(candidate_id=id)).all
    fault = ""
    try:
        check_answers(model, settings.load().settings.upstreams)
    except ModelError as error:
        fault = str(error)
    slots = _serves(live, model)
    if not quiet:
        _show(model, fault, slots, calls)
        _show_rollouts(live, seen)
    return {
        "served": model.as_json(),
        "answers": not fault,
        "reason": fault or None,
        "production": [str(slot) for slot in slots],
        "rollouts": seen,
        "calls": {
            "calls": calls.model_calls,
            "errors": calls.errors,
            "median_seconds": calls.median_seconds,
            "p95_seconds": calls.p95_seconds,
            "input_tokens": calls.input_tokens,
            "output_tokens": calls.output_tokens,
        },
    }


def _show(model: ServedModel, fault: str, slots: list[Slot], calls: "StatisticsGroup") -> None:
    head(("model", model.model), ("candidate", model.candidate_id), ("answers", (fault and f"no: {fault}") or "yes"))
    head(("at", model.url), ("since", minute(model.at)), ("file", model.file), ("instead of", ", ".join(model.replaces)))
    head(("production", ", ".join(map(str, slots)) or "of no slot"))
    if calls.model_calls:
        times = f"median {number(calls.median_seconds)} s, 95th percentile {number(calls.p95_seconds)} s"
        head(("calls", f"{calls.model_calls:,}, {calls.errors:,} failed; {times}"))
    else:
        head(("calls", "none yet"))


def _show_rollouts(live: LiveReleases, seen: list[dict[str, Any]]) -> None:
    for each in seen:
        click.echo()
        candidates = ", ".join(_name(live, arm["candidate_id"]) for arm in each["arms"])
        rows = [(each["id"], each["slot"], each["state"], candidates, _name(live, each["baseline"]["candidate_id"]))]
        rows_table(("rollout", "slot", "state", "candidate", "against"), rows)
        if each["evidence"] is None:
            say("nobody has compared its sessions yet")
        else:
            show_evidence(each["evidence"]["summary"])


# Compare.


def _ab_test(store: str | None, quiet: bool, given: Mapping[str, Any]) -> dict[str, Any]:
    """A rollout that gives each half of the sessions, and waits for a person when it is known which is better."""
    from journeyman.serving.releases import control

    with _opened(store) as kept:
        live = kept.live()
    a, b = (control.named_model(live, given[name]) for name in ("model_a", "model_b"))
    slot = _slot_of(live, a, given)
    test = f"A/B test {given['test_name'].strip()} of {b.model} against {a.model}"
    reason = (given["reason"] or "").strip()
    # Who forces something says why; otherwise the test is what for.
    said = f"{test}: {reason}" if reason else "" if given["force"] else test
    metric = {"name": "success", "require": "better", "window_seconds": 86_400.0}
    wanted = control.RolloutRequest(
        candidates=lambda registry: [control.kept_candidate(registry, b.candidate_id)],
        plan=control.plan_of({"promote": "ask", "on_end": "hold", "primary": metric}, "the test", share=0.5),
        by=acting(said),
        agent=slot.agent,
        domain=slot.domain,
        force=given["force"],
    )
    begun = control.start(read_store_url(store), wanted)
    if not quiet:
        say(
            f"{test}: half of the new sessions of {slot} each, as rollout {begun.rollout.id}",
            f"to see how it stands: journeyman deployment --monitor --model-id {b.model}",
        )
    return {"done": True, "test": given["test_name"].strip(), "model_a": a.model, "model_b": b.model, **begun.as_json()}


def _slot_of(live: LiveReleases, a: ServedModel, given: Mapping[str, Any]) -> Slot:
    """Where the comparison is made: what is named, else the one slot that a version is in production of.

    Raises:
        ReleaseError: It is not in production there.
        InputError: It is in production of several.
    """
    slots = _serves(live, a)
    if given["agent"] or given["domain"]:
        slot = Slot(SlotKind.WEIGHTS, given["agent"] or ANY, given["domain"] or ANY)
        if live.baseline(slot).candidate_id != a.candidate_id:
            raise ReleaseError(f"{_production(live, slot)}, so {a.model} is nothing to compare with there")
        return slot
    if not slots:
        how = f"journeyman deployment --deploy --model-path {a.file} --model-id {a.model}, or journeyman releases start"
        raise ReleaseError(f"{a.model} is in production of no slot, so it is nothing to compare with; to bring it there: {how}")
    if len(slots) > 1:
        raise InputError(f"{a.model} is in production of {', '.join(map(str, slots))}; say where by --agent and --domain")
    return slots[0]


# Take back.


def _rollback(store: str | None, quiet: bool, given: Mapping[str, Any]) -> dict[str, Any]:
    from journeyman.serving.releases import control

    with _opened(store) as kept:
        live = kept.live()
        model = control.named_model(live, given["model_id"])
        by = acting((given["reason"] or "").strip() or f"{model.model} is rolled back")
        slots = []
        for rollout in live.rollouts:
            if model.candidate_id in {arm.candidate_id for arm in rollout.arms}:
                arm = model.candidate_id if len(rollout.arms) > 1 else None
                control.move(kept, rollout, control.RolloutMove(kind=EventKind.ROLLBACK, by=by, arm=arm))
                slots.append(rollout.slot)
        for slot in _serves(kept.live(), model):
            kept.undo(slot, by.cause())
            slots.append(slot)
        now = kept.live()
    if not slots:
        raise ReleaseError(f"{model.model} is in production of no slot and in no open rollout: there is nothing to take back")
    if not quiet:
        say(*(f"{model.model} is taken back; {_production(now, slot)}" for slot in slots))
    return {"done": True, "model": model.model, "production": {str(slot): now.baseline(slot).candidate_id for slot in slots}}


_ACTS: Mapping[str, Callable[[str | None, bool, Mapping[str, Any]], dict[str, Any]]] = {
    "deploy": _deploy,
    "monitor": _monitor,
    "ab_test": _ab_test,
    "rollback": _rollback,
}
