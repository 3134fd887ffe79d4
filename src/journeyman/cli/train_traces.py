"""`journeyman train playbook --from traces` and `--from documents`: from what was recorded to a candidate, or to proposals."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from journeyman.cli.console import Column, Screen, table, write
from journeyman.cli.shared import settled
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.experiments.playbook.config import DocumentsConfig, TracesConfig

if TYPE_CHECKING:
    from journeyman.experiments.playbook.from_documents import DocumentsRead, DocumentsResult
    from journeyman.experiments.playbook.from_traces import Prepared, SlotResult
    from journeyman.optimizers.playbook.evidence import EvidenceGroup
    from journeyman.stores.traces.base import Query

OWN = (
    "agent", "by_role", "last", "since", "until", "session", "min_principals", "min_groups", "held_out_share", "max_calls",
    "leave_one_out", "approve", "bullet_days",
)  # fmt: skip
"""Options that no other way of training has."""
_SHARED = (
    "domain", "generator_model", "reflector_model", "base_url", "embedder", "max_cost", "attempts_per_task", "evaluate",
    "output_playbook_path",
)  # fmt: skip


OF_DOCUMENTS = ("source", "kind", "words")
"""Options that learning from documents alone has."""
_ALSO_OF_DOCUMENTS = (
    "domain", "last", "since", "until", "max_calls", "generator_model", "reflector_model", "base_url", "embedder", "max_cost",
    "output_playbook_path",
)  # fmt: skip


def train_from_documents(given: Mapping[str, Any], *, dry_run: bool, quiet: bool) -> dict[str, Any]:
    """Draw proposals from documents; the object that `--json` prints.

    Raises:
        InputError: An option belongs to another way of training, or there are no documents.
    """
    import asyncio

    from journeyman.experiments.playbook.from_documents import DocumentsTrainer
    from journeyman.stores.documents import DocumentQuery

    if strange := [name for name in given if name not in (*OF_DOCUMENTS, *_ALSO_OF_DOCUMENTS)]:
        said = f"--{strange[0].replace('_', '-')}"
        raise InputError(f"{said} is for another way of training; --from documents learns from what was written down")
    config = settled(DocumentsConfig, given)
    since, until = _from_to(config, given)
    chosen = {name: getattr(config, name) or None for name in ("source", "kind")}
    query = DocumentQuery(**chosen, text=config.words or None, since=since, until=until)
    with Screen("documents", quiet=quiet) as screen:
        trainer = DocumentsTrainer(config, query, said=screen.say)
        found = trainer.read()
        if dry_run:
            return _planned_documents(found, config, quiet=quiet)
        result = asyncio.run(trainer.train(found))
    if not quiet:
        write(*_proposals(result))
    return result.json()


def _planned_documents(found: "DocumentsRead", config: DocumentsConfig, *, quiet: bool) -> dict[str, Any]:
    from journeyman.experiments.playbook.trace_reflector import reflector_name

    name = reflector_name(config)
    if not quiet:
        write(f"{counted(found.read, 'document')}{_why(found.left_out)}")
        write(*(f"  would be read: {title}   ({id[:8]})" for id, title in list(found.titles.items())[:20]))
        asked = f"at most {counted(2 * len(found.groups), 'call')} of {name}" if name else "no model is named that reads them"
        write(f"{asked}; never more than {counted(config.max_calls, 'call')} (--max-calls)", "Nothing was sent.")
    told = {"documents": found.read, "telling": len(found.groups), "left_out": dict(found.left_out)}
    return {**told, "reflector": name or None, "calls": 2 * len(found.groups)}


def _proposals(result: "DocumentsResult") -> Iterator[str]:
    yield f"{counted(result.found.read, 'document')}{_why(result.found.left_out)}"
    for outcome in result.outcomes:
        if outcome.left_out:
            yield f"  left out: {result.found.titles[outcome.group.template]}: {outcome.left_out}"
    yield from (f"  refused: {count} {why}" for why, count in result.refused.items())
    for bullet in result.new:
        named = ", ".join(result.found.titles.get(id, id) for id in bullet.provenance.documents)
        yield f"  held for a person: {bullet.content}   (from {named}: {bullet.held}; {bullet.id})"
    yield result.reason
    cost = "an unknown cost" if result.cost is None else f"${result.cost:.4f}"
    written = f"; they are in {result.path}" if result.playbook.bullets else ""
    yield f"{counted(result.calls, 'call')}, {cost}{written}"
    if result.playbook.held:
        yield f"Approve one: journeyman playbook approve {result.path} {result.playbook.held[0].id} --reason WHY"
    if result.candidate:
        yield f"What was approved is a candidate: {result.candidate}; a gate examines it before it is served"


def train_from_traces(given: Mapping[str, Any], *, dry_run: bool, quiet: bool) -> dict[str, Any]:
    """Learn from every slot that is meant; the object that `--json` prints.

    Raises:
        InputError: An option belongs to another way of training, or nothing can be learned.
    """
    import asyncio

    from journeyman.experiments.playbook import from_traces

    if strange := [name for name in given if name not in (*OWN, *_SHARED)]:
        said = f"--{strange[0].replace('_', '-')}"
        raise InputError(f"{said} is for training on a data set or on scenarios; --from traces learns from what was recorded")
    config = settled(TracesConfig, given)
    with _TracesScreen(quiet=quiet) as screen:
        trainer = from_traces.TracesTrainer(config, _query(config, given), watcher=screen)
        gathered = trainer.gathered()
        if dry_run:
            prepared = [from_traces.prepare(each, config) for each in gathered]
            return _planned(prepared, config, quiet=quiet)
        results = [asyncio.run(trainer.train(each)) for each in gathered]
    if not quiet:
        for result in results:
            write(*_lines(result))
    return {"slots": [result.json() for result in results]}


def _query(config: TracesConfig, given: Mapping[str, Any]) -> "Query":
    from journeyman.stores.traces.base import Query

    since, until = _from_to(config, given)
    return Query(
        agent=config.agent or None, domain=config.domain or None, session=config.session or None, since=since, until=until
    )


def _from_to(config: TracesConfig | DocumentsConfig, given: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    from journeyman.cli.trace_filters import span, time_of

    since, until = time_of(config.since or None, "--since"), time_of(config.until or None, "--until")
    if since is not None and "last" in given:
        raise InputError("--last and --since both say where to begin; give one of them")
    return since or (datetime.now(UTC) - span(config.last, "--last") if config.last else None), until


_EVERY = 50
"""Calls between two words on how far it is."""


class _TracesScreen(Screen):
    """Shows how far it is. Implements `from_traces.LearningWatcher`."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__("requests", quiet=quiet)
        self._told_of = 0

    def stage(self, said: str) -> None:
        self.say(said)

    def examined(self, calls: int) -> None:
        if calls // _EVERY > self._told_of:
            self._told_of = calls // _EVERY
            self.say(f"{calls} calls")


