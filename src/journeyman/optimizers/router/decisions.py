"""The log of decisions: who was chosen for a request, with which probability out of whom, and what became of it.

One JSON object a line. A decision and its outcome are two lines with the same `id`, as the outcome comes later:

    {"decision": "…", "at": "…", "worker": "small", "propensity": 0.96, "candidates": ["small", "large"], "policy": "…", …}
    {"outcome_of": "…", "at": "…", "ending": "right", "success": 1.0, "cost": 0.0002, "seconds": 0.8}

Without propensities nobody can tell later what another policy would have brought (Horvitz and Thompson, JASA 47, 1952).
"""

import hashlib
import json
import logging
import math
import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.core.policy import Choice, Ending, Forecast, Outcome
from journeyman.io.jsonl import append_line, iter_jsonl
from journeyman.optimizers.outcome_table import OutcomeRow

log = logging.getLogger(__name__)

_MARK = b'"decision"'


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDecision:
    """One choice that was made, and what became of it as far as that is known."""

    id: str
    at: datetime
    choice: Choice
    digest: str
    """Of the request's text, so that requests can be told apart where the text is not kept."""
    request: str | None = None
    """`None` where texts are not kept."""
    type: str = "general"
    session: str | None = None
    outcome: Outcome | None = None


class DecisionLog:
    """A file that decisions are added to, by several threads and processes at once."""

    def __init__(self, path: Path, *, texts: bool = True) -> None:
        """Without `texts` a request is kept as its digest alone."""
        self.path = path
        self._texts = texts
        self._lock = threading.Lock()

    def decided(self, choice: Choice, request: str, *, type: str = "general", session: str | None = None) -> str:
        """Add a decision; its id, by which its outcome is told later.

        Raises:
            InputError: The file cannot be written to.
        """
        id = uuid.uuid4().hex
        line = {
            "decision": id,
            "at": datetime.now(UTC).isoformat(),
            "digest": digest(request),
            **({"request": request} if self._texts else {}),
            "type": type,
            **({"session": session} if session is not None else {}),
            **{field.name: getattr(choice, field.name) for field in fields(Choice) if field.name != "forecasts"},
            "forecasts": [asdict(forecast) for forecast in choice.forecasts],
        }
        self._append(line)
        return id

    def became(self, id: str, outcome: Outcome) -> None:
        """Add what became of a decision. Of several words on one the last holds."""
        self._append({"outcome_of": id, "at": datetime.now(UTC).isoformat(), **asdict(outcome)})

    def _append(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line, allow_nan=False, default=str)
        try:
            with self._lock:
                append_line(self.path, data)
        except OSError as error:
            raise InputError(f"{self.path} cannot be written to: {error.strerror}; name another file of decisions") from None


def read(path: Path) -> tuple[LoggedDecision, ...]:
    """The decisions in a file, oldest first. Half a line, left by one who was killed, is left out and told in the log.

    Raises:
        InputError: The file is not there, or a whole line is no decision.
    """
    found: dict[str, LoggedDecision] = {}

    def half(where: str, _: str) -> None:
        log.warning("%s is half a line, and left out", where)

    for line in iter_jsonl(path, json.loads, missing="name a log of decisions", bad=half):
        try:
            _add(found, line.value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{line.where}: no decision ({error}); name a log of decisions, or mend the line") from None
    return tuple(found.values())


def is_log(path: Path) -> bool:
    """Whether a file is a log of decisions, by its first line."""
    try:
        with path.open("rb") as file:
            return file.readline(1 << 20).startswith(b"{" + _MARK)
    except OSError:
        return False


def rows(decisions: Iterable[LoggedDecision]) -> tuple[OutcomeRow, ...]:
    """Decisions whose outcome and text are known, as rows to learn from: one worker each, with the propensity."""
    return tuple(
        OutcomeRow(
            id=each.id,
            request=each.request,
            type=each.type,
            outcomes={each.choice.worker: each.outcome},
            propensity=each.choice.propensity,
        )
        for each in decisions
        if each.request and each.outcome is not None
    )


def digest(request: str) -> str:
    """What stands for a text that is not kept. Short texts can be guessed from it; it hides nothing from who tries."""
    return hashlib.sha256(request.encode(errors="surrogatepass")).hexdigest()[:32]


def _add(found: dict[str, LoggedDecision], payload: Mapping[str, Any]) -> None:
    if "outcome_of" in payload:
        id = payload["outcome_of"]
        if id in found:
            found[id] = replace(found[id], outcome=_outcome(payload))
        return
    choice = _choice(payload)
    found[payload["decision"]] = LoggedDecision(
        id=payload["decision"],
        at=datetime.fromisoformat(payload["at"]),
        choice=choice,
        digest=payload["digest"],
        request=payload.get("request"),
        type=payload.get("type", "general"),
        session=payload.get("session"),
    )


def _choice(payload: Mapping[str, Any]) -> Choice:
    known = {field.name: payload[field.name] for field in fields(Choice) if field.name in payload}
    known["forecasts"] = tuple(Forecast(**each) for each in payload.get("forecasts", ()))
    choice = Choice(**{**known, "candidates": tuple(payload["candidates"])})
    if choice.worker not in choice.candidates or not 0 < choice.propensity <= 1:
        raise ValueError(f"worker {choice.worker!r} with propensity {choice.propensity} was not among its candidates")
    return choice


def _outcome(payload: Mapping[str, Any]) -> Outcome:
    known = {field.name: payload[field.name] for field in fields(Outcome) if field.name in payload}
    outcome = Outcome(**{**known, "ending": Ending(payload.get("ending", Ending.UNJUDGED))})
    if outcome.success is not None and not 0 <= outcome.success <= 1:
        raise ValueError(f"its success is {outcome.success!r}, and must be between 0 and 1, or null")
    if any(amount is not None and not 0 <= amount < math.inf for amount in (outcome.cost, outcome.seconds)):
        raise ValueError("its cost and seconds must be numbers of at least 0, or null")
    return outcome
