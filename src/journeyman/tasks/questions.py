"""Questions with a known answer: GSM8K in its own form, and anybody's own.

A row is `{"question": …, "answer": …}`, in JSON lines, one JSON list or CSV, gzipped or not, or in Parquet. The two columns may
have other names: those of Hugging Face, Inspect and OpenAI are known, and any can be said. It may also name its `domain`, `id`,
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
from journeyman.core.format import counted
from journeyman.core.task import Split, Task, content
from journeyman.tasks import rows
from journeyman.tasks.answers import Exact, Number, first_number
from journeyman.tasks.base import Dataset, Verifier

log = logging.getLogger(__name__)

Values = Iterable[Mapping[str, Any]]
"""Rows in memory: a list of mappings, or a DataFrame of pandas."""
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

_NAMED = 5
"""So many questions that stand twice are named, and of those with another answer as many."""
LEAST = 30
"""Held-out questions that a gate needs, unless it is told otherwise."""

_DOWNLOADED = "openai/gsm8k"
LONGEST = 4_000_000
"""Characters of a question: about a million tokens, which hardly a model reads. A longer one is a file in the wrong column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionColumns:
    """Which columns of a file are what; empty for what their names tell."""

    question: str = ""
    answer: str = ""
    domain: str = ""


_QUESTIONS = ("question", "input", "prompt", "query", "problem", "instruction", "user", "text", "q")
_ANSWERS = (
    "answer", "target", "completion", "response", "output", "ideal", "expected", "expected_output", "expected_answer",
    "ground_truth", "reference", "solution", "final_answer", "label", "a",
)  # fmt: skip
_CHAT = "messages"
"""A conversation whose last word is the answer."""


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


def custom(
    input: "str | Values" = "",
    held_out: "str | Values" = "",
    *,
    domain: str = "",
    least: int = LEAST,
    columns: QuestionColumns = QuestionColumns(),
) -> Dataset:
    """Anybody's questions. Answers that are numbers are compared as numbers, others as texts.

    Args:
        input: A file, or rows in memory: mappings, or a DataFrame.
        domain: The one that will be used: of its questions at least so many are held out, where there are twice as many.
        least: What a gate needs.
    """
    if _is_none(input) and _is_none(held_out):
        raise InputError("the data set 'custom' needs a file of questions: --input FILE")
    outside = _file(held_out, columns=columns)
    inside = _file(input, columns=columns)
    inside = inside if outside else _known(inside, domain, least)
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
    """Each question of a domain and a split once, with a warning that names the first of those that are left out."""
    seen: dict[tuple[str, str, Split | None], _Question] = {}
    twice = differing = 0
    for question in found:
        first = seen.setdefault((question.content, question.task.domain, question.split), question)
        if first is question:
            yield question
        else:
            twice += 1
            differing += (other := first.task.answer != question.task.answer)
            if twice <= _NAMED or (other and differing <= _NAMED):
                same = ", with another answer" if other else ""
                log.warning("%s: this question stands at %s already%s; it is left out", question.where, first.where, same)
    if twice > _NAMED:
        log.warning("in all %s stand there already and are left out, %d of them with another answer",
                    counted(twice, "question"), differing)  # fmt: skip


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


def guessed(path: str) -> str:
    """Which data set a file of questions is: `gsm8k` where each answer ends as there, `humaneval` or `mbpp` where there are
    tests, `bfcl` where functions may be called, else `custom`. What is wrong with it is said by who reads it.

    Raises:
        InputError: It cannot be read at all.
    """
    if Path(path).is_dir():
        return "bfcl" if next(Path(path).glob("BFCL_v*"), None) else "gsm8k"
    found = [row.value for row in rows.read(path, rows.Complaints(""))]
    if any({"test", "entry_point"} <= row.keys() for row in found):
        return "humaneval"
    if any("test_list" in row for row in found):
        return "mbpp"
    if any({"function", "question"} <= row.keys() and isinstance(row["question"], list) for row in found):
        return "bfcl"
    if any({"tree", "statement"} <= row.keys() for row in found):
        return "repository"
    answers = [row.get("answer") for row in found]
    return "gsm8k" if found and all(isinstance(each, str) and _ends_in_number(each) for each in answers) else "custom"


def _is_none(input: "str | Values") -> bool:
    # A DataFrame does not say whether it is empty by being asked whether it is true.
    return isinstance(input, str) and not input


