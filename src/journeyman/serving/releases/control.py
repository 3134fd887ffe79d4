"""What is done to rollouts by people, whether by a command or over HTTP: begin one, move it, and see how it stands."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from journeyman.core.candidate import Candidate, Kind, ServedModel
from journeyman.core.errors import InputError, ReleaseError, SettingError
from journeyman.core.rollout import ANY, SLOT_KINDS, Cause, EventKind, LiveReleases, Rollout, RolloutState, Slot
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.experiments import settings
from journeyman.io.files import sha256
from journeyman.stores import open_store
from journeyman.stores.base import EvidenceRecord
from journeyman.stores.registry import GateVerdict, GateWord, Registry

if TYPE_CHECKING:
    from journeyman.optimizers.weights.adapters import Artifact
    from journeyman.stores.rollouts import RolloutStore


class Person(NamedTuple):
    """Who does something, and why."""

    actor: str
    """person:NAME, or api."""
    reason: str

    def cause(self, *, forced: bool = False, **evidence: Any) -> Cause:
        """
        Raises:
            SettingError: No reason is given.
        """
        if not (reason := self.reason.strip()):
            raise SettingError("reason", "{} is empty; say why in one sentence, as it is kept")
        told = {name: value for name, value in evidence.items() if value is not None}
        return Cause(reason=reason, actor=self.actor, at=datetime.now(UTC), evidence=told, forced=forced)

    def check_force(self, force: bool) -> None:
        """
        Raises:
            InputError: Something is forced, and nobody says why.
        """
        if force and not self.reason.strip():
            raise InputError("--force needs --reason: who forces something says why")


SHADOW_SHARE = 0.1
"""Of requests, where they are to be mirrored and the plan does not say how many."""


def plan_of(given: Any, where: str, share: float | None = None, *, shadow: bool = False) -> RolloutPlan:
    """A plan from what is given; with a share, of one step at it; with a shadow, of mirrored requests before it.

    Raises:
        InputError: A key is not known, a value cannot be, or the share is none.
    """
    plan = RolloutPlan.read(given.get("release", given) if isinstance(given, Mapping) else given, where)
    if shadow and not plan.shadow_share:
        plan = replace(plan, shadow_share=SHADOW_SHARE)
    if share is None:
        return plan
    if not 0 < share <= 1:
        raise SettingError("share", f"{{}} is above 0 and at most 1, not {share:g}")
    return replace(plan, steps=(share,), step_sessions=(0,), step_hours=(0.0,), step_worst=(1.0,))


# Begin.


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRequest:
    """A rollout that somebody wants to begin."""

    candidates: Callable[[Registry], Sequence[Candidate]]
    """Finds them."""
    plan: RolloutPlan
    by: Person
    agent: str = ANY
    domain: str = ANY
    planned_only: bool = False
    force: bool = False
    """Although no gate let it pass; with a reason."""


class Begun(NamedTuple):
    rollout: Rollout
    words: Sequence[GateWord]
    """What the gate says of each candidate."""
    warnings: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        gates = [{"verdict": each.verdict.value, "reason": each.reason, "evaluation": each.evaluation_id or None}
                 for each in self.words]  # fmt: skip
        return {"gate": gates[0] if len(gates) == 1 else gates, "rollout": self.rollout.told()}


def start(url: str, wanted: RolloutRequest, *, dry_run: bool = False) -> Begun:
    """Begin a rollout in the store at a URL; one is made where there is none.

    Raises:
        InputError: It cannot be meant, or a candidate cannot be served.
        ReleaseError: No gate let it pass and nobody forces it, it may not start now, or it is not what was kept.
        ModelError: The server that should answer with it does not.
    """
    from journeyman.stores.rollouts import open_rollouts

    wanted.by.check_force(wanted.force)
    if wanted.plan.shadow_rewards:
        from journeyman.serving.shadow import check_rewards

        check_rewards(wanted.plan.shadow_rewards)
    # A project's first candidate may come with its store.
    with open_store(url, make=False) as learned, open_rollouts(url, make=False) as kept:
        registry = Registry(learned)
        candidates = wanted.candidates(registry)
        begun = _begun(candidates, [registry.gate_word(each.id) for each in candidates], kept.live(), wanted)
        kept.may_start(begun.rollout)
    if not dry_run:
        with open_store(url) as learned, open_rollouts(url) as kept:
            for each in candidates:
                learned.add_candidate(each)
            kept.start(begun.rollout)
    return begun


def _begun(candidates: Sequence[Candidate], words: Sequence[GateWord], live: LiveReleases, wanted: RolloutRequest) -> Begun:
    warnings = [said for each in candidates for said in _servable(each, live.models)]
    for candidate, word in zip(candidates, words, strict=True):
        if not (word.verdict.may_start or wanted.force):
            said = {"unexamined": "was never examined"}.get(word.verdict, f"may not go live ({word.verdict.replace('_', ' ')})")
            how = "examine it with journeyman evaluate, or force it, with a reason"
            raise ReleaseError(f"{candidate.id} {said}: {word.reason}; {how}")
    said = wanted.by.reason.strip() or "; ".join(dict.fromkeys(word.reason for word in words))
    found = strictest(words)
    forced = not all(word.verdict.may_start for word in words)
    cause = wanted.by._replace(reason=said).cause(
        forced=forced, verdict=found.verdict.value, evaluation=found.evaluation_id or None
    )
    slot = Slot(SLOT_KINDS[candidates[0].kind], wanted.agent, wanted.domain)
    rollout = Rollout.begin(candidates, slot, live.baseline(slot), wanted.plan, found.verdict.value, cause)
    if wanted.plan.shadow_share and not wanted.planned_only:
        rollout = rollout.then(EventKind.SHADOW, replace(cause, reason=f"requests are mirrored first: {said}"))
    elif not wanted.planned_only:
        first = replace(cause, reason=f"the first step: {said}")
        rollout = rollout.then(EventKind.RAMP, first, rollout.next_shares())
    return Begun(rollout, words, warnings)


def strictest(words: Sequence[GateWord]) -> GateWord:
    """Of several candidates' words, the one that asks most of what is shown live: of which only a part was examined, then of
    which none was."""
    order = (GateVerdict.CHECKED, GateVerdict.REFUSED, GateVerdict.NOT_EXAMINABLE, GateVerdict.UNEXAMINED, GateVerdict.PASSED)
    return min(words, key=lambda word: order.index(word.verdict))


def _servable(candidate: Candidate, models: Mapping[str, ServedModel]) -> Sequence[str]:
    """What is to be said of how it will be served.

    Raises:
        InputError: No gateway would serve it.
        ReleaseError: What would be served is not what was kept.
        ModelError: The server that should answer with it does not.
    """
    from journeyman.serving.releases.artifacts import CandidateLoader, check_answers
    from journeyman.serving.releases.context import FixedPlaybook

    project = settings.load()
    served = CandidateLoader(project).load(candidate, models)
    if isinstance(served, ServedModel):
        check_answers(served, project.settings.upstreams)
    return served.too_long() if isinstance(served, FixedPlaybook) else ()


def kept_candidate(registry: Registry, text: str) -> Candidate:
    """The candidate of an id, or of as much of it as tells it apart.

    Raises:
        InputError: There is none.
        ReleaseError: It was changed after it was kept.
    """
    found = registry.candidate(text).candidate
    if (known := found.id) and not known.startswith(text):
        raise ReleaseError(f"{text} was changed in the store after it was kept: what is there now is {known}")
    return found


# Move, and end.


class Moved(NamedTuple):
    rollout: Rollout
    production: str
    """What is in production of its slot now."""

    def as_json(self) -> dict[str, Any]:
        return {"done": True, "production": self.production, "rollout": self.rollout.told()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutMove:
    """What somebody wants to happen to a rollout."""

    kind: EventKind
    by: Person
    share: float | None = None
    """Of all candidates together, where it ramps; without it the plan's next."""
    arm: str | None = None
    """Of several candidates, the one that is promoted, or taken out by a rollback."""


