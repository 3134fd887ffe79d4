"""Personal data in a text: what is of one customer alone, and so has no place in a rule for all.

A rule with a hit is refused, so what may be personal data is taken for it: a rule that is lost can be learned again, a
customer's number in a playbook is shown to everybody. What a tool declares (its name, its arguments, the values of an
enumeration) is nobody's.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from journeyman.optimizers.playbook.folding import Folded, Span, fold, word_set
from journeyman.tracing import secrets
from journeyman.tracing.evidence import CallEvidence
from journeyman.tracing.fields import mapping

__all__ = ["KINDS", "Found", "personal_data", "persons_of"]

KINDS = (
    *("name", "mail", "phone", "card", "IBAN", "SSN"),
    *("street address", "order id", "user id", "birth date", "key", "URL"),
)


@dataclass(frozen=True, slots=True)
class Found:
    """One piece of personal data."""

    kind: str
    """One of `KINDS`."""
    span: Span
    """Where it stands in the text."""


def personal_data(text: str, *, known: Collection[str] = (), known_persons: Collection[str] = ()) -> list[Found]:
    """The personal data in a text, first to last.

    Args:
        text: Written in any letters, escapes and invisible characters.
        known: What tools declare: names of tools and arguments, values of enumerations. None of it is personal.
        known_persons: Values that belong to somebody, as `persons_of` finds them. Each is personal wherever it stands.
    """
    folded = fold(text)
    hits, left = _by_form(folded.text)
    hits += [("name", start, end) for start, end in _names(left, known)]
    hits += [("name", start, end) for start, end in _standing(folded, known_persons, parts=True)]
    declared = sorted(_standing(folded, known))
    free = [hit for hit in hits if not any(start <= hit[1] and hit[2] <= end for start, end in declared)]
    found = {Found(kind, folded.span(start, end)) for kind, start, end in free}
    return sorted(found, key=lambda each: (each.span, KINDS.index(each.kind)))


def persons_of(calls: Iterable[CallEvidence]) -> frozenset[str]:
    """What the arguments of calls say of somebody: names, addresses, numbers; no value that a tool declares."""
    found: set[str] = set()
    for call in calls:
        schema = mapping(call.definition.parameters) if call.definition else {}
        found |= {value for name, value in _leaves(call.arguments or {}, schema, "") if _OF_A_PERSON.search(name)}
    return frozenset(value for value in found if value.strip())


_OF_A_PERSON = re.compile(
    r"(?:^|_)(?:name|names|firstname|lastname|surname|user|username|customer|client|patient|guest"
    r"|passenger|e?mail|phone|mobile"
    r"|address\d?|street|zip|zipcode|postcode|postal|dob|birth\w*|ssn|iban|card|account|payment|contact|recipient"
    r"|vorname|nachname|kunde|strasse|plz|telefon)(?:_|$)",
    re.IGNORECASE,
)


def _leaves(value: Any, schema: Mapping[str, Any], name: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The texts in an argument, each with the names that lead to it; without those of an enumeration."""
    if depth > 8 or value in schema.get("enum", ()):
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            below = mapping(mapping(schema.get("properties")).get(key))
            yield from _leaves(inner, below, f"{name}_{_CAMEL.sub('_', str(key))}", depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, mapping(schema.get("items")), name, depth + 1)
    elif isinstance(value, str):
        yield name, value


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _standing(folded: Folded, values: Collection[str], *, parts: bool = False) -> Iterator[Span]:
    """Where one of some values stands, word for word; with `parts`, also a word of a name that is written large."""
    wanted: dict[str, set[tuple[str, ...]]] = {}
    single: set[str] = set()
    for value in values:
        words = _in_words(value)
        if words and (not parts or _tells(words)):
            wanted.setdefault(words[0], set()).add(words)
        if parts and 2 <= len(words) <= 4 and all(word.isalpha() for word in words):
            single |= {word for word in words if len(word) >= 3 and word not in _WORDS}
    there = folded.words
    for at, (word, start, end) in enumerate(there):
        for words in wanted.get(word, ()):
            if tuple(each for each, _, _ in there[at : at + len(words)]) == words:
                yield start, there[at + len(words) - 1][2]
        if word in single and folded.text[start].isupper():
            yield start, end