# Before anything is asked.


def _planned(prepared: "list[Prepared]", config: TracesConfig, *, quiet: bool) -> dict[str, Any]:
    from journeyman.experiments.playbook.trace_reflector import reflector_name

    slots = []
    for each in prepared:
        calls = _planned_calls(each, config)
        groups = each.asked(config.min_principals)
        told = {
            "agent": each.gathered.slot.agent,
            "domain": each.gathered.slot.domain,
            "traces": each.gathered.read,
            "left_out": dict(each.gathered.left_out),
            "groups": len(each.groups),
            "groups_worded": len(groups),
            "examined": {"attempts": len(each.split.examine), "dropped": each.split.dropped, **each.tasks.kinds},
            "leak": each.split.leak,
            "reflector": reflector_name(config) or "template",
            "calls": calls,
            "max_calls": config.max_calls,
        }
        slots.append(told)
        if not quiet:
            _show_plan(each, told, config)
    if not quiet:
        write("Nothing was sent.")
    return {"slots": slots}


def _planned_calls(prepared: "Prepared", config: TracesConfig) -> dict[str, int]:
    """How many calls a run takes, by what for: more where a group gives several rules, and where bullets are left out."""
    from journeyman.experiments.playbook.examination import ExaminationConfig
    from journeyman.experiments.playbook.trace_reflector import reflector_name
    from journeyman.optimizers.playbook.evidence import MEMBERS
    from journeyman.optimizers.playbook.from_traces import asked_about
    from journeyman.optimizers.playbook.group_reflector import calls_needed

    name = reflector_name(config)
    asked = [group for group in prepared.groups if not asked_about(group, config.min_principals)] if name else []
    reflecting = sum(calls_needed(group, terse=name.partition(":")[0] == "embedded") for group in asked)
    tasks = min(len(prepared.tasks.tasks), ExaminationConfig().most_tasks)
    if not config.evaluate:
        return {"reflector": reflecting, "trials": 0, "examination": 0}
    # Each rule is tried on so many people's cases, with it and without.
    trials = sum(2 * min(2 * MEMBERS, len(group.principals)) for group in asked)
    return {"reflector": reflecting, "trials": trials, "examination": 2 * tasks * config.attempts_per_task}


def _show_plan(prepared: "Prepared", told: Mapping[str, Any], config: TracesConfig) -> None:
    gathered = prepared.gathered
    write(f"{gathered.slot}: {counted(gathered.read, 'trace')}{_why(gathered.left_out)}")
    columns = [
        Column(name="people"), Column(name="traces"), Column(name="tool", words=True), Column(name="argument", words=True),
        Column(name="what it said", words=True, wraps=True),
    ]  # fmt: skip
    rows = [
        (str(len(group.principals)), str(len(group.traces)), group.tool or "-", *_said(group)) for group in prepared.groups[:20]
    ]
    if rows:
        table(
            columns,
            rows,
            title=f"{told['groups_worded']} of {counted(told['groups'], 'group')} of evidence would be put into words",
        )
    else:
        write("There is no evidence in them: no tool refused a call, and no person corrected an answer.")
    write(_sides(prepared), *([prepared.split.leak] if prepared.split.examine else ()), *_costs(told, config))


