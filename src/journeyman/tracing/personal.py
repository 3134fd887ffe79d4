"""Personal data in texts, and names in its place that are the same for the same: `[EMAIL_3f9a2c]`, `[PERSON_08b1d4]`.

Found are addresses of mail, numbers of phones, cards and accounts, and the names of people that a source knows of. A name in
its place is made with a key that only the project has: whoever reads it learns that two are the same, and not who it is.
"""

import hmac
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from journeyman.io.atomic import atomic_write

Span = tuple[int, int, str]
"""From, to, and the kind of what stands there."""
_MOST_NAMES = 5000

# None of these begins with a look behind: one that begins with a class of characters is found many times as fast. What stands
# before is asked of what was found.
_AT = re.compile(r"@[A-Za-z0-9-]{1,63}\.", re.ASCII)
_LOCAL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}\Z", re.ASCII)
_DOMAIN = re.compile(r"@(?:[A-Za-z0-9-]{1,63}\.){1,5}([A-Za-z]{2,24})(?![\w(:])", re.ASCII)
_RUN = re.compile(r"[+(0-9][0-9 ()./-]{6,40}[0-9]", re.ASCII)
"""Where a number may stand that is somebody's."""
_DOMAINS = re.compile(
    "[a-z]{2}|com|org|net|edu|gov|mil|int|info|biz|name|dev|app|xyz|online|site|tech|cloud|shop|store|blog|email|company|systems"
    "|software|agency|digital|studio|group|team|works?|world|live|life|news|media|example|test|invalid|local|internal"
)
"""How addresses end: with two letters for a country, or with one of these."""
_NOBODY = re.compile(r"^(?:git|no-?reply|noreply-?\w*|donotreply|mailer-daemon|root|\d+\+\S*|\S*\[bot\]\S*)@", re.IGNORECASE)
_PHONE = re.compile(
    r"(?<![\w.+/:-])(?:"
    r"\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{1,4}(?:[ ./-]?\d{2,4}){1,4}"
    r"|\(\d{3}\) ?\d{3}[ .-]\d{4}"
    r"|[2-9]\d{2}[.-]\d{3}[.-]\d{4}"
    r"|0\d{2,4}[ /-]\d{3,8}(?:[ -]\d{2,8}){0,2}"
    r"|0[1-9](?:[ .]\d{2}){4}"
    r")(?![\w-]|[.:]\d)",
    re.ASCII,
)
_DATE = re.compile(r"\+?\d{4}-\d{2}-\d{2}")
_CARD = re.compile(
    r"(?<![\w.+-])(?:3[47]\d{2}[ -]?\d{6}[ -]?\d{5}|(?:\d{4}[ -]?){3}\d{1,7}|3\d{3}[ -]?\d{6}[ -]?\d{4})(?![\w-]|\.\d)"
)
_BRANDS = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|6(?:011|5\d\d)\d{12}|35\d{14}|3(?:0[0-5]|[68]\d)\d{11}"
)
_IBAN = re.compile(r"([A-Z][A-Z])\d\d ?[A-Z0-9]{4} ?[A-Z0-9]{4}", re.ASCII)
_IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AT": 20, "BE": 16, "BG": 22, "CH": 21, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "EE": 20, "ES": 24,
    "FI": 18, "FR": 27, "GB": 22, "GR": 27, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IS": 26, "IT": 27, "LI": 21, "LT": 20,
    "LU": 20, "LV": 21, "MC": 27, "MT": 31, "NL": 18, "NO": 15, "PL": 28, "PT": 25, "RO": 24, "SA": 24, "SE": 24, "SI": 19,
    "SK": 24, "SM": 27, "TR": 26, "UA": 29,
}  # fmt: skip


