"""Evidence in groups: what several people's traces say alike, before a model is asked to put it into words.

Three kinds come of traces. Calls that a tool refused, by what it said, with the call that it took afterwards; attempts at one
request of which one is known to be right and another to be wrong; and what a person says should have been answered. What a
customer says is no evidence of any of them. A fourth is a document, in which somebody says what was a mistake, or how it was
mended.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b

from journeyman.core.feedback import corrected_answer
from journeyman.core.playbook import FROM_DOCUMENT, BulletOrigin
from journeyman.core.reward import Source
from journeyman.tracing.evidence import AttemptEvidence, CallEvidence, faults_of, template

MEMBERS = 5
"""Members of a group that a reflector sees."""
TRACES = 50
"""Ids of traces that are kept with a bullet; of more the count tells."""

SHARED = 3
"""People who must have met the same before its words are told outside of the traces: what fewer met may be somebody's own."""

_TRANSIENT = re.compile(
    r"\b(?:5\d\d|429|time[ds]?[ -]?out|temporar\w*|unavailable|overloaded|rate limit\w*|try again"
    r"|connection (?:reset|refused))\b",
    re.IGNORECASE,
)


_QUOTED = re.compile(r"""["'`]([^"'`\n]{1,60})["'`]""")
_NEARLY = 0.8
_LONGEST = 300
"""Characters of a text that is told word by word."""


class GroupKind(StrEnum):
    """What kind of evidence it is."""

    REJECTED = "rejected"
    """A tool refused calls."""
    CONTRAST = "contrast"
    """Right and wrong attempts at one request did different things."""
    SAID = "said"
    """A person said what should have been answered."""
    DOCUMENT = "document"
    """Somebody wrote down what was a mistake, or how it was mended."""


ORIGINS: Mapping[GroupKind, BulletOrigin] = {
    GroupKind.REJECTED: BulletOrigin.ENVIRONMENT,
    GroupKind.CONTRAST: BulletOrigin.CONTRAST,
    GroupKind.SAID: BulletOrigin.PERSON,
    GroupKind.DOCUMENT: BulletOrigin.DOCUMENT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceMember:
    """One piece of it."""

    trace_id: str
    """Empty where it is a document."""
    principal: str
    said: str
    """What the tool said, or the person, or how the attempts differ; what it echoes of the customer's words is cut out."""
    words: tuple[str, ...] = ()
    """What the customer had said."""
    call: CallEvidence | None = None
    """The one that was refused."""
    accepted: CallEvidence | None = None
    """The next one of the same tool that was taken."""
    known: bool = True
    """Whether anybody said on whose behalf it was; else a session counts as a person, and whoever can open sessions is many."""
    question: str = ""
    """Of a person's correction, what was asked; `said` is what should have been answered."""

    @property
    def is_flake(self) -> bool:
        """Whether the very same call was taken when it was made again."""
        return self.call is not None and self.accepted is not None and self.call.written == self.accepted.written

    @property
    def changed(self) -> tuple[str, ...]:
        """The arguments that were changed before it was taken."""
        if self.call is None or self.accepted is None:
            return ()
        before, after = self.call.arguments or {}, self.accepted.arguments or {}
        return tuple(name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name))


