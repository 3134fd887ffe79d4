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
        candidates = gather(judged, config, spool, losses, done)
        losses.add("places in files that could not be read", len(unread))
        choose.known_agents(config, candidates)
        rows, contents = (
            _kto(candidates, config, spool, losses) if config.method == "kto" else _grpo(candidates, config, spool, losses)
        )
        if path is None:
            return sheet.of(contents, config, losses, None)
        if not contents.rows:
            raise InputError(_nothing(losses))
        files.write(path, rows)
    card = sheet.of(contents, config, losses, path)
    sheet.save(card, path)
    return card


def _nothing(losses: Losses) -> str:
    why = "; ".join(losses) or "there were no traces"
    message = f"there is nothing to learn from: {why}"
    return (
        f"{message}. To say what they were worth: journeyman traces label, or journeyman score --store --keep"
        if UNKNOWN in why
        else message
    )


_RowsAndContents = tuple[Iterator[Row], sheet.DatasetContents]


def _kto(candidates: Sequence[CandidateRow], config: DatasetConfig, spool: Spool, losses: Losses) -> _RowsAndContents:
    chosen = [
        row
        for row in choose.deduplicated(candidates, losses)
        for _ in range(choose.copies(row.content, config.agent_weights.get(row.agent, 1.0), config.seed))
    ]
    rows = choose.balanced(chosen, config, losses)
    return (_labelled(row, spool) for row in rows), sheet.DatasetContents(rows=len(rows), candidates=rows)


def _grpo(candidates: Sequence[CandidateRow], config: DatasetConfig, spool: Spool, losses: Losses) -> _RowsAndContents:
    groups = grouped(list(choose.once(candidates, losses)), losses)
    bunches = [bunch for bunch in groups.bunches for _ in range(_copies(bunch, config))]
    return (_group(bunch, spool) for bunch in bunches), _contents(bunches, groups)


def _contents(bunches: Sequence[PromptGroup], groups: GroupedRows) -> sheet.DatasetContents:
    candidates = [one for bunch in bunches for one in bunch.candidates]
    return sheet.DatasetContents(rows=len(bunches), candidates=candidates, groups=groups.tasks, flat=groups.flat)


def _copies(bunch: PromptGroup, config: DatasetConfig) -> int:
    weights = [config.agent_weights.get(one.agent, 1.0) for one in bunch.candidates]
    return choose.copies(bunch.candidates[0].content, sum(weights) / len(weights), config.seed)


def _labelled(row: CandidateRow, spool: Spool) -> LabelledCompletion:
    payload = spool.get(row.offset)
    assert row.verdict is not None
    return LabelledCompletion(
        prompt=_text_or_messages(payload["prompt"]),
        completion=_text_or_messages(payload["completion"]),
        label=row.verdict.good,
        tools=tuple(payload["tools"]),
        source={"trace": row.trace, **_source(row)},
    )


def _group(bunch: PromptGroup, spool: Spool) -> CompletionGroup:
    payloads = [spool.get(one.offset) for one in bunch.candidates]
    logprobs = tuple(None if each["logprobs"] is None else tuple(each["logprobs"]) for each in payloads)
    return CompletionGroup(
        prompt=_text_or_messages(payloads[0]["prompt"]),
        completions=tuple(_text_or_messages(each["completion"]) for each in payloads),
        rewards=bunch.rewards,
        scores=tuple(one.reward for one in bunch.candidates if one.reward is not None),
        logprobs=logprobs if any(each is not None for each in logprobs) else (),
        tools=tuple(payloads[0]["tools"]),
        source=_source(bunch.candidates[0]),
    )


def _text_or_messages(value: Any) -> TextOrMessages:
    return value if isinstance(value, str) else tuple(value)


def _source(candidate: CandidateRow) -> Mapping[str, str]:
    fields = {"task": candidate.task_id, "agent": candidate.agent, "domain": candidate.domain}
    return {name: value for name, value in fields.items() if value}
