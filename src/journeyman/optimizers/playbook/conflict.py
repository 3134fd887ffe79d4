"""Rules that cannot both be right, told from their words alone, and which of them evidence prefers.

A rule is read as the things it speaks of and a sign, for or against. "Never" and its kin flip the sign, and so do opposites
("after" is "before", flipped) and the verdict *harmful* on a text that forbids nothing itself. Two rules contradict each other
when one speaks of everything the other does, they are alike otherwise, and their signs differ. It is made for precision: who
loses a conflict is not shown, so a doubtful pair is none.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Protocol

from journeyman.core.playbook import Bullet, InsightVerdict, Playbook, normalised


class Rule(Protocol):
    """What a bullet and an insight have in common."""

    @property
    def content(self) -> str: ...
    @property
    def section(self) -> str: ...
    @property
    def domain(self) -> str: ...
    @property
    def about(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Stance:
    """What a rule speaks of, and whether it is for it."""

    words: frozenset[str]
    order: tuple[str, ...]
    sign: int
    directed: bool
    """Whether the order of the words carries the meaning ("a instead of b")."""


def contradicts(one: Rule, other: Rule) -> bool:
    """Whether two rules of one domain cannot both be followed.

    Either their signs differ on otherwise alike text, or they fix the same setting (`about`) in different ways.
    """
    if one.domain != other.domain:
        return False
    first, second = stance(one), stance(other)
    if _opposed(first, second) and _literals(one.content).exact == _literals(other.content).exact:
        return True
    if not one.about or one.about != other.about:
        return False
    alike = (first.words, first.sign) == (second.words, second.sign) and not _turned(first, second)
    return not alike and normalised(one.content) != normalised(other.content)


def distinct(one: Rule, other: Rule) -> bool:
    """Whether two near texts still say different things: they contradict, or differ in a number, a quotation or a name."""
    if contradicts(one, other) or (one.about and other.about and one.about != other.about):
        return True
    first, second = _literals(one.content), _literals(other.content)
    if first.exact != second.exact:
        return True
    return bool(first.names - second.words) and bool(second.names - first.words)


def conflicts(playbook: Playbook) -> tuple[tuple[str, str], ...]:
    """The ids of every two active bullets that contradict each other, the older one first."""
    domains: defaultdict[str, list[Bullet]] = defaultdict(list)
    for bullet in playbook.active:
        domains[bullet.domain].append(bullet)
    return tuple(pair for bullets in domains.values() for pair in Contradictions(bullets).pairs())


def winner(older: Bullet, newer: Bullet) -> Bullet:
    """Which of two that contradict is followed: a locked one, then by helpful minus harmful, by support, and by age."""
    return max((older, newer), key=_strength)


def usable(playbook: Playbook, domain: str) -> tuple[Bullet, ...]:
    """The active bullets of a domain without the losers of conflicts, in the order of the playbook.

    Who loses only to a loser is used. Losers stay in the playbook: later evidence may turn the conflict round.
    """
    bullets = playbook.of(domain)
    withheld = Contradictions(bullets).losers()
    return tuple(bullet for bullet in bullets if bullet.id not in withheld)


def _strength(bullet: Bullet) -> tuple[bool, int, int]:
    return bullet.locked, bullet.helpful - bullet.harmful, bullet.support


_ALIKE = 0.7
"""Of the words of two rules together, how many both must have."""


def _opposed(one: Stance, other: Stance) -> bool:
    if not (one.words <= other.words or other.words <= one.words):
        return False
    if not one.words or len(one.words & other.words) < _ALIKE * len(one.words | other.words):
        return False
    return (one.sign != other.sign) != _turned(one, other)


def _turned(one: Stance, other: Stance) -> bool:
    """Whether they say the same words the other way round, in a way that matters."""
    return one.directed and other.directed and one.words == other.words and one.order != other.order


class Contradictions:
    """Which bullets of one domain contradict each other. Follows them from revision to revision, reading what changed alone.

    Only pairs about one thing, or with a rare word in common, are compared. Texts that share 70 % of their words share one of
    their rarest 30 % (and one more): the prefix filter of Chaudhuri et al., "A primitive operator for similarity joins" (2006).
    """

    def __init__(self, bullets: Sequence[Bullet] = ()) -> None:
        self._forget()
        self.follow(bullets)

    def _forget(self) -> None:
        self._held: dict[str, Bullet] = {}
        self._counted = 0
        self._frequency: Counter[str] = Counter()
        self._groups: defaultdict[_Key, set[str]] = defaultdict(set)
        self._against: dict[str, set[str]] = {}

    def follow(self, bullets: Sequence[Bullet]) -> None:
        """From now on it speaks of these, in their order."""
        if len(bullets) > 2 * self._counted:
            # Any order of the words finds the same pairs as long as it stays; counting anew at times keeps rare words rare.
            self._forget()
            self._counted = len(bullets)
            self._frequency.update(word for bullet in bullets for word in stance(bullet).words)
        before, self._held = self._held, {bullet.id: bullet for bullet in bullets}
        for id in before.keys() - self._held.keys():
            self._drop(before[id])
        for bullet in bullets:
            old = before.get(bullet.id)
            if old is bullet or (old is not None and _said(old) == _said(bullet)):
                continue
            if old is not None:
                self._drop(old)
            self._take(bullet)

    def pairs(self) -> list[tuple[str, str]]:
        """The ids of every two that contradict each other, the older one first."""
        place = {id: place for place, id in enumerate(self._held)}
        found = [(one, other) for one, rivals in self._against.items() for other in rivals if place[one] < place[other]]
        return sorted(found, key=lambda pair: (place[pair[0]], place[pair[1]]))

    def losers(self) -> set[str]:
        """Those that are not followed. Who loses only to a loser is."""
        withheld: set[str] = set()
        # Sorting is stable, so of equals the older comes first.
        for bullet in sorted((self._held[id] for id in self._held if id in self._against), key=_strength, reverse=True):
            if bullet.id not in withheld:
                withheld |= self._against[bullet.id]
        return withheld

    def _take(self, bullet: Bullet) -> None:
        joined, met = self._keys(bullet)
        for id in set().union(*(self._groups[key] for key in met if key in self._groups)):
            if contradicts(self._held[id], bullet):
                self._against.setdefault(id, set()).add(bullet.id)
                self._against.setdefault(bullet.id, set()).add(id)
        for key in joined:
            self._groups[key].add(bullet.id)

    def _drop(self, bullet: Bullet) -> None:
        for key in self._keys(bullet)[0]:
            self._groups[key].discard(bullet.id)
        for id in self._against.pop(bullet.id, ()):
            self._against[id].discard(bullet.id)
            if not self._against[id]:
                del self._against[id]

    def _keys(self, bullet: Bullet) -> tuple[list["_Key"], list["_Key"]]:
        """The groups that the bullet is in, and those whose members may contradict it."""
        found = stance(bullet)
        words = sorted(found.words, key=lambda word: (self._frequency[word], word))
        rare = words[: len(words) - ceil(_ALIKE * len(words)) + 1]
        about: list[_Key] = [(bullet.about, "about")] if bullet.about else []
        directed: list[_Key] = [(word, "directed") for word in rare] if found.directed else []
        return (
            [*about, *directed, *((word, found.sign) for word in rare)],
            [*about, *directed, *((word, -found.sign) for word in rare)],
        )


_Key = tuple[str, int | str]


def _said(bullet: Bullet) -> tuple[str, str, str]:
    """All that decides which bullets it contradicts."""
    return bullet.content, bullet.section, bullet.about


def stance(rule: Rule) -> Stance:
    """What a rule speaks of, and whether it is for it."""
    return _stance(rule.content, rule.section == InsightVerdict.HARMFUL)


@lru_cache(maxsize=1 << 17)
def _stance(content: str, harmful: bool) -> Stance:
    clauses = _clauses(content)
    main = next((number for number, (words, heading) in enumerate(clauses) if not heading and words[0] not in _OPENERS), -1)
    sign, order, directed = 1, [], False
    for number, (words, _) in enumerate(clauses):
        for before, word in zip(("", *words), words, strict=False):
            directed = directed or word in _DIRECTIONS
            if number == main and (word in _AGAINST or (word == "not" and (before in _AUXILIARIES or not before))):
                sign = -sign
            elif word not in _STOP:
                stem = _stem(word)
                sign = -sign if stem in _OPPOSITES else sign
                order.append(_OPPOSITES.get(stem, stem))
    if harmful and sign > 0:
        sign = -1
    return Stance(frozenset(order), tuple(order), sign, directed)


def _clauses(content: str) -> list[tuple[list[str], bool]]:
    """The words of each clause, and whether it only says what the next is about ("Dates: …")."""
    text = content.casefold().replace("’", "'")
    text = re.sub(r"\b(can|won|shan)'?t\b|\bcannot\b", "can not", text)
    text = re.sub(r"n't\b|\b(?<=do)nt\b", " not", text)
    parts = re.split(r"([,;:.!?](?=\s|$)|\s[-–—]\s)", text)
    pairs = zip(parts[::2], [*parts[1::2], ""], strict=True)
    found = [(re.findall(r"[^\W_]+(?:[._:/'-][^\W_]+)*", part), mark == ":") for part, mark in pairs]
    return [(words, heading) for words, heading in found if words]


def _stem(word: str) -> str:
    """Crude on purpose: it only has to make the forms of one word equal."""
    for ending, instead in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 2 and not word.endswith("ss"):
            word = word.removesuffix(ending) + instead
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


@dataclass(frozen=True, slots=True)
class _Literals:
    exact: frozenset[str]
    names: frozenset[str]
    words: frozenset[str]


_QUOTED = re.compile(r"\"([^\"]+)\"|`([^`]+)`|“([^”]+)”|(?<!\w)['‘]([^'’]+)['’](?!\w)")
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*%?")
_NAME = re.compile(r"\b(?:[A-Z]{2,}\w*|\w+_\w+|[a-z]+[A-Z]\w*)\b")


@lru_cache(maxsize=1 << 17)
def _literals(content: str) -> _Literals:
    quoted = {next(filter(None, match)) for match in _QUOTED.findall(content)}
    names = {name.casefold() for name in _NAME.findall(content)}
    words = re.findall(r"\w+", content.casefold())
    return _Literals(frozenset(quoted) | frozenset(_NUMBER.findall(content)), frozenset(names), frozenset(words))


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_AGAINST = _set("never avoid avoiding refrain forbid forbidden prohibited")
_AUXILIARIES = _set("do does did is are be was were can could should must shall will would may might has have need")
_OPENERS = _set("when whenever if for in on at after before while once where given during with to as")
_DIRECTIONS = _set("instead rather than then before after over from")
_OPPOSITES = {
    _stem(flipped): _stem(plain)
    for flipped, plain in (
        ("after", "before"),
        ("last", "first"),
        ("lower", "upper"),
        ("lowercase", "uppercase"),
        ("descending", "ascending"),
        ("exclude", "include"),
        ("omit", "include"),
        ("disable", "enable"),
        ("decrease", "increase"),
        ("maximum", "minimum"),
        ("less", "more"),
        ("fewer", "more"),
        ("false", "true"),
        ("reject", "accept"),
        ("without", "with"),
    )
}
_STOP = _set(
    """a an the this that these those it its their your you we i and or of to in on at for from by as
    is are be was were been being do does did must should shall will would can could may might has have need needs
    always only ensure make sure remember please every each all any some when whenever if then so also ever just very
    instead rather than over"""
)
