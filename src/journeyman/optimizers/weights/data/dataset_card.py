"""The dataset card (datasheet) of a set: what is in it, where that came from, and what was left out and why.

Neither time nor machine is in it: the same set has the same card.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journeyman.core.format import counted
from journeyman.io.atomic import atomic_write
from journeyman.io.files import sha256
from journeyman.optimizers.weights.data.config import DatasetConfig
from journeyman.optimizers.weights.data.gather import CandidateRow
from journeyman.optimizers.weights.rows import kto_weights
from journeyman.tracing.importers.finetuning import Losses

_BINS = 10
_LISTED = 20
"""Agents, domains and sources that are named, the most frequent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetContents:
    """What stands in a set."""

    rows: int
    candidates: Sequence[CandidateRow]
    """Of each completion, as often as it stands there."""
    groups: int | None = None
    """Of attempts that were compared."""
    flat: int | None = None
    """Of these, the ones whose attempts were all worth the same: they teach GRPO nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCard:
    """What a set holds."""

    rows: int
    completions: int
    tasks: int
    traces: int
    good: int
    bad: int
    """Completions by label."""
    groups: int | None
    flat_groups: int | None
    labelled_by: Mapping[str, int]
    """How many labels came by whose word."""
    weights: Mapping[str, float] | None
    """By which KTO makes up for the balance of its labels, where they were to be weighed."""
    rewards: Mapping[str, Any]
    """Mean reward of an attempt: how many are known, their mean, and how many lie in each tenth from 0 to 1."""
    lengths: Mapping[str, Mapping[str, int]]
    """Characters of prompts and completions: least, median, of 95 in 100 at most, most."""
    agents: Mapping[str, int]
    domains: Mapping[str, int]
    sources: Mapping[str, int]
    """Completions by how their trace came in."""
    left_out: Mapping[str, int]
    """What was left out, cut or lost, and how often."""
    config: Mapping[str, Any]
    sha256: str | None
    """Of the file; `None` where none was written."""

    def json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def of(contents: DatasetContents, config: DatasetConfig, losses: Losses, path: Path | None) -> DatasetCard:
    """The dataset card of rows that were written to `path`; without a path, of rows that were not written."""
    candidates = contents.candidates
    labels = Counter(one.verdict.good for one in candidates)
    sources = Counter(str(one.verdict.source) for one in candidates)
    return DatasetCard(
        rows=contents.rows,
        completions=len(candidates),
        tasks=len({(one.domain, one.task_id) for one in candidates}),
        traces=len({one.trace for one in candidates}),
        good=labels[True],
        bad=labels[False],
        groups=contents.groups,
        flat_groups=contents.flat,
        labelled_by=dict(sorted(sources.items())) if config.method == "kto" else {},
        weights=_weights(labels[True], labels[False]) if config.balance == "weights" else None,
        rewards=_rewards([one.reward for one in candidates]),
        lengths={
            "prompt": _lengths([one.prompt_length for one in candidates]),
            "completion": _lengths([one.completion_length for one in candidates]),
        },
        agents=_most(one.agent for one in candidates),
        domains=_most(one.domain for one in candidates),
        sources=_most(one.source for one in candidates),
        left_out=dict(sorted(losses.counts.items())),
        config=config.json(),
        sha256=None if path is None else sha256(path),
    )


def save(sheet: DatasetCard, path: Path) -> None:
    """Write the card beside its set: `<path>.sheet.json` and `<path>.sheet.md`.

    Raises:
        InputError: They cannot be written.
    """
    for beside, text in (
        (json_path(path), _dumped(sheet)),
        (path.with_name(f"{path.name}.sheet.md"), markdown(sheet, path.name)),
    ):
        with atomic_write(beside) as part:
            part.write_text(text, encoding="utf-8")


def json_path(path: Path) -> Path:
    """Where the sheet of a set stands."""
    return path.with_name(f"{path.name}.sheet.json")


def markdown(sheet: DatasetCard, name: str) -> str:
    """The card as Markdown."""
    parts = [f"# {name}", _summary(sheet)]
    parts += [_table("Rewards of attempts", _bins(sheet.rewards))] if sheet.rewards["known"] else []
    parts.append(_lengths_table(sheet.lengths))
    for title, counts in (
        ("Labels came from", sheet.labelled_by),
        ("Agents", sheet.agents),
        ("Domains", sheet.domains),
        ("Sources", sheet.sources),
        ("Left out, cut or lost", sheet.left_out),
    ):
        parts += [_table(title, counts)] if counts else []
    settings = {name: value for name, value in sheet.config.items() if value not in (None, {})}
    parts.append(_table("Settings", settings))
    return "\n\n".join(parts) + "\n"


def _weights(good: int, bad: int) -> Mapping[str, float] | None:
    if not good or not bad:
        return None
    return dict(zip(("desirable_weight", "undesirable_weight"), kto_weights(good, bad), strict=True))


def _rewards(values: Sequence[float]) -> Mapping[str, Any]:
    bins = Counter(min(int(max(value, 0.0) * _BINS), _BINS - 1) for value in values)
    mean = sum(sorted(values)) / len(values) if values else None
    return {"known": len(values), "mean": mean, "histogram": [bins[at] for at in range(_BINS)]}


def _bins(rewards: Mapping[str, Any]) -> Mapping[str, int]:
    return {f"{at / _BINS:.1f} to {(at + 1) / _BINS:.1f}": count for at, count in enumerate(rewards["histogram"]) if count}


def _lengths(values: Sequence[int]) -> Mapping[str, int]:
    ordered = sorted(values)
    if not ordered:
        return {}
    at = {"least": 0.0, "median": 0.5, "of 95 in 100 at most": 0.95, "most": 1.0}
    return {name: ordered[round(part * (len(ordered) - 1))] for name, part in at.items()}


def _most(names: Iterable[str]) -> Mapping[str, int]:
    counts = sorted(Counter(names).items(), key=lambda each: (-each[1], each[0]))
    rest = sum(count for _, count in counts[_LISTED:])
    return {name or "(without a name)": count for name, count in counts[:_LISTED]} | ({"(others)": rest} if rest else {})


def _dumped(sheet: DatasetCard) -> str:
    return json.dumps(sheet.json(), ensure_ascii=False, indent=1).encode(errors="replace").decode() + "\n"


def _summary(sheet: DatasetCard) -> str:
    read = f"{counted(sheet.completions, 'completion')} of {counted(sheet.traces, 'trace')} at {counted(sheet.tasks, 'task')}"
    what = f"{counted(sheet.rows, 'row')}, {read}; "
    what += f"{sheet.good} good, {sheet.bad} bad."
    if sheet.groups is not None:
        what += f"\n{sheet.groups} groups of attempts were compared; in {sheet.flat_groups} of them all were worth the same."
    if sheet.weights:
        what += (
            "\nTrain with " + " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in sheet.weights.items()) + "."
        )
    if sheet.rewards["mean"] is not None:
        what += f"\nThe mean reward is {sheet.rewards['mean']:.3f}."
    return f"{what}\nSHA-256 of the file: `{sheet.sha256}`" if sheet.sha256 else what


def _table(title: str, rows: Mapping[str, Any]) -> str:
    lines = (f"| {_cell(name)} | {_cell(value)} |" for name, value in rows.items())
    return "\n".join([f"## {title}", "", "| | |", "|---|---|", *lines])


def _lengths_table(lengths: Mapping[str, Mapping[str, int]]) -> str:
    names = list(lengths["prompt"])
    if not names:
        return "## Characters\n\nnone"
    head = ["## Characters", "", f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    return "\n".join(
        [*head, *(f"| {what} | {' | '.join(str(row[name]) for name in names)} |" for what, row in lengths.items())]
    )


def _cell(value: Any) -> str:
    text = str(value).replace("|", "\\|")
    return " ".join(text.encode(errors="replace").decode().split())