@dataclass(frozen=True, kw_only=True)
class EvidenceGroup:
    """Evidence that says the same."""

    kind: GroupKind
    domain: str
    tool: str
    """Empty where it is about no tool."""
    argument: str
    """The one that it names, or that was changed most often before a call was taken; empty where there is none."""
    template: str
    """What was said, without what is of one case alone; of a document its id."""
    members: tuple[EvidenceMember, ...]
    """In an order that does not depend on that of the traces."""

    @cached_property
    def id(self) -> str:
        """Made of what it is about: traces that come later belong to the same group. Of a document it names it."""
        if self.kind is GroupKind.DOCUMENT:
            return FROM_DOCUMENT + self.template
        said = "\x1f".join((self.kind, self.domain, self.tool, self.template))
        return "e-" + blake2b(said.encode(errors="surrogatepass"), digest_size=8).hexdigest()

    @property
    def about(self) -> str:
        """The one setting that a rule drawn from it fixes; empty where it names none."""
        return f"{self.tool}.{self.argument}" if self.tool and self.argument else ""

    @cached_property
    def principals(self) -> frozenset[str]:
        return frozenset(member.principal for member in self.members)

    @property
    def is_shared(self) -> bool:
        """Whether so many people met it that its words are nobody's own."""
        return len(self.principals) >= SHARED

    @cached_property
    def known_principals(self) -> frozenset[str]:
        """Those of whom somebody said that they are people."""
        return frozenset(member.principal for member in self.members if member.known)

    @cached_property
    def traces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(member.trace_id for member in self.members if member.trace_id))

    @cached_property
    def repairs(self) -> Mapping[str, int]:
        """How often each argument was changed before the call was taken."""
        return Counter(name for member in self.members if not member.is_flake for name in member.changed)

    @cached_property
    def flakes(self) -> int:
        """How often the same call was taken when it was made again."""
        return sum(member.is_flake for member in self.members)

    @property
    def is_flake(self) -> bool:
        """Whether it tells of a tool that was down, and not of a call that was wrong: then there is no rule in it."""
        if self.kind is not GroupKind.REJECTED:
            return False
        mended = sum(bool(member.changed) for member in self.members)
        return self.flakes > mended or (not mended and _TRANSIENT.search(self.template) is not None)

    @cached_property
    def digest(self) -> str:
        """Of all that is in it: with one more trace it is another."""
        told = [(member.trace_id, member.call.id if member.call else "", member.said) for member in self.members]
        return blake2b(repr((self.id, sorted(told))).encode(errors="surrogatepass"), digest_size=12).hexdigest()

    def constants(self, least: int) -> tuple[str, ...]:
        """What stands in quotation marks in nearly all of what was said, to several people: the environment's own words."""
        behind: defaultdict[str, set[str]] = defaultdict(set)
        times: Counter[str] = Counter()
        for member in self.members:
            for text in set(_QUOTED.findall(member.said)):
                behind[text].add(member.principal)
                times[text] += 1
        nearly = _NEARLY * len(self.members)
        return tuple(sorted(text for text, people in behind.items() if len(people) >= least and times[text] >= nearly))

    def wording(self, least: int = SHARED) -> str:
        """What was said: word by word where nearly all were told the same, else without what is of one case alone."""
        by_text: defaultdict[str, list[str]] = defaultdict(list)
        for member in self.members:
            by_text[" ".join(member.said.split())].append(member.principal)
        text, people = max(by_text.items(), key=lambda pair: len(pair[1]))
        alike = len(people) >= _NEARLY * len(self.members) and len(set(people)) >= least
        return text if alike and len(text) <= _LONGEST else self.template

    def shown(self, most: int | None = MEMBERS) -> tuple[EvidenceMember, ...]:
        """Members for a reflector, each of another principal, in an order that nobody who wrote one of them could foresee."""

        def drawn(member: EvidenceMember) -> bytes:
            said = f"{self.digest} {member.principal} {member.trace_id} {member.said}"
            return blake2b(said.encode(errors="surrogatepass"), digest_size=8).digest()

        first: dict[str, EvidenceMember] = {}
        for member in sorted(self.members, key=drawn):
            first.setdefault(member.principal, member)
        return tuple(first.values())[:most]


Cut = Callable[[str, Sequence[str]], str]
"""A tool's answer without what it echoes of the customer's words."""


def evidence_groups(
    attempts: Sequence[AttemptEvidence], *, cut: Cut, twins: Sequence[int] | None = None
) -> list[EvidenceGroup]:
    """All groups, those that most people met first.

    Args:
        cut: Takes out of a tool's answer what it echoes of the customer's words.
        twins: For each attempt the number of its group of attempts at the same request; without it there are no contrasts.
    """
    found: defaultdict[tuple[GroupKind, str, str, str], list[EvidenceMember]] = defaultdict(list)
    named: defaultdict[tuple[GroupKind, str, str, str], Counter[str]] = defaultdict(Counter)
    for attempt in attempts:
        domain = attempt.trace.domain
        for member, argument in _rejections(attempt, cut):
            assert member.call is not None
            key = GroupKind.REJECTED, domain, member.call.tool, template(member.said, member.call.arguments)
            found[key].append(member)
            named[key].update([argument] if argument else member.changed)
        for member in _corrections(attempt):
            found[GroupKind.SAID, domain, "", ""].append(member)
    if twins is not None:
        for domain, tool, member in _contrasts(attempts, twins):
            found[GroupKind.CONTRAST, domain, tool, template(member.said)].append(member)
    groups = [_group(key, members, named[key]) for key, members in found.items()]
    return sorted(groups, key=lambda group: (-len(group.principals), -len(group.members), group.id))


