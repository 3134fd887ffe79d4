"""Traces become candidates for rows. What they say waits in a file: a store of any size fits into memory."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from journeyman.capture.finetuning import Losses
from journeyman.learn.weights.data.config import DatasetConfig
from journeyman.learn.weights.data.judged import JudgedTrace, LabelVerdict, exclusion_reason, verdict
from journeyman.learn.weights.data.limits import count_characters, max_characters, truncated
from journeyman.learn.weights.data.talks import Talk, talks

UNKNOWN = "traces of which nobody knows what they were worth"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRow:
    """What is known in memory of a candidate for a row."""

    key: tuple[datetime, str, int, bytes]
    """By which they are put in order, whatever the order in which they came: time, id of the trace, number in it, all else."""
    offset: int
    """Bytes from the beginning of the spool to its payload."""
    content: bytes
    """Digest of prompt, completion and tools."""
    prompt: bytes
    """Digest of prompt and tools."""
    task: bytes
    """Digest of the task's domain and id, and of the agent's instructions and tools: of two sets of tasks with the same ids,
    that tells them apart."""
    verdict: LabelVerdict | None
    reward: float | None
    agent: str
    domain: str
    source: str
    task_id: str
    prompt_length: int
    completion_length: int

    @property
    def trace(self) -> str:
        return self.key[1]


class Spool:
    """Prompts and completions of the candidates, in a temporary file: one JSON payload a line, found by its offset in bytes."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - `close` closes it

    def add(self, payload: Mapping[str, Any]) -> int:
        """Write a payload; its offset. Half a surrogate pair, which is no text, becomes a question mark."""
        offset = self._file.seek(0, 2)
        self._file.write(json.dumps(payload, ensure_ascii=False, default=str).encode(errors="replace") + b"\n")
        return offset

    def get(self, offset: int) -> dict[str, Any]:
        self._file.seek(offset)
        payload: dict[str, Any] = json.loads(self._file.readline())
        return payload

    def close(self) -> None:
        self._file.close()


def gather(
    judged: Iterable[JudgedTrace],
    config: DatasetConfig,
    spool: Spool,
    losses: Losses,
    done: Callable[[int], None] = lambda _: None,
) -> list[CandidateRow]:
    """The candidates that traces give, in the order of their keys; what is left out is counted.

    Args:
        done: Told after each trace that it is one more.
    """
    candidates: list[CandidateRow] = []
    for one in judged:
        candidates += _of(one, config, spool, losses)
        done(1)
    return sorted(candidates, key=lambda each: each.key)


def _of(judged: JudgedTrace, config: DatasetConfig, spool: Spool, losses: Losses) -> Iterable[CandidateRow]:
    if why := exclusion_reason(judged):
        losses.add(f"{why}: left out")
        return
    label = verdict(judged, config.threshold, proposals=config.auto_labels)
    if (label if config.method == "kto" else judged.reward) is None:
        losses.add(f"{UNKNOWN}: left out")
        return
    task: bytes | None = None
    for number, talk in enumerate(talks(judged.trace, config, losses)):
        task = task or _task(judged, talk)
        fit = truncated(talk, max_characters(config), lambda what: losses.add(f"rows {what}"))
        if fit is not None:
            yield _candidate(judged, fit, number, (task, label), spool)


def _candidate(
    judged: JudgedTrace, talk: Talk, number: int, known: tuple[bytes, LabelVerdict | None], spool: Spool
) -> CandidateRow:
    trace, (task, label) = judged.trace, known
    content = _digest([talk.prompt, talk.completion, talk.tools])
    of = (trace.agent, trace.domain, trace.source, trace.task_id)
    payload = {"prompt": talk.prompt, "completion": talk.completion, "tools": talk.tools, "logprobs": talk.logprobs}
    return CandidateRow(
        key=(
            trace.started_at,
            trace.id,
            number,
            _digest([content.hex(), *of, judged.reward, label and [label.good, label.rank]]),
        ),
        offset=spool.add(payload),
        content=content,
        prompt=_digest([talk.prompt, talk.tools]),
        task=task,
        verdict=label,
        reward=judged.reward,
        agent=trace.agent or "",
        domain=trace.domain,
        source=trace.source,
        task_id=trace.task_id,
        prompt_length=count_characters(talk.prompt),
        completion_length=count_characters(talk.completion),
    )


def _task(judged: JudgedTrace, talk: Talk) -> bytes:
    return _digest([judged.trace.domain, judged.trace.task_id, talk.instructions, talk.tools])


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=16).digest()