@lru_cache(maxsize=4096)
def _in_words(value: str) -> tuple[str, ...]:
    return tuple(word for word, _, _ in fold(value).words)


def _tells(words: tuple[str, ...]) -> bool:
    """Whether a value is one that could be recognised: no single common word, no short number."""
    joined = "".join(words)
    if len(words) == 1 and joined in _WORDS:
        return False
    return len(joined) >= (2 if joined.isalpha() else 4)


# What is told by its form.


def _by_form(text: str) -> tuple[list[tuple[str, int, int]], str]:
    """What has the form of personal data, and the text without it: what is found is not looked at again."""
    keys = sorted((start, end) for start, end, _ in secrets.find(text))
    hits, text = [("key", start, end) for start, end in keys], _without(text, keys)
    for kind, pattern, check in _FORMS:
        spans = [found.span("of" if "of" in pattern.groupindex else 0) for found in pattern.finditer(text) if check(found)]
        hits += [(kind, start, end) for start, end in spans if kind]
        text = _without(text, spans)
    return hits, text


def _without(text: str, spans: Sequence[Span]) -> str:
    """A text of the same length with what stands in some places blotted out."""
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], "\0" * (end - max(start, at))]
        at = max(at, end)
    return "".join([*parts, text[at:]]) if spans else text


def _digits(text: str) -> str:
    return "".join(each for each in text if each.isdigit())


def _luhn(found: re.Match[str]) -> bool:
    """The check digit of cards (ISO/IEC 7812-1)."""
    digits = [int(digit) for digit in reversed(_digits(found[0]))]
    return sum(digit if place % 2 == 0 else sum(divmod(2 * digit, 10)) for place, digit in enumerate(digits)) % 10 == 0


def _iban(found: re.Match[str]) -> bool:
    """The check digits of IBANs (ISO 13616): the country's code comes last, letters are 10 to 35, and it is 1 modulo 97."""
    plain = re.sub(r"[ -]", "", found[0]).upper()
    # What stands behind one may look like its last letters.
    return any(
        int("".join(str(int(each, 36)) for each in plain[4:end] + plain[:4])) % 97 == 1
        for end in range(len(plain), 14, -1)
        if plain[:end].isalnum()
    )


_BIRTH = re.compile(r"\b(?:birth|born|dob|geb\.|gebor|geburt)", re.IGNORECASE)


def _birth(found: re.Match[str]) -> bool:
    """Whether a date may be somebody's birthday: an example of how to write dates is of these years."""
    around = found.string[max(0, found.start() - 40) : found.end() + 25]
    year = int(found["year"])
    return bool(_BIRTH.search(around)) or not (21 <= year % 100 <= 39 and (year < 100 or year > 2000))


def _many_digits(found: re.Match[str]) -> bool:
    return len(_digits(found[0])) >= 7


_MONTH = (
    r"(?:jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni|july?|juli|aug(?:ust)?"
    r"|sep(?:t|tember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)"
)
_STREETS = (
    r"street|str\.?|st\.?|avenue|ave\.?|road|rd\.?|lane|ln\.?|drive|dr\.?|boulevard|blvd\.?|court|ct\.?"
    r"|terrace|square|highway|hwy|parkway|pkwy|circle|crescent|alley|quay"
)
_SPELT = (
    r"(?:zero|oh|one|two|three|four|five|six|seven|eight|nine|double"
    r"|null|eins|zwei|drei|vier|fünf|sechs|sieben|acht|neun)"
)
_TECHNICAL = re.compile(
    r"(?:iso|rfc|utf|sha|md|base|ipv?|http|oauth|tls|cp|latin|e|h|x|mp|fips|unicode|python|windows"
    r"|ascii)[-_.]?\d{1,5}(?:[-_.]\d{1,2})?"
    r"|\d{1,4}(?:st|nd|rd|th|h|am|pm|ms|px|kg|km|gb|mb|kb|eur|usd|pcs|min|sec|days?|x)",
    re.IGNORECASE,
)