def _sides(prepared: "Prepared") -> str:
    """How many are learned from, how many are examined on, and what became of the others."""
    split = prepared.split
    if not split.examine:
        return f"all of them are learned from; {split.leak}"
    kinds = [f"{count} {kind}" for kind, count in prepared.tasks.kinds.items()]
    kinds += [f"{count} {why}, which are left out" for why, count in prepared.tasks.left_out.items()]
    said = f"{len(split.learn)} are learned from, and {len(split.examine)} later ones examined on ({', '.join(kinds)})"
    if not split.dropped:
        return said
    return f"{said}; {split.dropped} are left out, so that no request, customer or session is on both sides"


def _costs(told: Mapping[str, Any], config: TracesConfig) -> Iterator[str]:
    """What a run would ask of models."""
    calls, name = told["calls"], told["reflector"]
    if name == "template":
        yield "a template puts the evidence into words: no --reflector-model is named, and no OPENAI_API_KEY is set"
    else:
        yield f"at most {counted(calls['reflector'], 'call')} of {name} to put the evidence into words"
    if calls["trials"]:
        yield f"some {counted(calls['trials'], 'call')} to try its rules on what they were drawn from"
    if calls["examination"]:
        each = ", and some for each new rule, to see what is lost without it" if config.leave_one_out else ""
        yield f"{counted(calls['examination'], 'call')} to examine what was learned{each}"
    if config.max_calls is not None:
        yield f"never more than {counted(config.max_calls, 'call')} in all (--max-calls)"


def _said(group: "EvidenceGroup") -> tuple[str, str]:
    """The argument, and what the tool said; nothing that may be one customer's own."""
    return (group.argument or "-", group.wording()) if group.is_shared else ("-", "(met by too few to be shown)")


def _why(left_out: Mapping[str, int]) -> str:
    said = ", ".join(f"{count} {why}" for why, count in left_out.items())
    return f" ({said}: left out)" if said else ""


# Afterwards.


def _lines(result: "SlotResult") -> Iterator[str]:
    funnel = result.funnel
    yield f"{result.prepared.gathered.slot}: {counted(funnel['traces'], 'trace')}{_why(result.prepared.gathered.left_out)}"
    yield _sides(result.prepared)
    yield (
        f"{funnel['with_evidence']} with evidence in {counted(funnel['groups'], 'group')}, {funnel['groups_worded']} of them "
        f"put into words: {counted(funnel['rules'], 'rule')}"
    )
    for outcome in result.outcomes:
        if outcome.left_out:
            yield f"  left out: {_named(outcome.group)}: {outcome.left_out}"
    yield from (f"  refused: {count} {why}" for why, count in result.refused.items())
    for bullet in result.playbook.active:
        people = counted(bullet.provenance.principals, "person", "people")
        yield f"  - {bullet.content}   ({people}, {counted(bullet.provenance.trace_count, 'trace')}; {bullet.id})"
    for bullet in result.playbook.held:
        yield f"  held for a person: {bullet.content}   ({bullet.held}; {bullet.id})"
    yield f"{result.verdict.replace('_', ' ')}: {result.reason}"
    cost = "an unknown cost" if result.cost is None else f"${result.cost:.4f}"
    yield f"{counted(result.calls, 'call')}, {cost}; the playbook is in {result.path}"
    yield from _next(result)


def _named(group: "EvidenceGroup") -> str:
    said = _said(group)[1][:60]
    return f"{group.tool}: {said}" if group.tool else said


def _next(result: "SlotResult") -> Iterator[str]:
    if result.playbook.bullets:
        yield f"See where a rule comes from: journeyman playbook why {result.path} {result.playbook.bullets[0].id}"
    if result.playbook.held:
        yield f"Approve one that is held: journeyman playbook approve {result.path} {result.playbook.held[0].id} --reason WHY"
    if result.verdict == "checked":
        yield f"Show it to a share of new sessions: {_start(result)}"
    elif result.verdict == "not_examinable":
        yield (
            "More requests may tell: run this again when there are more. Or live sessions tell, if you say so: "
            f"{_start(result)} --force --reason WHY"
        )


def _start(result: "SlotResult") -> str:
    """The command that shows it to live sessions."""
    slot = result.prepared.gathered.slot
    agent = f" --agent {slot.agent}" if slot.agent else ""
    return f"journeyman releases start {result.candidate}{agent} --domain {slot.domain}"
