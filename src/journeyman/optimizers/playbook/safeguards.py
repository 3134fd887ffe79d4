"""What never becomes a rule: customers' words, personal data, and, unless a person agrees, powers.

Whoever can talk to an agent can write into its traces, and would gladly write into its playbook. So what a reflector drew from
traces passes here before it may become a bullet. A word list stops no determined attacker: what protects is that a rule must
come from the environment, that several principals must have met it, and that it is examined. These functions take away what is
cheap to tell, and never anything that a person has approved.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from journeyman.optimizers.playbook.curator import copied
from journeyman.optimizers.playbook.folding import Folded, Span, disguised, fold, word_set
from journeyman.optimizers.playbook.personal import Found, personal_data, persons_of
from journeyman.tracing.evidence import CallEvidence, ToolDefinition
from journeyman.tracing.fields import mapping

__all__ = [
    "LONGEST",
    "Found",
    "RuleVerdict",
    "arguments_of",
    "cut_echoes",
    "declared",
    "judge",
    "names_declared",
    "personal_data",
    "persons_of",
    "powers",
    "says_after",
    "tools_of",
    "typed",
]


LONGEST = 1000
"""Characters of a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleVerdict:
    """Whether what a reflector wrote may become a bullet. Neither reason repeats what it objects to."""

    refused: str = ""
    """Why it may not, whoever says so; empty where it may."""
    held: str = ""
    """Why a person must approve it first, to be read after "held: "; empty where nobody must."""


def judge(
    text: str,
    *,
    tools: Collection[ToolDefinition],
    words: Sequence[str],
    known: Collection[str] = (),
    known_persons: Collection[str] = (),
) -> RuleVerdict:
    """What is to be done with a rule that was drawn from traces.

    Args:
        text: Of the rule.
        tools: Those that it may be about, as `tools_of` finds them.
        words: All that customers said in the attempts that it was drawn from.
        known: Beyond what the tools declare, terms that are nobody's, as the values of an argument that a tool's error lists.
        known_persons: Values that belong to somebody, as `persons_of` finds them.
    """
    if len(text) > LONGEST:
        return RuleVerdict(refused=f"it has {len(text):,} characters, and a rule has at most {LONGEST:,}")
    terms = declared(tools) | frozenset(known)
    found = personal_data(text, known=terms, known_persons=known_persons)
    if found:
        kinds = list(dict.fromkeys(each.kind for each in found))
        return RuleVerdict(refused=f"it holds personal data ({', '.join(kinds)})")
    if says_after(text, words, terms):
        return RuleVerdict(refused="it repeats words of a customer")
    if reason := powers(text):
        return RuleVerdict(held=reason)
    if not names_declared(text, tools):
        return RuleVerdict(held="it names no tool and no argument that is declared")
    return RuleVerdict()


# What tools declare.


def tools_of(calls: Iterable[CallEvidence]) -> tuple[ToolDefinition, ...]:
    """The tools of some calls as they are declared; where no request says so, with the arguments that were written."""
    found: dict[str, ToolDefinition] = {}
    written: dict[str, dict[str, Any]] = {}
    for call in calls:
        if call.definition is not None:
            found[call.definition.digest] = call.definition
        else:
            written.setdefault(call.tool, {}).update({name: {} for name in call.arguments or ()})
    undeclared = (ToolDefinition(name=name, parameters={"properties": names}) for name, names in written.items())
    return (*found.values(), *undeclared)


def declared(tools: Iterable[ToolDefinition]) -> frozenset[str]:
    """What tools declare: their names, those of their arguments, and the values of enumerations."""
    return frozenset(term for tool in tools for term in (*_names(tool), *_listed(tool)))


def arguments_of(tools: Iterable[ToolDefinition]) -> frozenset[str]:
    """The names of tools' arguments, and of what is within them."""
    return frozenset(name for tool in tools for name in _names(tool) if name != tool.name)


@lru_cache(maxsize=512)
def _names(tool: ToolDefinition) -> frozenset[str]:
    return frozenset((tool.name, *_arguments(tool.parameters)))


@lru_cache(maxsize=512)
def _listed(tool: ToolDefinition) -> frozenset[str]:
    return frozenset(_values(tool.parameters))


