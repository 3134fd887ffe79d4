"""One verdict on an attempt, and which of many verdicts decides."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class Source(StrEnum):
    """Whose word a verdict is. What stands first goes before what stands below it: see `decide`."""

    TRUTH = "ground truth"
    """What turned out later: the refund that was paid, the test that failed in production."""
    PERSON = "person"
    """Somebody with a name, who looked at it."""
    CHECK = "check"
    """A verifier or the checks of a task: tests, the right answer, a schema."""
    USER = "end user"
    """Whoever was served: a thumb, a rating."""
    JUDGE = "judge"
    """A model's opinion."""
    HEURISTIC = "heuristic"
    """What looks at form, tools and ends, and knows nothing of what was asked."""
    LABELER = "auto-labeler"
    """What follows from people's labels for what nobody labelled."""


_NAMES: dict[Source, frozenset[str]] = {
    Source.TRUTH: frozenset({"ground_truth", "outcome"}),
    Source.PERSON: frozenset({"person", "human", "annotation"}),
    Source.CHECK: frozenset({"answer", "checks", "desk", "desk_fields", "unit_tests", "success", "tau_bench", "tau2_bench"}),
    Source.USER: frozenset({"end_user", "user", "user_feedback", "user_rating", "user_score", "thumbs", "rating", "stars"}),
    Source.JUDGE: frozenset({"judge", "llm_judge"}),
    Source.HEURISTIC: frozenset(
        {
            "code_execution", "syntax_validation", "tool_success", "task_completion", "efficiency", "format_compliance",
            "development", "learned", "reading", "survival",
        }
    ),
}  # fmt: skip
"""Names that say by themselves whose word they are; stores and files hold them."""
_BY_NAME = {name: source for source, names in _NAMES.items() for name in names}


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")


