"""Questions with a known answer: GSM8K in its own form, and anybody's own.

A row is `{"question": …, "answer": …}`, in JSON lines or one JSON list, gzipped or not. It may also name its `domain`, `id`,
`split` and `cluster`. GSM8K's answers end in `#### number`. Everything that is wrong with the files is said at once, before
anything is done.
"""

import hashlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.task import Split, Task, content
from journeyman.tasks import rows
from journeyman.tasks.answers import Exact, Number, first_number
from journeyman.tasks.base import Dataset, Verifier

log = logging.getLogger(__name__)

SPLITS: Mapping[str, Split] = {
    "train": Split.TRAIN,
    "validation": Split.VALIDATION,
    "val": Split.VALIDATION,
    "dev": Split.VALIDATION,
    "test": Split.HELD_OUT,
    "held_out": Split.HELD_OUT,
    "held-out": Split.HELD_OUT,
}
"""What splits are called outside."""

SHARES: Mapping[Split, int] = {Split.TRAIN: 60, Split.VALIDATION: 10, Split.HELD_OUT: 30}
"""Percent of the questions of a file that says nothing of splits."""

LEAST = 30
"""Held-out questions that a gate needs, unless it is told otherwise."""

_DOWNLOADED = "openai/gsm8k"


@dataclass(frozen=True, slots=True)
class _Question:
    """A row that can be used. Its task has no split yet, unless the row gives one."""

    where: str
    task: Task
    split: Split | None

    @property
    def content(self) -> str:
        return content(self.task.question)


def gsm8k(input: str = "", held_out: str = "", *, domain: str = "", least: int = LEAST) -> Dataset:
    """GSM8K from its files: the training questions and the held-out ones.

    `input` may also be the folder that holds both; a file that is called test is held out whole. Without either it is
    downloaded.
    """
    paths = [Path(path) for path in (input, held_out) if path]
    if len(paths) == 1 and paths[0].is_dir():
        found = (_in_folder(paths[0], "train"), _in_folder(paths[0], "test"))
        return _dataset("gsm8k", *found, verifier=Number())
    if not paths:
        return _dataset("gsm8k", _download("train"), _download("test"), verifier=Number())
    if not held_out and "test" in paths[0].name.casefold():
        input, held_out = "", input
    known = _known(_file(input, number=True), domain, least)
    return _dataset("gsm8k", known, _file(held_out, number=True), verifier=Number())


def custom(input: str = "", held_out: str = "", *, domain: str = "", least: int = LEAST) -> Dataset:
    """Anybody's questions. Answers that are numbers are compared as numbers, others as texts.

    Args:
        domain: The one that will be used: of its questions at least so many are held out, where there are twice as many.
        least: What a gate needs.
    """
    if not input and not held_out:
        raise InputError("the data set 'custom' needs a file of questions: --input FILE")
    outside = _file(held_out)
    inside = _file(input) if outside else _known(_file(input), domain, least)
    return _dataset("custom", inside, outside, verifier=Exact())


class DatasetLoader:
    """Loads a data set by name, as programs written for the ACE offline trainer do."""

    def __init__(self, dataset_name: str = "gsm8k") -> None:
        if dataset_name not in ("gsm8k", "custom"):
            raise InputError(f"no data set {dataset_name!r} of questions; there are 'gsm8k' and 'custom'")
        self.dataset_name = dataset_name

    def load_from_json(self, path: str | Path, num_examples: int | None = None) -> list[Task]:
        """The first questions of a file, all of them for training: who names a file has decided what it is for."""
        found = _file(str(path), number=self.dataset_name == "gsm8k")
        tasks = (replace(question.task, split=Split.TRAIN) for question in _unique(found))
        return list(tasks)[:num_examples]

    def load(self, split: str = "train", num_examples: int | None = None, *, input: str = "") -> list[Task]:
        """The first questions of a split. `test` and `held_out` are one."""
        wanted = split_named(split)
        dataset = (gsm8k if self.dataset_name == "gsm8k" else custom)(input)
        return list(dataset.split(wanted))[:num_examples]