def _file(path: "str | Values", *, number: bool = False, columns: QuestionColumns = QuestionColumns()) -> list[_Question]:
    """The questions in a file; none when there is no path. `number` says that every answer must hold one."""
    if _is_none(path):
        return []
    name = path if isinstance(path, str) else "the data"
    bad = rows.Complaints(f"{name} holds rows that cannot be used")
    listed = list(rows.read(path, bad) if isinstance(path, str) else rows.of_values(path, bad))
    if listed:
        columns = _meant(name, list(dict.fromkeys(column for row in listed for column in row.value)), columns)
    found = [question for row in listed if (question := _question(row, number, bad, columns)) is not None]
    for what, lacking in (("split", [q.split is None for q in found]), ("cluster", [not q.task.cluster for q in found])):
        if not all(lacking):
            for question in compress(found, lacking):
                bad.add(question.where, f"no {what}, though other rows have one")
    bad.check()
    if not found:
        raise InputError(f"{name} holds no questions: it is empty")
    return found


def _meant(name: str, there: Sequence[str], said: QuestionColumns) -> QuestionColumns:
    """Which columns are what: as somebody said, else the one whose name tells it.

    Raises:
        InputError: One that was named is not there, or the names do not tell which it is.
    """
    seen = f"there are the columns {', '.join(there)}"
    for option, column in (("question", said.question), ("answer", said.answer), ("domain-column", said.domain)):
        if column and column not in there:
            raise InputError(f"{name} has no column {column!r}, which --{option} names; {seen}")
    if _CHAT in there and not said.question and not said.answer and not {"question", "answer"} & set(there):
        return QuestionColumns(question=_CHAT, answer=_CHAT, domain=said.domain or "domain")
    found: dict[str, str] = {}
    for what, names, column in (("question", _QUESTIONS, said.question), ("answer", _ANSWERS, said.answer)):
        taken = {said.question, said.answer, *found.values()}
        near = [each for each in there if _spelled(each) in names and each not in taken]
        # What has the very name is it, whatever stands beside it.
        exact = [each for each in near if _spelled(each) == names[0]]
        candidates = [column] if column else exact or near
        if len(candidates) != 1:
            which = "none is plainly" if not candidates else f"{' and '.join(candidates)} could each be"
            raise InputError(f"{name}: {which} the {what}; say which one is: --{what} COLUMN ({seen})")
        (found[what],) = candidates
    return QuestionColumns(**found, domain=said.domain or "domain")


def _spelled(column: str) -> str:
    return column.strip().casefold().replace(" ", "_").replace("-", "_")


def _text_of(told: Any, *, of_answer: bool = False) -> Any:
    """What a cell says: a text or a number as it is; the only one of a list; of chat messages the last word of the one who
    answers, or what was said to him before."""
    if isinstance(told, list) and told and all(isinstance(each, Mapping) and "content" in each for each in told):
        ends = told[-1].get("role") == "assistant"
        if of_answer:
            return told[-1]["content"] if ends else None
        before = told[:-1] if ends else told
        return "\n\n".join(str(each["content"]) for each in before if each["content"])
    if isinstance(told, list) and len(told) == 1:
        told = told[0]
    return repr(told) if of_answer and isinstance(told, int | float) and not isinstance(told, bool) else told


def _with_choices(question: Any, choices: Any) -> Any:
    """Inspect's multiple choice: the answer is a letter."""
    if not isinstance(question, str) or not isinstance(choices, list) or not 0 < len(choices) <= 26:
        return question
    return "\n".join([question, *(f"{chr(65 + place)}) {choice}" for place, choice in enumerate(choices))])


def _question(
    row: rows.FileRow,
    number: bool,
    bad: rows.Complaints,
    columns: QuestionColumns = QuestionColumns(question="question", answer="answer"),
) -> _Question | None:
    """The row's question, or everything that is wrong with it."""
    value = row.value
    question = _with_choices(_text_of(value.get(columns.question)), value.get("choices"))
    answer = _text_of(value.get(columns.answer), of_answer=True)
    domain, split, name = value.get(columns.domain or "domain", "general"), value.get("split"), value.get("id")
    cluster = value.get("cluster")
    told = ((columns.question, question), (columns.answer, answer), (columns.domain or "domain", domain))
    wrong = [
        f"no {what}" if text is None else f"the {what} is {'empty' if isinstance(text, str) else 'no text'}"
        for what, text in told
        if not isinstance(text, str) or not text.strip()
    ]
    if isinstance(question, str) and len(question) > LONGEST:
        wrong.append(f"the {columns.question} has {len(question):,} characters, and no model reads more than {LONGEST:,}")
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