def _id(found: re.Match[str]) -> bool:
    """Whether a word with digits is an id: no technical term, and more than a counter behind a word."""
    word = found[0].strip("_-")
    digits, letters = len(_digits(word)), sum(each.isalpha() for each in word)
    if _TECHNICAL.fullmatch(word) or not digits:
        return False
    if not letters:
        return digits >= 5
    return digits >= 3 or (len(word) >= 5 and word.isupper()) or (len(word) >= 8 and digits >= 2)


def _always(found: re.Match[str]) -> bool:
    return bool(found)


def _no_word(found: re.Match[str]) -> bool:
    return found["of"].casefold() not in _WORDS


_Form = tuple[str, re.Pattern[str], Callable[[re.Match[str]], bool]]


def _form(kind: str, pattern: str, check: Callable[[re.Match[str]], bool] = _always, flags: int = re.IGNORECASE) -> _Form:
    return kind, re.compile(pattern, flags), check


_DATES = (
    r"(?<!\d)(?P<year>(?:19|20)\d\d)[-/.](?:0?[1-9]|1[0-2])[-/.](?:[0-2]?\d|3[01])(?!\d)",
    r"(?<!\d)\d{1,2}[-/.]\d{1,2}[-/.](?P<year>(?:19|20)\d\d|\d\d)(?!\d)",
    rf"(?<!\d)\d{{1,2}}(?:st|nd|rd|th|\.)?[ -]?(?:of )?{_MONTH}\.?,?[ -]?(?P<year>(?:19|20)\d\d|\d\d)(?!\d)",
    rf"\b{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?,? (?P<year>(?:19|20)\d\d)(?!\d)",
)

