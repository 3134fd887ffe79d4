"""`/releases` over HTTP: begin a rollout, move it, and see how it stands, by the functions that the command uses. Alarms from
outside move one, too, and Prometheus is told what the store says."""

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from journeyman.core.alert import OutsideAlert, read_webhook
from journeyman.core.errors import InputError, ModelError, ReleaseError, StoreError
from journeyman.core.rollout import ANY, EventKind, Rollout, Slot
from journeyman.io.http_server import bearer_token, known_token
from journeyman.io.metrics import Families, GaugeMetricFamily
from journeyman.serving.gateway.request import Header, HTTPRejection, Send, answer_json

if TYPE_CHECKING:
    from journeyman.stores.registry import Registry
    from journeyman.stores.rollouts import RolloutStore

LARGEST = 1 << 20
"""Bytes of a request."""
TOKEN = b"x-journeyman-release-token"
ALERTS = "/alerts/webhook"
"""Where an outside alarm is heard."""
_LIST, _ONE, _END = "/releases.json", "/releases/", ".json"
_ACTOR = "api"
_AT_ONCE = 8
"""Requests under way; one more is told to come back."""
_SHOWN = 20
"""Rollouts in the list, the newest."""
_MOVES: Mapping[EventKind, Mapping[str, type]] = {
    EventKind.RAMP: {"share": float},
    EventKind.HOLD: {},
    EventKind.RESUME: {},
    EventKind.PROMOTE: {"arm": str},
    EventKind.ROLLBACK: {"arm": str},
    EventKind.CLOSE: {},
}
_START: Mapping[str, type] = {
    "candidate": str,
    "candidates": list,
    "agent": str,
    "domain": str,
    "plan": dict,
    "share": float,
    "planned_only": bool,
    "force": bool,
    "dry_run": bool,
}
_SAID = {float: "number", str: "text", list: "list of ids", dict: "table of settings", bool: "true or false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseConfig:
    """Where releases stand, and who may change them over HTTP."""

    store_url: str
    tokens: tuple[str, ...] = field(default=(), repr=False)
    """Of those who may. None: nobody may."""
    refresh: Callable[[], None] = lambda: None
    """Has this gateway serve what the store says by now."""


def is_asked(method: str, path: str) -> bool:
    """Whether an address is one of these."""
    if method == "POST":
        return path in ("/releases", ALERTS) or _moved(path) is not None
    return path == _LIST or (path.startswith(_ONE) and path.endswith(_END))


def _moved(path: str) -> tuple[str, EventKind] | None:
    """The rollout that is meant, and what is to happen to it."""
    id, _, kind = path.removeprefix(_ONE).rpartition("/")
    return (id, EventKind(kind)) if path.startswith(_ONE) and id and kind in list(_MOVES) else None


class ReleaseDesk:
    """Shows releases, and changes them for whom may. Of one event loop."""

    def __init__(self, config: ReleaseConfig) -> None:
        self._config = config
        self._under_way = 0

    def knows(self, headers: Sequence[Header]) -> bool:
        """Whether who sends these may change what is released."""
        tokens = self._config.tokens
        given = [value for name, value in headers if name == TOKEN and known_token(value, tokens)]
        return bool(given) or any(name == b"authorization" and bearer_token(value, tokens) for name, value in headers)

    async def see(self, path: str, send: Send) -> None:
        """
        Raises:
            HTTPRejection: (404) There is no such rollout; (503) the store does not answer.
        """
        await self._answer(send, lambda: (200, *self._seen(path)))

    async def act(self, path: str, headers: Sequence[Header], body: bytes, send: Send) -> None:
        """Let something happen; when it is answered, this gateway serves accordingly.

        Raises:
            HTTPRejection: (403) Whoever asks may not; (400) it cannot be meant; (404) there is no such rollout; (409) it cannot
                happen now, or something happened meanwhile; (502) the server of what is released does not answer; (503) the
                store does not. Nothing of it is kept then.
        """
        if not self.knows(headers):
            wants = "send it as X-Journeyman-Release-Token" if self._config.tokens else "and none is set"
            said = f"only who has the token of serve.release_token_env may change what is released; {wants}"
            raise HTTPRejection(403, said, "forbidden")
        expected = _expected(headers)
        await self._answer(send, lambda: self._acted(path, body, expected))

    async def _answer(self, send: Send, work: Callable[[], tuple[int, dict[str, Any], Rollout | None]]) -> None:
        if self._under_way >= _AT_ONCE:
            raise HTTPRejection(429, "too much at once: come back in a second", "too_much", retry_after=1)
        self._under_way += 1
        try:
            status, told, rollout = await asyncio.to_thread(work)
        except InputError as error:
            raise HTTPRejection(400, str(error), "invalid") from None
        except ReleaseError as error:
            raise HTTPRejection(409, str(error), "conflict") from None
        except ModelError as error:
            raise HTTPRejection(502, str(error), "upstream_unreachable") from None
        except StoreError as error:
            raise HTTPRejection(503, str(error), "unavailable", retry_after=5) from None
        finally:
            self._under_way -= 1
        more = [] if rollout is None else [(b"etag", f'"{len(rollout.events)}"'.encode())]
        if status == 201 and rollout is not None:
            more.append((b"location", f"{_ONE}{rollout.id}{_END}".encode()))
        await answer_json(send, told, status, more)

    # In a thread.

    def _opened(self) -> "RolloutStore":
        # Whoever only passes chats on need not carry what a database takes.
        from journeyman.stores.rollouts import open_rollouts

        return open_rollouts(self._config.store_url, make=False)

    def _seen(self, path: str) -> tuple[dict[str, Any], Rollout | None]:
        from journeyman.serving.releases.control import evidence_told, slot_rows

        with self._opened() as kept:
            if path == _LIST:
                newest = list(reversed(kept.rollouts()))[:_SHOWN]
                return {"slots": slot_rows(kept.live()), "rollouts": [each.told() for each in newest]}, None
            name = path.removeprefix(_ONE).removesuffix(_END)
            id, slash, what = name.rpartition("/")
            if slash and what != "evidence":
                raise HTTPRejection(404, f"there is no {path} here; a rollout has {_ONE}ID/evidence{_END}", "not_found")
            found = _found(kept, id if slash else name)
            return (evidence_told(kept, found, kept.evidence(found.id)) if slash else {"rollout": found.told()}), found

    def _acted(self, path: str, body: bytes, expected: int | None) -> tuple[int, dict[str, Any], Rollout | None]:
        moved = _moved(path)
        status, told, rollout = 200, dict[str, Any](), cast("Rollout | None", None)
        if path == ALERTS:
            told = {"done": True, "alerts": self._alarmed(body)}
        elif moved is None:
            status, told, rollout = self._started(_fields(body, _START))
        else:
            status, told, rollout = self._move(*moved, _fields(body, _MOVES[moved[1]]), expected)
        self._config.refresh()
        return status, told, rollout

    def _alarmed(self, body: bytes) -> list[dict[str, Any]]:
        """What followed from each alarm that names a slot. One that is over changes nothing: whoever was held is let go on by
        somebody who has looked."""
        try:
            heard = read_webhook(json.loads(body))
        except (ValueError, RecursionError):
            raise InputError("the body is no JSON") from None
        told = list[dict[str, Any]]()
        with self._opened() as kept:
            live = kept.live().rollouts
            for each in heard:
                if each.firing and _SLOT in each.labels:
                    told.append(_followed(kept, live, each))
                    live = kept.live().rollouts if told[-1]["event"] else live
        return told

    def _started(self, given: dict[str, Any]) -> tuple[int, dict[str, Any], Rollout]:
        from journeyman.serving.releases import control

        named = [given[name] for name in ("candidate", "candidates") if name in given]
        ids = [named[0]] if "candidate" in given else [each for several in named for each in several]
        if len(named) != 1 or not ids or not all(isinstance(each, str) and each for each in ids):
            raise InputError("candidate is an id, or candidates a list of ids")
        wanted = control.RolloutRequest(
            candidates=lambda registry: [_kept(registry, each) for each in ids],
            plan=control.plan_of(given.get("plan", {}), "plan", given.get("share")),
            by=control.Person(_ACTOR, given["reason"]),
            agent=given.get("agent", ANY),
            domain=given.get("domain", ANY),
            planned_only=given.get("planned_only", False),
            force=given.get("force", False),
        )
        dry = given.get("dry_run", False)
        begun = control.start(self._config.store_url, wanted, dry_run=dry)
        told = {"done": not dry, "dry_run": dry, "warnings": list(begun.warnings), **begun.as_json()}
        return 200 if dry else 201, told, begun.rollout

    def _move(
        self, id: str, kind: EventKind, given: dict[str, Any], expected: int | None
    ) -> tuple[int, dict[str, Any], Rollout]:
        from journeyman.serving.releases import control

        with self._opened() as kept:
            found = _found(kept, id)
            if expected is not None and expected != len(found.events):
                last = found.events[-1]
                said = f"{last.number}, a {last.kind} ({last.cause.reason})"
                raise ReleaseError(f"{found.id}: its last event is {said}, and not {expected}; read it again and decide anew")
            by = control.Person(_ACTOR, given.pop("reason"))
            moved = control.move(kept, found, control.RolloutMove(kind=kind, by=by, **given))
        return 200, moved.as_json(), moved.rollout


_SLOT, _ACTION = "journeyman_slot", "journeyman_action"
_MOST = 500
"""Signs of a label that are said again."""


def _wanted(alarm: OutsideAlert) -> tuple[Slot, EventKind]:
    """
    Raises:
        InputError: Its labels name no slot, or what cannot be done to one.
    """
    action = alarm.labels.get(_ACTION, "hold")
    if action not in ("hold", "rollback"):
        raise InputError(f"{_ACTION} is hold or rollback, not {action!r:.40}")
    return Slot.parse(alarm.labels[_SLOT]), EventKind(action)


def _followed(kept: "RolloutStore", live: Sequence[Rollout], alarm: OutsideAlert) -> dict[str, Any]:
    from journeyman.serving.releases import control

    told: dict[str, Any] = {"alert": alarm.name, "slot": alarm.labels[_SLOT][:_MOST], "rollout": None, "event": None}
    try:
        slot, kind = _wanted(alarm)
    except InputError as error:
        # Others of the same body are heard all the same.
        return {**told, "reason": str(error)[:_MOST]}
    found = next((each for each in live if each.slot == slot), None)
    if found is None:
        return {**told, "reason": "no rollout is open there"}
    told["rollout"] = found.id
    if kind is EventKind.HOLD and found.is_held:
        return {**told, "reason": "it is held already"}
    said = f"the alarm {alarm.name} fires{f': {alarm.summary}' if alarm.summary else ''}"
    try:
        control.move(kept, found, control.RolloutMove(kind=kind, by=control.Person(_ACTOR, said)))
    except (ReleaseError, InputError) as error:
        return {**told, "reason": str(error)}
    return {**told, "event": kind.value, "reason": said}


# What Prometheus is told of releases and alerts.


class StoreGauges:
    """What the store says of releases and alerts, for Prometheus. Asked in a thread."""

    def __init__(self, store_url: str, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._url, self._clock = store_url, clock

    def families(self) -> Families:
        """Where the store does not answer, that alone."""
        up = GaugeMetricFamily("journeyman_store_up", "Whether the store answers.")
        found: list[GaugeMetricFamily] = []
        with suppress(StoreError):
            found = [*self._releases(), *self._alerts()]
        up.add_metric((), float(bool(found)))
        return [up, *found]

    def _alerts(self) -> Iterator[GaugeMetricFamily]:
        from journeyman.experiments.settings import AlertSettings
        from journeyman.serving.alerts.rules import rules
        from journeyman.stores.alerts import MACHINE, open_alerts

        alerts = GaugeMetricFamily("journeyman_alerts", "Alerts that are open, by rule and state.", labels=("rule", "state"))
        age = GaugeMetricFamily("journeyman_monitor_age_seconds", "Since a monitor was last seen.")
        now = self._clock()
        with open_alerts(self._url, make=False, patience=_PATIENCE) as kept:
            # Whichever process it runs in: each monitor looks at its machine, and nobody else keeps what is seen there.
            known = Counter((each.rule, each.state.value) for each in kept.latest().values())
            seen = kept.samples(now - timedelta(days=1), process=MACHINE, limit=1)
        for rule in rules(AlertSettings()):
            for state in ("pending", "firing"):
                alerts.add_metric((rule, state), known[rule, state])
        for each in seen:
            age.add_metric((), max(0.0, (now - each.at).total_seconds()))
        yield alerts
        yield age

    def _releases(self) -> Iterator[GaugeMetricFamily]:
        from journeyman.stores.rollouts import open_rollouts

        def gauge(name: str, told: str, *labels: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"journeyman_release_{name}", told, labels=labels)

        stage = gauge("stage", "1 for where a candidate is.", "slot", "candidate", "stage")
        share = gauge("share", "Of new sessions.", "rollout", "slot", "arm")
        sessions = gauge("sessions", "That entered the test.", "rollout")
        effect = gauge("effect", "Of the candidate beside production.", "rollout", "metric", "bound")
        weight = gauge("log_e", "Evidence: of harm, and of what a promotion asks.", "rollout", "metric", "side")
        with open_rollouts(self._url, make=False, patience=_PATIENCE) as kept:
            live = kept.live()
            for slot, move in live.production.items():
                stage.add_metric((str(slot), move.candidate_id, "production"), 1)
            for each in live.rollouts:
                for arm in each.arms:
                    stage.add_metric((str(each.slot), arm.candidate_id, each.state.value), 1)
                    share.add_metric((each.id, str(each.slot), arm.name), each.shares.get(arm.name, 0.0))
                last = kept.evidence(each.id)
                if last is not None:
                    if (entered := last.summary.get("sessions")) is not None:
                        sessions.add_metric((each.id,), entered)
                    for metric, found in _effects("", last.summary.get("metrics", {})):
                        _add(effect, weight, (each.id, metric), found)
        yield from (stage, share, sessions, effect, weight)


_PATIENCE = 1.0


def _effects(above: str, told: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """By metric; where there are several candidates, by arm and metric."""
    for name, each in told.items():
        if "difference" in each:
            yield f"{above}{name}", each
        else:
            yield from _effects(f"{name}.", each)


def _add(effect: GaugeMetricFamily, weight: GaugeMetricFamily, labels: tuple[str, str], found: Mapping[str, Any]) -> None:
    for bound in ("low", "difference", "high"):
        if isinstance(value := found.get(bound), int | float) and math.isfinite(value):
            effect.add_metric((*labels, bound), value)
    for side in ("harm", "promote"):
        if isinstance(value := found.get(f"e_{side}"), int | float) and value > 0:
            weight.add_metric((*labels, side), math.log(value))


def _kept(registry: "Registry", text: str) -> Any:
    from journeyman.serving.releases.control import kept_candidate

    return kept_candidate(registry, text)


def _found(kept: "RolloutStore", text: str) -> Rollout:
    """The rollout of an id, or of the slot that it is open in."""
    from journeyman.stores.registry import find_rollout

    try:
        return find_rollout(kept.rollouts(), text)
    except InputError as error:
        raise HTTPRejection(404, str(error), "not_found") from None


def _expected(headers: Sequence[Header]) -> int | None:
    """The number of the event that is thought to be the last; `None` where it is not said."""
    given = next((value for name, value in headers if name == b"if-match"), None)
    if given is None:
        return None
    text = given.strip().removeprefix(b'"').removesuffix(b'"')
    if not text.isdigit():
        raise HTTPRejection(400, "If-Match is the number of the rollout's last event, as its ETag tells it", "invalid")
    return int(text)


def _fields(body: bytes, kinds: Mapping[str, type]) -> dict[str, Any]:
    """What a request says; a reason is part of each.

    Raises:
        InputError: It is no JSON object, has a key that is not known, or a value of another kind.
    """
    try:
        given = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise InputError("the body is no JSON") from None
    if not isinstance(given, dict):
        raise InputError("the body is a JSON object, with a reason")
    known = {"reason": str, **kinds}
    for name, value in given.items():
        if name not in known:
            raise InputError(f"there is no {name!r}; there are {', '.join(known)}")
        fits = (int, float) if known[name] is float else known[name]
        if not isinstance(value, fits) or (isinstance(value, bool) and known[name] is not bool):
            raise InputError(f"{name} is a {_SAID[known[name]]}, not {value!r:.40}")
    if not given.get("reason", "").strip():
        raise InputError("reason is missing: say why in one sentence, as it is kept")
    return given