def split_named(name: str) -> Split:
    """The split that users call `train`, `validation`, `test` or `held_out`."""
    if name.casefold() not in SPLITS:
        raise InputError(f"there is no split {name!r}; there are train, validation and held_out, which is also called test")
    return SPLITS[name.casefold()]


def _dataset(name: str, open_: Sequence[_Question], held_out: Sequence[_Question], *, verifier: Verifier) -> Dataset:
    """Put every question into its split. Equal questions are one, and none is on both sides of the fence."""
    shares = {**SHARES, Split.HELD_OUT: 0} if held_out else SHARES
    placed = [replace(question, split=question.split or share(question.content, shares)) for question in _unique(open_)]
    placed += [replace(question, split=Split.HELD_OUT) for question in _unique(held_out)]
    _refuse_leaks(placed)
    tasks = [replace(question.task, split=question.split or Split.TRAIN) for question in placed]
    _refuse_same_ids(placed)
    return Dataset(name=name, tasks=tuple(tasks), verifier=verifier)


def _known(found: list[_Question], domain: str, least: int) -> list[_Question]:
    """With a split for those that name none, where it takes more than a share to come to what a gate needs."""
    own = {question.content for question in found if domain in ("", question.task.domain) and question.split is None}
    splits = enough(own, least)
    return [replace(question, split=question.split or splits.get(question.content)) for question in found]


def enough(contents: Collection[str], least: int = LEAST) -> Mapping[str, Split]:
    """A split for each, of which so many are held out; nothing where the usual shares hold out as many, or half are fewer.

    As in `share` the hash decides: the questions that it puts nearest to being held out are held out too.
    """
    usual = [share(text, SHARES) for text in contents]
    if usual.count(Split.HELD_OUT) >= least or len(usual) < 2 * least:
        return {}
    ordered = sorted(contents, key=lambda text: (_place(text) % sum(SHARES.values()), _place(text)), reverse=True)
    rest = len(ordered) - least
    validation = least + rest * SHARES[Split.VALIDATION] // (SHARES[Split.TRAIN] + SHARES[Split.VALIDATION])
    of = (*[Split.HELD_OUT] * least, *[Split.VALIDATION] * (validation - least), *[Split.TRAIN] * (len(ordered) - validation))
    return dict(zip(ordered, of, strict=True))


def _place(text: str) -> int:
    # The "0" was a seed once; without it every file would be split anew.
    return int.from_bytes(hashlib.sha256(f"0\n{text}".encode()).digest()[:8])


def share(text: str, shares: Mapping[Split, int]) -> Split:
    """By the content's hash alone: the same question is in the same split, whatever else the file holds."""
    at = _place(text) % sum(shares.values())
    for split, share in shares.items():
        if at < share:
            return split
        at -= share
    return Split.TRAIN


def _unique(found: Sequence[_Question]) -> Iterator[_Question]:
    """Each question of a domain and a split once, with a warning."""
    seen: dict[tuple[str, str, Split | None], _Question] = {}
    for question in found:
        first = seen.setdefault((question.content, question.task.domain, question.split), question)
        if first is question:
            yield question
        else:
            same = "" if first.task.answer == question.task.answer else ", with another answer"
            log.warning("%s: this question stands at %s already%s; it is left out", question.where, first.where, same)


def _refuse_leaks(placed: Sequence[_Question]) -> None:
    bad = rows.Complaints("a question must not be in two splits, or the evaluation would examine what was learned")
    first: dict[str, _Question] = {}
    for question in placed:
        before = first.setdefault(question.content, question)
        if before.split is not question.split:
            bad.add(question.where, f"{question.split} question is in {before.split} at {before.where}; remove one")
    bad.check()


def _refuse_same_ids(placed: Sequence[_Question]) -> None:
    bad = rows.Complaints("ids must be different")
    first: dict[str, _Question] = {}
    for question in placed:
        before = first.setdefault(question.task.id, question)
        if before is not question:
            bad.add(question.where, f"the id {question.task.id!r} stands at {before.where} already")
    bad.check()