_FORMS: tuple[_Form, ...] = (
    _form("URL", r"\b(?:https?|hxxps?|ftp|wss?|file)\s?:\s?//\s?[^\s\"'<>]+|\bwww\.[^\s\"'<>]+"),
    _form("mail", r"[\w.+-]{1,64}\s?(?:@|\(at\)|\[at\]|\{at\})\s?[\w-]{1,63}(?:\s?(?:\.|\(dot\)|\[dot\])\s?[a-z]\w+)+"),
    _form("mail", r"\b[\w.+-]{1,64} (?:at|ät) [\w-]{1,63} (?:dot|punkt) [a-z]{2,}\b"),
    _form(
        "URL",
        r"\b(?:[a-z0-9-]{1,63}\.){1,8}(?:com|org|net|io|dev|app|info|biz|example|test|xyz|shop|online|site|me|de|uk|fr"
        r"|eu|ru|cn)\b(?:/\S*)?",
    ),
    _form("URL", r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"),
    _form("IBAN", r"\b[a-z]{2}\d{2}(?:[ -]?[a-z0-9]){11,30}\b", _iban),
    _form("card", r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)", _luhn),
    _form("SSN", r"(?<![\d-])\d{3}[- ]\d{2}[- ]\d{4}(?![\d-])"),
    *(_form("birth date", pattern, _birth) for pattern in _DATES),
    # What is left of dates are examples.
    *(_form("", pattern) for pattern in _DATES),
    _form("street address", rf"\b\d{{1,5}}[a-z]?,?\s+(?:[\w'.-]{{1,40}}\s{{1,3}}){{1,3}}(?:{_STREETS})(?!\w)"),
    _form(
        "street address",
        r"\b\d{1,5},?\s+(?:[A-Z][\w'.-]{1,40}\s{1,3}){1,3}(?:Way|Place|Pl|Row|Walk|Close|Hill|Park|Plaza)\b",
        flags=0,
    ),
    _form("street address", r"\b[\w-]{2,40}(?:stra(?:ß|ss)e|str\.|gasse|weg|platz|allee|ufer|damm|ring)\s*\d{1,4}[a-z]?\b"),
    _form("street address", r"\b[\w-]{2,40} (?:Stra(?:ß|ss)e|Weg|Platz|Allee|Ring|Gasse) \d{1,4}[a-z]?\b"),
    _form(
        "street address",
        r"\b(?:rue|calle|via|avenida|plaza|piazza|ulica|rua|corso|viale|an der|auf der)\s+(?:(?:de|del|della"
        r"|la|les|du|des)\s+)*"
        r"[\w'-]+(?:\s[\w'-]+)?,?\s+\d{1,4}\b",
    ),
    _form("street address", r"\b\d{1,4},?\s+(?:rue|avenue|boulevard|place|quai)\s+[\w'-]+(?:\s[\w'-]+){0,3}"),
    _form("street address", r"\b(?:p\.?\s?o\.?\s?box|postfach|apt\.?|apartment|suite)\s*#?\d+"),
    _form("phone", r"(?<![\w.])(?:\+|00)?\s?\(?\d[\d ()./-]{4,}\d(?!\w)", _many_digits),
    _form("phone", rf"\b{_SPELT}(?:[\s,-]+{_SPELT}){{6,}}\b"),
    _form("order id", r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    _form("order id", r"#\s?[a-z]{0,4}-?\d{3,}\w*"),
    _form(
        "user id", r"\b[a-z]{1,40}(?:[_-][a-z]{1,40}){0,8}[_-]\d[\w-]*|\b(?:user|customer|account|member|kunde)[_-]?\d+\b", _id
    ),
    _form("order id", r"(?<![\w#.,-])[\w-]{0,80}\d[\w-]*(?!\w)", _id),
    _form(
        "order id",
        r"\b(?:(?i:order|booking|reservation|confirmation|ticket|invoice|code|id|nummer|buchung"
        r"|bestellung)\w*)\s*(?:(?i:id|no\.?|"
        r"number|code|nr\.?))?\s*[:#=]?\s*[\"']?(?P<of>[A-Z]{6}|\d{3,4})\b",
        _no_word,
        flags=0,
    ),
)


# Names.

_LETTERS = re.compile(r"([^\W\d_]+(?:['-][^\W\d_]+)*)")
_TITLES = word_set("mr mrs ms miss dr prof sir herr frau herrn monsieur madame señor señora named namens heißt")
_SOMEBODY = word_set("customer client passenger patient guest user")


def _names(text: str, known: Collection[str]) -> Iterator[Span]:
    own = {part for term in known for part in _PARTS.findall(term.casefold())}
    words = [_NameWord.of(found, own) for found in _LETTERS.finditer(text)]
    for at, word in enumerate(words):
        before = words[at - 1] if at and words[at - 1].meets(word, text) else None
        after = _following(words, at, text)
        if word.lower in _FIRST_NAMES and word.lower not in own:
            yield word.start, after.end if after and after.large else word.end
        elif after and after.large and (word.large or (word.lower in _WORDS_TOO and text[word.start].isupper())):
            yield word.start, after.end
        elif word.large and before and before.lower in _TITLES | _SOMEBODY:
            yield word.start, word.end


@dataclass(frozen=True, slots=True)
class _NameWord:
    """A word that may be part of a name."""

    lower: str
    start: int
    end: int
    large: bool
    """Whether it is written as names are, and is no word that others than names are written so."""

    @classmethod
    def of(cls, found: re.Match[str], own: AbstractSet[str]) -> "_NameWord":
        lower = found[0].casefold()
        return cls(
            lower,
            found.start(),
            found.end(),
            _large(found[0]) and _WORDS.isdisjoint((lower, _stem(lower))) and own.isdisjoint((lower, _stem(lower))),
        )

    def meets(self, other: "_NameWord", text: str) -> bool:
        """Whether only what parts the words of a name stands between the two: a space, and the dot of a title or an initial."""
        return text[self.end : other.start] in (" ", ". ", "  ")


def _following(words: Sequence[_NameWord], at: int, text: str) -> _NameWord | None:
    """The next word of what may be a name; initials are passed over."""
    for here, there in pairwise(words[at : at + 4]):
        if not here.meets(there, text):
            return None
        if there.end - there.start > 1:
            return there
    return None


_PARTS = re.compile(r"[^\W_]+")


def _large(word: str) -> bool:
    """Whether a word is written as a name is: Mia, O'Brien, Li-Wei, McKay; not ID, iPhone, GitHub."""
    parts = re.split(r"['-]|(?<=^Mc)|(?<=^Mac)", word)
    return all(part[:1].isupper() and part[1:] == part[1:].lower() for part in parts if part) and len(word) > 1


def _stem(lower: str) -> str:
    return lower[:-1] if lower.endswith("s") and len(lower) > 3 else lower


_FIRST_NAMES = word_set(
    """
    aarav aaliyah abdul abigail adriana agnes ahmed aisha akira alejandro alessandro alexei ali alicia alina amelia
    amina amir amy ana anastasia andrea andreas andrei andrew angela anika anja anna anne annika antje anton antonio
    anya aria arjun arthur ashley astrid aurora ava aylin barbara beatrice benjamin bianca birgit boris brigitte brian
    camila carla carlos carmen caroline catherine cem chiara chinedu chloe christina christine christoph claudia clara
    connor cristina cynthia daiki daniel daniela david deborah dennis denise diana diego dieter dimitri dmitri dominik
    donna dorothea edward eleanor elena eleni eli elias elif elijah elisabeth elizabeth ella ellen emil emilia emily
    emma emre enrique erik erika esra esther ethan eugenia eva evelyn fabian fatima fatma felix fernando fiona francesca
    francisco franz frida friedrich gabriel gabriela georg gerhard giovanni giulia greta gustav hannah hans haruto heidi
    heike heinz helen helena helga henrik henry hiroshi hugo ibrahim igor ingrid inga ioana irina isabel isabella isla
    ivan ivana jacob jakob jakub james jana janet jasmin javier jeffrey jennifer jens jessica joanna joao johan johanna
    johannes john jonas jonathan jose josef joseph joshua juan julia julian juliane jürgen kaito karim karin karl
    katarina katharina katherine kathleen katja kevin khadija kimberly klaus konstantin kristina lars laura lea lena
    leon leonardo leonie liam lina linda lisa logan lorenzo louise luca lucas lucia ludwig luis luisa lukas luka luna
    magdalena maja malik manuel manuela marcel marco marcus margaret maria marie marina mario marta martha martin
    martina matteo matthew matthias maximilian mehmet melanie melissa mia michael michelle miguel mikhail mila milan
    mohamed mohammed monika moritz mustafa nadia nadine nancy natalia natalie natasha nicholas nicole niklas nikita
    nikolai nina noah noor nora olaf olga oliver olivia omar oskar otto pablo patricia patrick paula paulina pedro peter
    petra philip philipp pierre priya rachel rafael raj rajesh ralf ramon rania rebecca renate ricardo richard robert
    roberto robin rolf roman ronald rosa rosalie ruth ryan sabine samantha samuel sandra sanjay sara sarah sebastian
    selin sergei sergio silke silvia simone sofia sophia sophie stefan stefanie stephanie stephen susan susanne sven
    svetlana tanja tatiana teresa thomas tobias ulrich ursula uwe valentina vanessa vera veronica victoria viktor
    vincent vladimir walter wei werner wilhelm william wolfgang xavier yara yasmin yuki yusuf yvonne zainab zara zoe
    zoey
    """
)
"""Given names that are no other word, in small letters too."""

_WORDS_TOO = word_set(
    """
    alex amber april art august austin autumn ben bill brooklyn carol charlotte chase chen chris christian dan dawn dean
    drew faith florence frank gene george grace grant guy harper hope iris ivy jack jade jan jasmine jean jordan joy
    june kai kim lance lei li lily lou madison mark mason max may mei melody mike miles nick olive pat paris paul penny
    ray rich rob rose ruby sam savannah sky sofia sue summer sydney tim tom tony trinity violet virginia will yu
    """
)
"""Given names that are other words or places, too: names before another that is written large."""

_WORDS = word_set(
    """
    a about above accept account action add additional address after again against agent airline airport all allow
    allowed also always amount an and another any api apply are argument as ask at attempt available avoid back bag
    baggage balance base basic be because before begin below between birth body book booking both business but by cabin
    call can cancel cannot card carrier case cash cell cent certificate change charge check city class clear client
    close code color column combine common complete confirm confirmation contain copy correct cost could count country
    create credit currency customer data database date day debit default delete deliver delivered delivery detail did
    different digit direct do document does dollar done each economy edit either email empty end english enter entry
    error euro every exact exactly example exchange existing expect expected express false fare field file fill final
    find first five flight follow for form format found four from full function further general get gift give given go
    good gram group guest had has have header help high hotel hour house how id if image in include indent information
    input insurance invoice is issue it item its japan json just keep key keyword large last later leave left less
    letter like line link list local long look low make many market match maximum may member merge message method
    minimum minus missing mode modify month more most move must name near need never new next night no none north note
    nothing now number object of off offer old on once one only open or order other out over own page paid parameter
    part passenger password path patient pay payment pending per person phone pick place plain plan platform please
    point policy post prefer previous price print product profile provide purchase put quantity query question quote
    range read reason receipt record refer reference refuse region reject remove repeat replace reply report request
    require required reservation reserve response result retry return returned review right room round route row run
    same save say schema search seat second section see select send sentence service set shall ship shipping short
    should show since single size sku small so some south space specify standard start state status step stop store
    street string such sum summary support system table take task tax tell text than that the their them then there
    these they this three ticket time title to today token tool total transaction transfer travel tree true try two type
    under united unit until up update upper use user valid value variant verify version via wait was way week west east
    what when where whether which while who whole why wire with within without word work world would write wrong year
    yes you your zero zip zone monday tuesday wednesday thursday friday saturday sunday january february march april
    june july august september october november december american britain british europe european germany german france
    french spain spanish italy italian china chinese india indian america states kingdom york london berlin paris rome
    tokyo oslo lima cairo delhi quito visa mastercard amex paypal master apple google python java windows linux git
    docker unix internet pacific atlantic greenwich central mean eastern western der die das den dem des ein eine einen
    einem einer und oder nicht kein keine keinen mit ohne bei beim vor nach für zu zum zur im am auf aus von vom ist
    sind wird werden soll muss müssen darf nur immer nie niemals wenn dann als wie erst zuerst bitte jede jeder jedes
    jeden jedem alle allen gib gebe schreibe schreib frage nenne prüfe nimm nutze verwende suche lies rufe datum daten
    preis preise betrag beträge anzahl menge artikel bestellung bestellungen bestellnummer kunde kunden kundin adresse
    stadt ort straße feld felder wert werte zahl zahlen nummer vorname nachname tag monat jahr punkt punkte komma strich
    bindestrich buchstabe buchstaben großbuchstaben kleinbuchstaben währung zahlung zahlungsart rechnung lieferung
    versand storno stornierung rückgabe umtausch flug flüge buchung reservierung sitz platz gepäck werkzeug aufruf
    fehler antwort anfrage angabe angaben eilig ja nein geburtsdatum
    """
)
"""Words of forms, orders and tools that are written large without being a name, in titles, at the start, or in German."""