class Personal:
    """Finds personal data, and puts stable names in its place. May be used by several threads."""

    def __init__(self, key: bytes, names: Iterable[str] = ()) -> None:
        """
        Args:
            names: Of people; one of a single word is masked where somebody is named so, and not in other texts.
        """
        self._key = key
        self.found: Counter[str] = Counter()
        """How often something of each kind was masked."""
        self._known: set[str] = set()
        self._names: re.Pattern[str] | None = None
        self.know(names)

    def know(self, names: Iterable[str]) -> None:
        """Mask these names, too, from now on."""
        self._known |= {" ".join(name.split()) for name in names if len(name.split()) > 1}
        whole = sorted(self._known, key=len, reverse=True)[:_MOST_NAMES]
        if whole:
            told = "|".join(r"\s+".join(map(re.escape, name.split())) for name in whole)
            self._names = re.compile(rf"(?<!\w)(?:{told})(?!\w)", re.IGNORECASE)

    def text(self, text: str) -> str:
        """The text with names in place of what is personal; the same object where nothing is."""
        spans = sorted(self._spans(text))
        if not spans:
            return text
        parts, done = [], 0
        for start, end, kind in spans:
            if start < done:
                continue
            parts += [text[done:start], self._name(kind, text[start:end])]
            done = end
        return "".join([*parts, text[done:]])

    def person(self, name: str) -> str:
        """A name in place of whoever is named, with their address if that is given, too."""
        said, _, address = name.partition("<")
        masked = self.text(address.strip("> ")) if address else ""
        if not said.strip() or said.lstrip().startswith("[") or "@" in said:
            return self.text(name)
        return " ".join(filter(None, (self._name("person", said), masked and f"<{masked}>")))

    def _name(self, kind: str, value: str) -> str:
        self.found[kind] += 1
        same = "".join(char for char in value.casefold() if char.isalnum() or char in "@._-" * (kind == "email"))
        return f"[{kind.upper()}_{hmac.digest(self._key, f'{kind}:{same}'.encode(), 'sha256').hex()[:6]}]"

    def _spans(self, text: str) -> Iterator[Span]:
        if "@" in text:
            yield from ((start, end, "email") for found in _AT.finditer(text) for start, end in _address(text, found.start()))
        if self._names is not None:
            yield from ((*found.span(), "person") for found in self._names.finditer(text))
        yield from ((start, end, "iban") for found in _IBAN.finditer(text) for start, end in _iban(text, found))
        for run in _RUN.finditer(text):
            # A run may begin or end within what is looked for.
            start, end = max(0, run.start() - 1), run.end() + 24
            yield from ((*found.span(), "card") for found in _CARD.finditer(text, start, end) if _is_card(found[0]))
            yield from ((*found.span(), "phone") for found in _PHONE.finditer(text, start, end) if _is_phone(text, found))


def _address(text: str, at: int) -> Iterator[tuple[int, int]]:
    """The address of mail around a place where `@` stands."""
    domain, local = _DOMAIN.match(text, at), _LOCAL.search(text[max(0, at - 65) : at])
    if domain is None or local is None or _DOMAINS.fullmatch(domain[1].lower()) is None:
        return
    start = at - len(local[0])
    if not _NOBODY.match(text[start : domain.end()]):
        yield start, domain.end()


def _is_phone(text: str, found: re.Match[str]) -> bool:
    digits = sum(char.isdigit() for char in found[0])
    begins = found.start() == 0 or text[found.start() - 1] == "\n"
    # A line that a patch adds begins with a plus, too.
    if found[0][0] == "+" and begins and not re.search(r"[ (-]", found[0]):
        return False
    return 9 <= digits <= 15 and not _DATE.match(found[0])


def _is_card(text: str) -> bool:
    digits = re.sub(r"[ -]", "", text)
    if _BRANDS.fullmatch(digits) is None or len(set(digits)) < 3:
        return False
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def _iban(text: str, found: re.Match[str]) -> Iterator[tuple[int, int]]:
    length = _IBAN_LENGTHS.get(found[1])
    if length is None or (found.start() and (text[found.start() - 1].isalnum() or text[found.start() - 1] == "_")):
        return
    at, chars = found.start(), ""
    while at < len(text) and len(chars) < length and (text[at].isascii() and (text[at].isalnum() or text[at] == " ")):
        chars += text[at].strip()
        at += 1
    if len(chars) != length or (at < len(text) and text[at].isalnum()):
        return
    moved = chars.upper()[4:] + chars.upper()[:4]
    if int("".join(str(int(char, 36)) for char in moved)) % 97 == 1:
        yield found.start(), at


def project_key(folder: Path) -> bytes:
    """The key of a project, made when it has none: without it nobody can tell whom a name stands for by trying."""
    path = folder / "key"
    try:
        return bytes.fromhex(path.read_text().strip())
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = secrets.token_bytes(32)
        with atomic_write(path) as part:
            part.write_text(made.hex() + "\n")
        return made