def _file(path: str, *, number: bool = False) -> list[_Question]:
    """The questions in a file; none when there is no path. `number` says that every answer must hold one."""
    if not path:
        return []
    bad = rows.Complaints(f"{path} holds rows that cannot be used")
    found = [question for row in rows.read(path, bad) if (question := _question(row, number, bad)) is not None]
    for what, lacking in (("split", [q.split is None for q in found]), ("cluster", [not q.task.cluster for q in found])):
        if not all(lacking):
            for question in compress(found, lacking):
                bad.add(question.where, f"no {what}, though other rows have one")
    bad.check()
    if not found:
        raise InputError(f"{path} holds no questions: it is empty")
    return found


def _question(row: rows.FileRow, number: bool, bad: rows.Complaints) -> _Question | None:
    """The row's question, or everything that is wrong with it."""
    value = row.value
    question, answer = value.get("question"), value.get("answer")
    domain, split, name = value.get("domain", "general"), value.get("split"), value.get("id")
    cluster = value.get("cluster")
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = repr(answer)
    wrong = [
        f"no {what}" if text is None else f"the {what} is {'empty' if isinstance(text, str) else 'no text'}"
        for what, text in (("question", question), ("answer", answer), ("domain", domain))
        if not isinstance(text, str) or not text.strip()
    ]
    if split is not None and str(split).casefold() not in SPLITS:
        wrong.append(f"there is no split {split!r} (there are train, validation and test)")
    wrong += [
        f"the {what} is {given!r} and not a text or a number"
        for what, given in (("id", name), ("cluster", cluster))
        if given is not None and (not isinstance(given, str | int) or isinstance(given, bool) or given == "")
    ]
    if number and isinstance(answer, str) and not _ends_in_number(answer):
        wrong.append("the answer does not end in '#### number'")
    if wrong:
        bad.add(row.where, ", ".join(wrong))
        return None
    made = hashlib.sha256(f"{domain}\n{question}".encode()).hexdigest()[:12]
    task = Task(
        id=str(name) if name is not None else made,
        question=str(question),
        answer=str(answer),
        domain=str(domain),
        cluster="" if cluster is None else str(cluster),
    )
    return _Question(row.where, task, None if split is None else SPLITS[str(split).casefold()])


def _ends_in_number(answer: str) -> bool:
    return "####" in answer and first_number(answer.rpartition("####")[2]) is not None


def _in_folder(folder: Path, name: str) -> list[_Question]:
    for path in (folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz"):
        if path.exists():
            return _file(str(path), number=True)
    raise InputError(f"{folder} holds no {name}.jsonl or {name}.jsonl.gz; name the file itself")


def _download(split: str) -> list[_Question]:
    """GSM8K's own split, through the library that also keeps it for the next time."""
    local = "give its files instead: --input FOLDER, with train.jsonl and test.jsonl in it"
    try:
        from datasets import load_dataset
    except ModuleNotFoundError:
        raise MissingExtra(f"downloading gsm8k needs a package: pip install 'journeyman[datasets]'; or {local}") from None
    try:
        downloaded: Iterable[Mapping[str, Any]] = load_dataset(_DOWNLOADED, "main", split=split)
    except Exception as error:  # noqa: BLE001 - the boundary: the library raises what its own libraries raise
        first = next(iter(str(error).splitlines()), "")
        raise InputError(f"{_DOWNLOADED} could not be downloaded ({type(error).__name__}: {first}); {local}") from None
    bad = rows.Complaints(f"{_DOWNLOADED} holds rows that cannot be used")
    numbered = (rows.FileRow(f"{_DOWNLOADED}/{split}:{n}", dict(row)) for n, row in enumerate(downloaded, start=1))
    found = [question for row in numbered if (question := _question(row, True, bad)) is not None]
    bad.check()
    return found