def _group(key: tuple[GroupKind, str, str, str], members: list[EvidenceMember], named: Mapping[str, int]) -> EvidenceGroup:
    kind, domain, tool, said = key
    # What stands before a colon may be of one case alone, as "mia_li_3668: unknown" is; then it is not in the template.
    told = [name for name in named if name in said or any(name in _arguments_of(member.call) for member in members)]
    argument = min(told, key=lambda name: (-named[name], name), default="")
    ordered = sorted(members, key=lambda member: (member.trace_id, member.call.place if member.call else 0, member.said))
    return EvidenceGroup(kind=kind, domain=domain, tool=tool, argument=argument, template=said, members=tuple(ordered))


def _arguments_of(call: CallEvidence | None) -> Collection[str]:
    """The names that a call's tool knows; where they are not recorded, those that were written."""
    if call is None:
        return ()
    return call.definition.arguments if call.definition is not None else call.arguments or ()


def _rejections(attempt: AttemptEvidence, cut: Cut) -> Iterator[tuple[EvidenceMember, str]]:
    """Each fault that a tool found, and the argument that it names."""
    for call in attempt.calls:
        if call.ok is not False or not call.answer.strip():
            continue
        accepted = attempt.accepted_after(call)
        for said, argument in faults_of(replace(call, answer=cut(call.answer, call.words))):
            yield (
                EvidenceMember(
                    trace_id=call.trace_id,
                    principal=call.principal,
                    known=attempt.principal_known,
                    said=said,
                    words=call.words,
                    call=call,
                    accepted=accepted,
                ),
                argument,
            )


def _corrections(attempt: AttemptEvidence) -> Iterator[EvidenceMember]:
    """What somebody with a name, or what turned out later, says should have been answered."""
    if (correction := corrected_answer(attempt.trace.rewards)) is not None:
        question = attempt.words[-1] if attempt.words else attempt.trace.query
        yield EvidenceMember(
            trace_id=attempt.trace.id,
            principal=attempt.principal,
            said=correction.evidence.strip(),
            words=attempt.words,
            question=question,
        )


_JUDGES_OF_CONTRAST = frozenset({Source.TRUTH, Source.PERSON, Source.CHECK})


def _contrasts(attempts: Sequence[AttemptEvidence], twins: Sequence[int]) -> Iterator[tuple[str, str, EvidenceMember]]:
    """For each wrong attempt with a right twin, what it did that no right one did, and what all right ones did and it did not
    do."""
    together: defaultdict[int, list[AttemptEvidence]] = defaultdict(list)
    for attempt, twin in zip(attempts, twins, strict=True):
        together[twin].append(attempt)
    for group in together.values():
        verdicts = [attempt.trace.verdict for attempt in group]
        known = [(attempt, verdict.good) for attempt, verdict in zip(group, verdicts, strict=True)
                 if verdict.source in _JUDGES_OF_CONTRAST]  # fmt: skip
        right = [_tools(attempt) for attempt, good in known if good]
        if not right:
            continue
        some, every = frozenset.union(*right), frozenset.intersection(*right)
        for attempt, good in known:
            if good is False:
                yield from _differences(attempt, some, every)


def _tools(attempt: AttemptEvidence) -> frozenset[str]:
    return frozenset(call.tool for call in attempt.calls if call.ok)


def _differences(
    attempt: AttemptEvidence, some: frozenset[str], every: frozenset[str]
) -> Iterator[tuple[str, str, EvidenceMember]]:
    used = _tools(attempt)
    told = [(tool, "was used, and by no right attempt at the same request") for tool in sorted(used - some)]
    told += [(tool, "was not used, though every right attempt at the same request did") for tool in sorted(every - used)]
    for tool, said in told:
        member = EvidenceMember(
            trace_id=attempt.trace.id, principal=attempt.principal, said=f"{tool} {said}", words=attempt.words
        )
        yield attempt.trace.domain, tool, member