def move(kept: "RolloutStore", found: Rollout, wanted: RolloutMove) -> Moved:
    """Let something happen to a rollout as it was found.

    Raises:
        InputError: It cannot be meant.
        ReleaseError: It cannot happen now, or something else has happened since.
    """
    kind, seen = wanted.kind, kept.evidence(found.id)
    # A hold stands against a promotion.
    forced = kind is EventKind.PROMOTE and found.state is RolloutState.HELD
    cause = wanted.by.cause(forced=forced, evidence=seen.number if seen else None)
    if kind is EventKind.CLOSE and found.state is RolloutState.HOLDBACK:
        kind = EventKind.CONCLUDE
    if kind is EventKind.PROMOTE:
        after = found.promoted(cause, wanted.arm) if found.is_drawing else found.then(kind, cause)
    elif kind is EventKind.ROLLBACK and wanted.arm is not None:
        after = found.without(found.named_arm(wanted.arm), cause)
    else:
        ramps = kind is EventKind.RAMP and found.state in (RolloutState.PLANNED, RolloutState.SHADOW, RolloutState.CANARY)
        after = found.then(kind, cause, found.next_shares(wanted.share) if ramps else None)
    kept.advance(after)
    return Moved(after, kept.live().baseline(after.slot).candidate_id)