def _arguments(schema: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    for name, inner in mapping(schema.get("properties")).items():
        yield name
        yield from _below(inner, depth, _arguments)
    yield from _below(schema.get("items"), depth, _arguments)


def _values(schema: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    told = schema.get("enum")
    for value in (*(told if isinstance(told, list) else ()), schema.get("const")):
        if isinstance(value, str | int | float) and str(value).strip():
            yield str(value)
    for inner in (*mapping(schema.get("properties")).values(), schema.get("items")):
        yield from _below(inner, depth, _values)
    for several in ("anyOf", "oneOf"):
        for inner in schema[several] if isinstance(schema.get(several), list) else ():
            yield from _below(inner, depth, _values)


def _below(schema: Any, depth: int, read: Any) -> Iterator[str]:
    if isinstance(schema, Mapping) and depth < _DEEPEST:
        yield from read(schema, depth + 1)


_DEEPEST = 12


def names_declared(text: str, tools: Collection[ToolDefinition]) -> bool:
    """Whether a text speaks of a declared tool or argument: by its name, or by its words, as "payment methods" does."""
    words = [_stem(word) for word in _parts(fold(text).text)]
    runs = {tuple(words[at : at + size]) for size in range(1, 7) for at in range(len(words) - size + 1)}
    return any(not runs.isdisjoint(_ways(name)) for tool in tools for name in _names(tool))


@lru_cache(maxsize=4096)
def _ways(name: str) -> frozenset[tuple[str, ...]]:
    """The ways in which a name may be spoken of: in whole, or by two of its words in a row."""
    words = tuple(_stem(word) for word in _parts(name))
    if len(words) < 2:
        return frozenset((words,)) if words and len(words[0]) > 1 else frozenset()
    pairs = (words[at : at + 2] for at in range(len(words) - 1))
    return frozenset((words, *(pair for pair in pairs if not set(pair) <= _SMALL)))


_SMALL = word_set("a an and by for from get id in is list new no number of on or set the to with")


def _parts(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", _CAMEL.sub(" ", text).casefold())


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _stem(word: str) -> str:
    """A word without what makes it plural: dates and date, cities and city are one."""
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        return word[:-3] + "y" if word.endswith("ies") else word[:-1]
    return word


# What customers said.


def cut_echoes(text: str, words: Sequence[str], n: int = 4) -> str:
    """What a tool said, without what it merely echoes of the customer: n words in a row, however they are written, and
    quotations that are the whole of a shorter message.

    The rest is left letter for letter; in the place of what was cut stands "…". The time is linear in both texts.
    """
    said = [tuple(word for word, _, _ in fold(each).words) for each in words]
    grams = {told[at : at + n] for told in said for at in range(len(told) - n + 1)}
    short = {told for told in said if 2 <= len(told) < n}
    folded = fold(text)
    dead = [*_in_a_row(folded, grams, n), *_quoted(folded, short)]
    parts, end = [], 0
    for start, stop in _joined(folded.span(*span) for span in dead):
        parts += [text[end:start], "…"]
        end = stop
    return "".join([*parts, text[end:]])


def _in_a_row(folded: Folded, grams: Collection[tuple[str, ...]], n: int) -> Iterator[Span]:
    there = folded.words
    plain = tuple(word for word, _, _ in there)
    for at in range(len(plain) - n + 1) if grams else ():
        if plain[at : at + n] in grams:
            yield there[at][1], there[at + n - 1][2]


_QUOTED = re.compile(r'"([^"\n]{3,300})"|`([^`\n]{3,300})`|(?<!\w)\'([^\'\n]{3,300})\'(?!\w)')


def _quoted(folded: Folded, short: Collection[tuple[str, ...]]) -> Iterator[Span]:
    for found in _QUOTED.finditer(folded.text) if short else ():
        group = found.lastindex or 0
        if tuple(word.casefold() for word in re.findall(r"\w+", found[group])) in short:
            yield found.span(group)


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Spans that overlap or touch as one."""
    last: Span | None = None
    for span in sorted(spans):
        if last is None or span[0] > last[1]:
            if last is not None:
                yield last
            last = span
        else:
            last = (last[0], max(last[1], span[1]))
    if last is not None:
        yield last


def says_after(text: str, words: Sequence[str], terms: Collection[str] = ()) -> bool:
    """Whether a rule repeats a customer.

    Three words in a row are a copy where each of them says something, six where they are any; "the number of" is what
    everybody says. Words that a tool declares are the tool's, whoever uses them.
    """
    own = {_stem(part) for term in terms for part in _parts(term)}
    told = [" ".join(_parts(fold(each).text)) for each in words]
    plain = _parts(fold(text).text)
    if copied(" ".join(plain), told, n=6):
        return True
    spoken = {run for each in told for run in _runs(each.split(), own)}
    return not spoken.isdisjoint(_runs(plain, own))


def _runs(words: Sequence[str], own: Collection[str]) -> Iterator[tuple[str, ...]]:
    telling = [word not in _COMMON and _stem(word) not in own for word in words]
    for size, least in ((3, 3), (4, 2)):
        for at in range(len(words) - size + 1):
            if sum(telling[at : at + size]) >= least:
                yield tuple(words[at : at + size])


_COMMON = word_set(
    """
    a about after all also always an and any are as at be been before but by can could did do does doing done each else
    every first for from get give given go had has have how i id if in into is it its just keep last let like make may
    me more must my need needs new no not now number of off on once one only or other our out please same say see set
    should so some such take than that the their them then there these they this those to too two up use used user using
    was we were what when where which while who will with without would yes you your order orders customer item items
    call write ask check aber alle als am auch auf aus bei beim bitte das dass dem den der des die dies diese dieser
    doch du ein eine einem einen einer er es für gib habe haben hat ich ihr ihre im ist ja kann kein keine mein meine
    mich mir mit muss nach nein nicht noch nur oder schon sehr sein sich sie sind soll und uns von vor war wenn wer wie
    wir wird zu zum zur
    """
)


# What a reflector may see of a call.


def typed(value: Any, schema: Mapping[str, Any] | None = None) -> str:
    """An argument's value as a reflector may see it: itself where the schema says which there are, else its form alone."""
    return _typed(value, mapping(schema), 0)


def _typed(value: Any, schema: Mapping[str, Any], depth: int) -> str:
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, bool) or value is None or _closed(value, schema):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        properties = mapping(schema.get("properties"))
        names = {name: name if name in properties else "<text>" for name in value}
        inner = (f"{json.dumps(names[n])}: {_typed(v, mapping(properties.get(n)), depth + 1)}" for n, v in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_typed(each, mapping(schema.get("items")), depth + 1) for each in value) + "]"
    return "<number>" if isinstance(value, int | float) else _form_of(str(value))


def _closed(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is one of a few that the schema allows."""
    several = [mapping(each) for name in ("anyOf", "oneOf") for each in schema.get(name) or () if isinstance(each, Mapping)]
    if any(_closed(value, each) for each in several):
        return True
    told = schema.get("enum")
    if (isinstance(told, list) and value in told) or ("const" in schema and value == schema["const"]):
        return True
    low, high = schema.get("minimum"), schema.get("maximum")
    if not (isinstance(value, int) and isinstance(low, int) and isinstance(high, int)):
        return False
    return high - low <= _FEW and low <= value <= high


_FEW = 20

_FORMS: Sequence[tuple[str, re.Pattern[str]]] = (
    ("<mail>", re.compile(r"\S+@\S+\.\S+")),
    ("<date>", re.compile(r"\d{4}-\d\d?-\d\d?(?:[T ]\d\d:\d\d\S*)?|\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d\d)?|\d{1,2}-[a-zA-Z]{3}")),
    ("<number>", re.compile(r"[+-]?\d[\d.,]*(?:\s?(?:%|€|\$|[A-Za-z]{3}))?")),
    ("<id>", re.compile(r"(?=\S*\d)#?[\w:/-]+")),
)


def _form_of(value: str) -> str:
    return next((form for form, pattern in _FORMS if pattern.fullmatch(value.strip())), "<text>")


# Powers: what a rule must not grant unless a person agrees.


def powers(text: str) -> str:
    """Which power a rule names, as the reason why a person must see it; nothing where it names none.

    English and German; also where letters are replaced by digits, spread out, or invisible.
    """
    if disguised(text):
        return "it holds letters that cannot be seen, or that look like others"
    plain = fold(text).text.casefold()
    for each in _readings(plain):
        for reason, pattern in _POWERS:
            if pattern.search(each):
                return reason
    return ""


def _readings(plain: str) -> Iterator[str]:
    """A text as it stands, with its spread-out words drawn together, and with digits in words as the letters they stand for."""
    yield plain
    close = _SPREAD.sub(lambda found: re.sub(r"[\s.*_-]+", "", found[0]), plain)
    if close != plain:
        yield close
    if "-" in close:
        yield _HYPHEN.sub("", close)
    for letters in (_AS_I, _AS_L):
        spelt = "".join(word.translate(letters) if _LEET.fullmatch(word) else word for word in _TOKENS.split(close))
        if spelt != close:
            yield spelt


_SPREAD = re.compile(r"\b[^\W_](?:[\s.*_-]{1,3}[^\W_]){3,}\b")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\s?(?=[^\W\d_])")
_TOKENS = re.compile(r"([^\w@$!]+)")
_LEET = re.compile(r"[\w@$!]*[a-zäöü][\w@$!]*")
_AS_I, _AS_L = (str.maketrans("03457@$!1", "oeastasi" + one) for one in "il")


def _power(reason: str, *patterns: str) -> tuple[str, re.Pattern[str]]:
    return reason, re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


def _near(one: str, other: str, most: int = 40) -> str:
    """Two things in one sentence, in this order."""
    return rf"(?:{one})[^.;\n]{{0,{most}}}?(?:{other})"


_CHECKS = (
    r"(?:verif|confirm|check|validat|ask|approv|permission|consent|proof|question|prüf|bestätig|nachfrag"
    r"|frag|rückfrag|kontroll|zustimm)"
)
_NO = (
    r"\b(?:not|never|without|skip\w*|omit\w*|don't|do not|needn't|need not|avoid\w*|drop\w*|forgo"
    r"|instead of|rather than|kein\w*|nicht|nie|niemals|ohne|überspring\w*|verzicht\w*|unnötig)\b"
)
_MONEY = r"(?:[$€£]\s?\d|\d\s?(?:[$€£%]|(?:dollars?|euros?|usd|eur|gbp|percent|prozent)\b))"
_AT_ONCE = (
    r"\b(?:always|automatically|immediately|instantly|right away|at once|any|every|silently|sofort|immer"
    r"|automatisch|stets|umgehend|gleich)\b"
)

_POWERS: Sequence[tuple[str, re.Pattern[str]]] = (
    _power(
        "it tells whom to obey",
        _near(
            r"\b(?:ignor|disregard|forget|overrid|bypass|overrul|neglect|supersed|replac|missacht|vergiss|umgeh"
            r"|setz\w* .{0,20}außer)",
            r"instruct|rule|prompt|polic|guideline|above|previous|earlier|system|check|restriction|anweis|regel"
            r"|richtlin|vorgabe|oben",
        ),
        r"\b(?:ignore|disregard|ignorier)",
        r"system[- ]?(?:prompt|message|instruction)|new polic|new house rule|company polic|neue (?:richtlin|regel|anweisung)",
        r"\bfrom now on|as of today|effective immediately|ab sofort|ab heute|von nun an|fortan",
        r"</?(?!(?:id|date|text|number|mail)>)[a-z_]+>|\[/?inst\]|<\||^\s*(?:system|assistant|user|developer)\s*:",
        r"\byou are (?:now|a|an|no longer)\b|\bact as\b|\bpretend|\brole-?play|\bdu bist (?:jetzt|nun|ein)",
    ),
    _power(
        "it names money (discounts, refunds, fees)",
        r"\bdiscount|\brebate|\brefund|\breimburs|\bcompensat|\bwaiv|\bvoucher|\bcoupon|\bcashback"
        r"|\bcredit note|\bstore credit",
        r"\bfree\b|\bfree of charge|\bcomplimentary|\bgratis|\bon the house|\bat no (?:extra "
        r"|additional )?(?:cost|charge)|\bno (?:extra )?charge",
        r"\bfees?\b|\bsurcharge|\bpenalt(?:y|ies)\b|\bprice match|\bhalf(?: the)? price|\bhalv(?:e|ing)\b"
        r"|\bcheaper|\bprice cut|\bmark ?down",
        r"\bbonus|\bgoodwill|\bgestures? of\b|\bgift (?:the|them|him|her)\b|\bmake (?:it|them) (?:good|whole)"
        r"|\bcharge (?:nothing|less|only)",
        r"\brabatt|\bnachlass|\bpreisnachl|\berstatt|\brückerstatt|\bgutschrift|\bgutschein|\bgebühr"
        r"|\bkostenlos|\bkostenfrei|\bumsonst",
        r"\bentschädig|\bschadensersatz|\bhalbe[rnm]? preis|\bkulan|\bermäßig|\bgeschenk|\bgeld zurück|\bmoney back|\bschenk",
        _near(r"\b(?:offer|give|pay|grant|award|add|deduct|reduce|lower|take|subtract|biete|zahle|gib|gewähr|zieh)", _MONEY),
        _near(
            r"\b(?:price|amount|total|cost|payment|fare|preis|betrag|summe|rechnung)s?\b",
            r"\b(?:write|schreib\w*|set|to|is|are|auf|=)?\s*(?:0|zero|null|nothing|nichts)\b(?![.,]\d)",
            20,
        ),
        rf"{_MONEY}\s?(?:off|less|weniger|günstiger|nachlass)\b",
        r"\bupgrad(?:e|es|ed|able|ing)\b",
    ),
    _power(
        "it names checks of who somebody is, or leaves a check out",
        r"\bidentit(?:y|ies)\b|\bauthenticat|\bverification|\bkyc\b|\bcredentials?\b|\bidentität|\bausweis"
        r"|\blegitimation|\bidentifizier",
        rf"{_NO}(?: [^\W\d_]+){{0,3}} {_CHECKS}|\b(?:no|kein\w*)(?: \w+)? {_CHECKS}",
        r"\b(?:need|needs) not\b|\bneedn't|\bnot (?:have to|need|necessary|required|needed)\b|\bno need\b"
        r"|\bnicht (?:nötig|erforderlich|notwendig)",
        r"\btreat(?:s|ed)?\b[^.;\n]{0,40}?\bas\b|\bbehandle?\b|\bcount(?:s|ed)? as\b|\bconsidered\b",
        r"\b(?:pre-?)?(?:authori[sz]|approved\b|permission|consent\b)|\bgenehmig|\bermächtig|\bbefugt"
        r"|\berlaubnis|\bfreigegeben",
        r"\b(?:has|have|had|is|are|was|as) (?:been |already )*(?:confirmed|verified|checked|approved|agreed)\b"
        r"|\bassume\b|\bangenommen\b|\bgilt als\b",
        r"\btrust(?:ed|s|ing)?\b|\bbeliev|\bvertrau|\bglaub|\bat (?:his|her|their) word|\b(?:take|accept)\w* .{0,30}\bword\b",
    ),
    _power(
        "it names limits or exceptions",
        r"\blimit(?:s|ed|less)?\b|\bunlimited|\bexception|\bexempt|\beligib|\bexceed|\bregardless|\bno matter"
        r"|\beven (?:if|when|though)\b|\banyway\b",
        r"\bwhatever\b|\bwhoever\b|\bwhichever\b|\bin doubt\b|\bround(?:ed|s|ing)? (?:\w+ ){0,3}down\b|\babrunden",
        _near(r"\b(?:accept|allow|permit|honou?r|akzeptier|erlaub)\w*", r"\b(?:any|all|every|each|alle|jede)\w*\b", 20),
        r"\bdoes(?: not|n't) apply|\bdo(?: not|n't) apply|\bnot binding|\boptional for\b|\blift(?:ed|s)?\b"
        r"|\bsuspend(?:ed|s)?\b|\bloophole|\bworkaround",
        r"\bausnahme|\bobergrenze|\bunbegrenzt|\bunbeschränkt|\btrotzdem|\bgilt nicht|\bgelten nicht"
        r"|\bauch wenn\b|\begal\b|\bauf(?:ge|zu)hob|\bbeschränk",
    ),
    _power(
        "it names secrecy or what is secret",
        r"\breveal|\bdisclos|\bsecret|\bconfidential|\bpassword|\bpasscode|\bapi[- ]key|\bconceal|\bhid(?:e"
        r"|den|ing)\b|\bquietly|\bsilent|\bleak",
        _near(
            _NO + r"|\bno\b|\bkein",
            r"\b(?:tell|mention|inform|disclos|reveal|say|admit|notif|erwähn|sag|informier|verrat|mitteil)",
        ),
        r"\bgeheim|\bpasswort|\bkennwort|\bvertraulich|\bpreisgeb|\bverrate|\bverschweig|\bverheimlich"
        r"|\bverbirg|\bstillschweigend",
        r"\b(?:internal|hidden|your) (?:instruct|prompt|rules|notes|polic|config)|\bprint (?:your|the) (?:prompt|instruct)",
    ),
    _power(
        "it names other customers",
        _near(
            r"\b(?:other|another|different)\b",
            r"\b(?:customer|user|account|passenger|client|people|person|patient|guest)s?\b",
            12,
        ),
        _near(r"\b(?:all|any|every)\b", r"\b(?:customer|user|account|client|people|person|patient|guest)s?\b", 12),
        r"\b(?:someone|somebody|anyone|anybody|everyone|everybody)(?: else)?\b|\bothers\b|\bthird part"
        r"|\bfriend|\brelative|\bon behalf|\bowner|\bwhose\b",
        r"\b(?:ander\w*|fremd\w*|alle[nr]?|jede[mnrs]?) (?:kund|nutzer|konto|konten|person|gäst|patient"
        r"|fahrgäst)|\bdritte[nr]?\b|\bjeder?mann|\bim namen\b",
    ),
    _power(
        "it names somebody's privileges",
        r"\bvip\b|\badmin|\bsuperuser|\broot (?:user|access)|\bdeveloper|\bmanager|\bsupervisor|\bceo\b"
        r"|\bemployee|\bstaff\b|\bprivileg|\binsider|\bpremium|\bloyal",
        r"\bmitarbeiter|\bvorgesetzt|\bgeschäftsführ|\bchef(?:s|in)?\b|\bentwickler|\bstammkund|\bbevorzug"
        r"|\bsonderrecht|\bspecial treatment",
    ),
    _power(
        "it lets the customer decide",
        _near(
            r"\b(?:whatever|anything|everything|alles|was auch immer)\b",
            r"\b(?:customer|user|client|kunde|they|he|she|ask|want|say|er|sie|will)",
            30,
        ),
        _near(
            r"\b(?:customer|user|client|passenger|kunde\w*|kundin|they|he|she|er|sie)\b",
            r"\b(?:insist|upset|angry|polite|urgent|hurry|complain|threat|beg\b|begs|demand|unhappy|frustrat|sad\b"
            r"|cries|regular|unzufrieden|verärgert|droht|eilig|besteht|höflich|wütend|drängt|beschwert)",
        ),
        r"\b(?:generous|lenient|accommodating|flexible|obliging|benefit of the doubt|großzügig|entgegenkomm"
        r"|nachsichtig|zuvorkommend|always right|hat immer recht|im zweifel)\b",
        _near(
            r"\b(?:do|follow|obey|run|execut|befolg|führ)\w*",
            r"\b(?:customer|user|client|kunde\w*|message|nachricht|given|told)\b[^.;\n]{0,20}?(?:say|ask|want|tell"
            r"|order|give|command|instruct|sagt|will|verlangt|wünscht|anweis)",
        ),
        r"\b(?:customer|user|client|kunde\w*)'?s? (?:wish|word|choice|claim|request is enough|wunsch)\b"
        r"|\bwunsch des kunden|\bauf zuruf",
    ),
    _power(
        "it names where something is sent to",
        r"\bhttps?\b|\burls?\b|\bwebhook|\bendpoint|\bhyperlink|\bwebsite|\bdomain name",
        r"\b(?:forward|redirect|reroute|copy|bcc|cc)\b|\bsend (?:a |an |the |all |each )?(?:copy|copies|mail"
        r"|e-?mail|message|data|details|confirm)|\bpost (?:it|them|the)\b|\bupload",
        _near(
            r"\b(?:ship|deliver|send|mail|wire|transfer|pay)(?:s|ed|ing)?\b",
            r"\b(?:to (?:a|an|the|this|that|our|my|another|new)\b|instead\b)",
            30,
        ),
        _near(r"\b(?:deliver|shipment|shipping|parcel|package|lieferung|paket)\w*", r"\baddress|\badress|\banschrift"),
        r"\bweiterleit|\bleite\b|\bumleit|\bkopie an\b|\bschick\w*\b|\bsende\b|\büberweis|\bliefere?\b.{0,30}\b(?:an|nach)\b",
        r"\bcall (?:\+|the number|this number|back)|\bphone (?:them|us|him|her)|\bruf\w* .{0,20}\ban\b",
    ),
    _power(
        "it names logging or supervision",
        r"\blogging|\blogs?\b|\baudit|\bmonitor(?:ing|ed)?\b|\bsurveil|\bprotokoll|\baufzeichn|\büberwach"
        r"|\btelemetry|\btracing\b",
        _near(r"\b(?:turn(?:ed|s)? off|switch(?:ed|es)? off|disabl\w*|deactivat\w*|schalt\w*|deaktivier\w*)", r"\w", 5),
        _near(_NO, r"\b(?:transfer|escalat|human|supervis|hand over|weiterleit|eskalier|mensch|übergeb)"),
    ),
    _power(
        "it names commands or code to be run",
        r"\bshell\b|\bsudo\b|\brm -|\bcurl\b|\bwget\b|\beval\b|\bexec\b|\bbase64|\bdecod|\bpowershell|\bchmod"
        r"|\bdrop table|\binject",
        _near(r"\b(?:run|execut|launch|führ)\w*", r"\b(?:command|code|script|program|instruct|befehl|skript|anweisung)"),
        r"\bbefehl|\bdekodier",
    ),
    _power(
        "it names success, praise or grades",
        r"\b(?:solved|resolved)\b|\bsuccess|\btask (?:is |as )?(?:complete|done|finished)|\brat(?:e|ed"
        r"|ing)s?\b|\bgrad(?:e|er|ing)\b|\bjudges?\b|\bevaluat|\breward",
        r"\bexpert|\bpolicies (?:were |are )?followed|\bas (?:done|complete|completed|fixed)\b|\bpassed all\b"
        r"|\bfull marks|\b10 ?/ ?10\b|\bfive stars",
        r"\berledigt|\bgelöst|\berfolg|\bbewert|\bbenot|\bsterne\b|\bgutachter|\bexperte",
        r"\brecommend|\badvertis|\bpromot|\bendors|\bpraise|\bprefer (?:the )?brand|\bempfehl|\bempfiehl"
        r"|\bbewirb|\bwerb(?:e|en|ung)\b|\bcompetitor",
    ),
    _power(
        "it has something done at once, always or without end",
        _near(
            _AT_ONCE,
            r"\b(?:cancel|delet|remov|approv|agree|grant|confirm|overwrit|book|stornier|lösch|genehmig|kündig"
            r"|überschreib|buch)\w*",
            30,
        ),
        _near(r"\b(?:cancel|delet|remov|approv|agree|grant|overwrit|stornier|lösch|genehmig|kündig)\w*", _AT_ONCE, 30),
        _near(
            r"\b(?:repeat|retry|retries|again|try|call|wiederhol|versuch)\w*",
            r"\b(?:until|bis|forever|endless|unlimited|indefinite|(?:\d{2,}|hundred|thousand|hundert"
            r"|tausend)\w* (?:times|mal))",
        ),
        r"\bforever\b|\bendless|\binfinite|\bunendlich|\bendlos",
    ),
)
"""The reasons, each with what names it. Wide on purpose: a rule that is held is not lost, a person looks at it."""