FORM = frozenset({"syntax_validation", "format_compliance", "efficiency"})
"""Heuristics that look at the form or the price of an answer, and decide nothing by themselves."""
_WHOLE = frozenset({Source.TRUTH, Source.PERSON, Source.CHECK})
"""What must be right as a whole: half of the checks passed is no success."""
HALF = 0.5
"""The least mean of a good attempt for those who only have an opinion of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """One named verdict."""

    name: str
    value: float | None
    """0 to 1, or `None` when the verifier could not tell."""
    evidence: str = ""
    """What the verifier found, as an API's error would say it. A reflector reads this."""
    weight: float = 1.0
    source: Source | None = None
    """Whose word it is; `None` where the name tells."""

    @property
    def told_by(self) -> Source:
        """Whose word it is. Where neither the source nor the name says so, somebody's check."""
        return self.source or _BY_NAME.get(_plain(self.name), Source.CHECK)

    @property
    def is_told(self) -> bool:
        """Whether the source or the name says whose word it is."""
        return self.source is not None or _plain(self.name) in _BY_NAME

    @property
    def decides(self) -> bool:
        """Whether it can decide."""
        return self.weight > 0 and not (self.told_by is Source.HEURISTIC and self.name in FORM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether an attempt was a good one, and by whose word."""

    good: bool | None
    """`None` where nobody knows."""
    value: float | None
    """The weighted mean of the rewards that decided, 0 to 1; unknown as soon as one of them is."""
    source: Source | None
    """Whose word decided, or could not be told."""
    reason: str
    """One sentence: who decided, what they found, and who says otherwise."""

    @property
    def worth(self) -> float | None:
        """The value as a number to learn from: `None` where nobody decided."""
        if self.good is None:
            return None
        return float(self.good) if self.value is None else self.value


def decide(rewards: Iterable[Reward], *, threshold: float = HALF) -> Verdict:
    """Was the attempt a good one? The one rule, for scores, sets of rows, learning and pages alike.

    Ground truth told later goes before a named person, that before a check or verifier, that before an end user, that before a
    judge, and that before heuristics. The first of these that said anything decides alone: what stands below it changes
    nothing, and is named where it says otherwise. A reward that should have told and could not leaves it open, unless another
    one of the same kind is 0: a checker that was down is not made up for by heuristics.

    Args:
        rewards: All that was said. What had nothing to measure does not belong among them; a weight of 0 counts for nothing.
        threshold: The least mean of a good attempt for those who have an opinion: users, judges, heuristics, and recorders who
            do not say by which check. For truth, people and checks all must be right.
    """
    known = [reward for reward in rewards if reward.weight > 0]
    by_source = [(source, [each for each in known if each.told_by is source]) for source in Source]
    found = [_of(source, said, threshold) for source, said in by_source if any(each.decides for each in said)]
    if not found:
        return Verdict(good=None, value=mean(known), source=None, reason="undecided: nobody says whether it was right")
    first, *rest = found
    others = [each.reason for each in rest if each.source in _HEARD and each.good is not None and each.good is not first.good]
    if first.good is None or not others:
        return first
    return replace(first, reason=f"{first.reason}; but {', and '.join(others)}")


_HEARD = frozenset({Source.PERSON, Source.CHECK, Source.USER, Source.JUDGE})
"""Those whose other opinion is news. Heuristics know nothing of what was asked."""


def _of(source: Source, said: Sequence[Reward], threshold: float) -> Verdict:
    """What the rewards of one source come to; some of them decide."""
    deciding = [each for each in said if each.decides]
    wrong = [each for each in deciding if each.value is not None and each.value < _least(source, each)]
    lost = [each for each in deciding if each.value is None]
    value = None if lost else mean_known(said)
    if not wrong and value is None:
        why = f"undecided: {_named(source, lost)} could not tell{_evidence(lost)}"
        return Verdict(good=None, value=None, source=source, reason=why)
    good = not wrong and value is not None and value >= threshold
    behind = wrong or deciding
    graded = f" ({value:.2f} of 1)" if value is not None and 0 < value < 1 else ""
    says = f"{_named(source, behind)} {'says' if len(behind) == 1 else 'say'} {'good' if good else 'bad'}"
    return Verdict(good=good, value=value, source=source, reason=f"{says}{graded}{'' if good else _evidence(behind)}")


def _least(source: Source, reward: Reward) -> float:
    """What a single reward must reach: all of it where it is known to be a check; something, where it may be a grade."""
    return 1.0 if source in _WHOLE and reward.is_told else 5e-324


def _evidence(said: Sequence[Reward]) -> str:
    """The first thing that was found, on one line."""
    found = next((" ".join(each.evidence.split()) for each in said if each.evidence), "")
    return f": {found if len(found) <= _EVIDENCE else found[: _EVIDENCE - 1] + '…'}" if found else ""


RECORDER = "recorder"
"""Who gave the label that a trace came with, where it does not say."""
_EVIDENCE = 160
_NAMED = 4


def _named(source: Source, said: Sequence[Reward]) -> str:
    """`the check answer`, `the person ada`."""
    names = list(dict.fromkeys(" ".join(each.name.split()) for each in said))
    shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    if names == [RECORDER] or source in (Source.TRUTH, Source.LABELER) or [_WHO.get(_who(name)) for name in names] == [source]:
        return f"the {RECORDER if names == [RECORDER] else source}"
    return f"the {source}{'s' if len(names) > 1 else ''} {shown}"


def source_of(who: str) -> Source:
    """Whose word a label is, by the name under which it was given: `ground-truth`, `end-user` and `auto-labeler` say that it is
    theirs, and any other name is a person's."""
    return _WHO.get(_who(who), Source.PERSON)


def source_named(name: str) -> Source | None:
    """The source that a word stands for, as people and programs write it: `ground truth`, `ground_truth`, `user`; `None` where
    it stands for none."""
    return _BY_WORD.get(_plain(name.strip()))


def _who(name: str) -> str:
    return name.strip().lower().replace("-", " ")


_BY_WORD = {_plain(source): source for source in Source} | _BY_NAME
_WHO = {_who(source): source for source in (Source.TRUTH, Source.USER, Source.LABELER)}


def label(good: bool, who: str) -> Reward:
    """Somebody's word on an attempt, as a verdict."""
    return Reward(name=who, value=float(good), source=source_of(who))


GUESSED = 0.2
"""The largest share of the weight that guesses have together where a verifier told."""
_LEARNED = "learned"


def is_guess(reward: Reward) -> bool:
    """Whether it says how an attempt looks to something that was taught: a learned reward, a judge, an auto-labeler."""
    return _plain(reward.name) == _LEARNED or reward.told_by in (Source.JUDGE, Source.LABELER)


def is_verified(reward: Reward) -> bool:
    """Whether truth, a person or a check told."""
    return reward.told_by in _WHOLE and reward.weight > 0 and reward.value is not None


def verified_first(rewards: Sequence[Reward]) -> tuple[Reward, ...]:
    """The rewards, with less weight for guesses where they would have more than a fifth of all of it beside a verifier.

    Whoever learns from the mean cannot win by pleasing a guess: what is verified as right scores .8 or more, what is verified
    as wrong .2 or less, and of two attempts with the same rewards the one that a verifier grades higher by more than a quarter
    scores higher. Guesses still order what a verifier finds alike. (Gao, Schulman and Hilton, "Scaling Laws for Reward Model
    Overoptimization", ICML 2023, is why.)
    """
    guessed = sum(each.weight for each in rewards if is_guess(each) and each.value is not None)
    told = sum(each.weight for each in rewards if is_verified(each) and not is_guess(each))
    most = told * GUESSED / (1 - GUESSED)
    if not told or guessed <= most:
        return tuple(rewards)
    return tuple(replace(each, weight=each.weight * most / guessed) if is_guess(each) else each for each in rewards)


def mean_known(rewards: Sequence[Reward]) -> float | None:
    """The weighted mean over the rewards that could tell; unknown when none of weight could."""
    return mean([reward for reward in rewards if reward.value is not None])


def mean(rewards: Sequence[Reward]) -> float | None:
    """The weighted mean. Unknown as soon as one reward is: half a verdict is none."""
    known = [(reward.value, reward.weight) for reward in rewards if reward.value is not None]
    weight = sum(part for _, part in known)
    if len(known) < len(rewards) or not weight:
        return None
    return sum(value * part for value, part in known) / weight