# See.


def slot_rows(live: LiveReleases) -> list[dict[str, Any]]:
    """What is in production where, and the rollouts that are open there."""
    rollouts = {rollout.slot: rollout for rollout in live.rollouts}
    rows = []
    for slot in sorted(live.production.keys() | rollouts.keys()):
        move, rollout = live.production.get(slot), rollouts.get(slot)
        told = {"since": move.at.isoformat() if move else None, "by": move.actor if move else None}
        serves = live.baseline(slot).candidate_id
        rows.append({"slot": str(slot), "production": serves, **told, "rollout": rollout.told() if rollout else None})
    return rows


def evidence_told(kept: "RolloutStore", rollout: Rollout, last: EvidenceRecord | None) -> dict[str, Any]:
    """What the test of a rollout has come to, and before it its mirrored requests."""
    from journeyman.serving.shadow import shadow_told

    told: dict[str, Any] = {"rollout": rollout.id, "evidence": None}
    if (shadow := shadow_told(kept, rollout)) is not None:
        told["shadow"] = shadow
    if last is not None:
        record = {"number": last.number, "upto": last.upto, "at": last.at.isoformat(), "summary": _plain(last.summary)}
        told["evidence"] = record
    return told


def _plain(value: Any) -> Any:
    """JSON knows no infinity, and no number that is none."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Where learned weights answer.


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsRelease:
    """Weights that a gateway can be told of: a candidate, and the file that is served."""

    store: str
    """Its URL."""
    candidate: Candidate
    gguf: Path
    digest: str
    """SHA-256 of the file."""
    replaces: tuple[str, ...]
    by: Person

    @classmethod
    def of(cls, artifact: "Artifact", gguf: Path, **more: Any) -> "WeightsRelease":
        """Of an adapter that was trained here and is in the store the candidate is that adapter, so that what the gate said of
        it counts; of anything else it is the file."""
        from journeyman.optimizers.weights.adapters import digest

        with open_store(more["store"], make=False) as learned:
            folder = artifact.path if artifact.run is None else artifact.run / "adapter"
            trained = digest(folder) if (folder / "adapter_model.safetensors").is_file() else ""
            found = Candidate(kind=Kind.ADAPTER, body=trained)
            content = sha256(gguf)
            if not trained or learned.candidate(found.id) is None:
                found = Candidate(kind=Kind.ADAPTER, body=content)
        return cls(candidate=found, gguf=gguf.resolve(), digest=content, **more)

    def served(self, model: str, url: str) -> ServedModel:
        return ServedModel(
            candidate_id=self.candidate.id,
            url=url,
            model=model,
            digest=self.digest,
            file=str(self.gguf),
            replaces=self.replaces,
            at=datetime.now(UTC),
        )

    def check(self, model: str) -> None:
        """
        Raises:
            ReleaseError: `keep` would not take them under that name.
        """
        from journeyman.stores.rollouts import open_rollouts

        with open_rollouts(self.store, make=False) as kept:
            kept.may_serve(self.served(model, "http://localhost"))

    def keep(self, model: str, url: str) -> ServedModel:
        """Tell gateways where they answer. Nobody is served by them yet.

        Raises:
            ReleaseError: As `RolloutStore.serve_model` does.
        """
        from journeyman.stores.rollouts import open_rollouts

        served = self.served(model, url)
        with open_store(self.store) as learned, open_rollouts(self.store) as kept:
            learned.add_candidate(self.candidate)
            kept.serve_model(served, self.by.cause())
        return served


def withdraw_model(kept: "RolloutStore", served: ServedModel, by: Person) -> None:
    """Tell gateways that weights answer no longer.

    Raises:
        ReleaseError: They are in production of a slot, or in an open rollout.
    """
    kept.serve_model(replace(served, url="", at=datetime.now(UTC)), by.cause())


def named_model(live: LiveReleases, text: str) -> ServedModel:
    """The weights that were deployed under a name; its end behind `_` or `-` is enough where that tells it apart.

    Raises:
        InputError: There are none, or several.
    """
    known = {each.model: each for each in live.models.values()}
    if text in known:
        return known[text]
    found = [name for name in known if text and name.endswith((f"_{text}", f"-{text}"))]
    if len(found) == 1:
        return known[found[0]]
    there = ", ".join(sorted(found or known)) or "none"
    said = f"{text!r} may be any of" if found else f"no model {text!r} was deployed with --release; there are"
    raise InputError(f"{said} {there}; journeyman deployment --deploy begins with one")
