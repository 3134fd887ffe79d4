"""From judged traces to a file of rows, with a datasheet beside it.

built = build(map(Judged.of, traces), Path("kto.jsonl"), DatasetConfig(method="kto"))
print(built.rows, built.labels)
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from journeyman.capture.finetuning import Losses
from journeyman.errors import InputError
from journeyman.learn.weights.data import choose, files, sheet
from journeyman.learn.weights.data.config import DatasetConfig
from journeyman.learn.weights.data.gather import UNKNOWN, CandidateRow, Spool, gather
from journeyman.learn.weights.data.groups import GroupedRows, PromptGroup, grouped
from journeyman.learn.weights.data.judged import JudgedTrace
from journeyman.learn.weights.data.sheet import DatasetCard
from journeyman.learn.weights.rows import CompletionGroup, LabelledCompletion, Row, TextOrMessages


def build(
    judged: Iterable[JudgedTrace],
    path: Path | None,
    config: DatasetConfig,
    *,
    done: Callable[[int], None] = lambda _: None,
    unread: Sequence[str] = (),
) -> DatasetCard:
    """Write the rows that traces give, and what they are beside them: `<path>.sheet.md` and `<path>.sheet.json`.

    The same traces and settings give the same bytes, whatever the order in which the traces come. Only a little of each is
    kept in memory.

    Args:
        path: Where to; nothing is written without one.
        done: Told after each trace that it is one more.
        unread: Filled by whoever reads the traces with what could not be read, until the last of them came.

    Raises:
        InputError: There is nothing that could be a row, a setting does not fit the traces, or the file cannot be written.
    """
    losses = Losses()
    with closing(Spool()) as spool:
        found = gather(judged, config, spool, losses, done)
        losses.add("places in files that could not be read", len(unread))
        choose.known_agents(config, found)
        rows, told = _kto(found, config, spool, losses) if config.method == "kto" else _grpo(found, config, spool, losses)
        if path is None:
            return sheet.of(told, config, losses, None)
        if not told.rows:
            raise InputError(_nothing(losses))
        files.write(path, rows)
    made = sheet.of(told, config, losses, path)
    sheet.save(made, path)
    return made


def _nothing(losses: Losses) -> str:
    why = "; ".join(losses) or "there were no traces"
    told = f"there is nothing to learn from: {why}"
    return (
        f"{told}. To say what they were worth: journeyman traces label, or journeyman score --store --keep"
        if UNKNOWN in why
        else told
    )


_Made = tuple[Iterator[Row], sheet.DatasetContents]


def _kto(found: Sequence[CandidateRow], config: DatasetConfig, spool: Spool, losses: Losses) -> _Made:
    kept = [
        row
        for row in choose.distinct(found, losses)
        for _ in range(choose.copies(row.content, config.agent_weights.get(row.agent, 1.0), config.seed))
    ]
    rows = choose.balanced(kept, config, losses)
    return (_labelled(row, spool) for row in rows), sheet.DatasetContents(rows=len(rows), found=rows)


def _grpo(found: Sequence[CandidateRow], config: DatasetConfig, spool: Spool, losses: Losses) -> _Made:
    groups = grouped(list(choose.once(found, losses)), losses)
    bunches = [bunch for bunch in groups.bunches for _ in range(_copies(bunch, config))]
    return (_group(bunch, spool) for bunch in bunches), _told(bunches, groups)


def _told(bunches: Sequence[PromptGroup], groups: GroupedRows) -> sheet.DatasetContents:
    found = [one for bunch in bunches for one in bunch.found]
    return sheet.DatasetContents(rows=len(bunches), found=found, groups=groups.tasks, flat=groups.flat)


def _copies(bunch: PromptGroup, config: DatasetConfig) -> int:
    weights = [config.agent_weights.get(one.agent, 1.0) for one in bunch.found]
    return choose.copies(bunch.found[0].content, sum(weights) / len(weights), config.seed)


def _labelled(row: CandidateRow, spool: Spool) -> LabelledCompletion:
    told = spool.get(row.place)
    assert row.verdict is not None
    return LabelledCompletion(
        prompt=_said(told["prompt"]),
        completion=_said(told["completion"]),
        label=row.verdict.good,
        tools=tuple(told["tools"]),
        source={"trace": row.trace, **_source(row)},
    )


def _group(bunch: PromptGroup, spool: Spool) -> CompletionGroup:
    told = [spool.get(one.place) for one in bunch.found]
    logprobs = tuple(None if each["logprobs"] is None else tuple(each["logprobs"]) for each in told)
    return CompletionGroup(
        prompt=_said(told[0]["prompt"]),
        completions=tuple(_said(each["completion"]) for each in told),
        rewards=bunch.rewards,
        scores=tuple(one.reward for one in bunch.found if one.reward is not None),
        logprobs=logprobs if any(each is not None for each in logprobs) else (),
        tools=tuple(told[0]["tools"]),
        source=_source(bunch.found[0]),
    )


def _said(told: Any) -> TextOrMessages:
    return told if isinstance(told, str) else tuple(told)


def _source(found: CandidateRow) -> Mapping[str, str]:
    told = {"task": found.task_id, "agent": found.agent, "domain": found.domain}
    return {name: value for name, value in told.items() if value}
