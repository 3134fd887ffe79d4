"""What all pages share: addresses, values as a reader sees them, filters, who may come in, templates and shipped files; and
what is drawn in them."""

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from journeyman.core import plan as plan_json
from journeyman.core.errors import InputError, PlanError
from journeyman.core.format import counted, noun
from journeyman.core.format import money as money
from journeyman.core.format import seconds as seconds
from journeyman.core.plan import MARKS, Plan, Subtask, SubtaskState
from journeyman.core.trace import AgentCall, ModelCall, Step, Trace
from journeyman.io.http_server import TokenGuard, is_of, known_token
from journeyman.stores.traces.base import AGENTS, Query
from journeyman.tracing.redaction import is_length

# Ids and filters as parts of addresses. Whatever an id holds, its address leads back to it.

MOST_FIELDS = 100

_PLAIN = re.compile(r"[\w@+=,:-][\w@+=,:.-]*(?:/[\w@+=,:-][\w@+=,:.-]*)*", re.ASCII)


def name(id: str) -> str:
    """An id as it stands in an address: itself where that is safe, else `~` and its bytes in base64.

    A browser would take `..` and `//` for a way to elsewhere, and has no way to write half a surrogate pair.
    """
    if _PLAIN.fullmatch(id) and len(id) <= 500:
        return quote(id, safe="/@+=,:")
    return "~" + base64.urlsafe_b64encode(id.encode(errors="surrogatepass")).decode().rstrip("=")


def id_of(name: str) -> str:
    """The id that a name stands for, percent signs resolved or not; where it stands for none, the name itself."""
    if not name.startswith("~"):
        return name
    try:
        return base64.urlsafe_b64decode(name[1:] + "=" * (-len(name[1:]) % 4)).decode(errors="surrogatepass")
    except (binascii.Error, ValueError):
        return name


def encoded(fields: Mapping[str, str]) -> str:
    """`?a=1&b=2`, or nothing."""
    return "?" + "&".join(f"{_quoted(key)}={_quoted(value)}" for key, value in fields.items()) if fields else ""


def to_traces(fields: Mapping[str, str] | None, said: str, count: int, **more: str) -> str:
    """A number of traces, and the way to exactly these; only what is said where there are none, or no filter leaves them.

    Not a macro of a template, as a page has hundreds. `data-n` says how many there are where the words do not.
    """
    if fields is None or not count:
        return said
    many = "" if said == f"{count:,}" else f' data-n="{count}"'
    return Markup(f'<a href="/traces{escape(encoded({**fields, **more}))}"{many}>{escape(visible(said))}</a>')  # noqa: S704


_UNQUOTED = re.compile(r"[\w.~-]*", re.ASCII)


def _quoted(text: str) -> str:
    # A page has a thousand, mostly days and plain names.
    return text if _UNQUOTED.fullmatch(text) else quote_plus(text, errors="surrogatepass")


def decoded(text: bytes | str) -> dict[str, str]:
    """The fields of a query or a form, of one name the last; bytes that are no text become U+FFFD.

    Raises:
        InputError: There are more fields than any of our forms has.
    """
    raw = text.decode("latin-1") if isinstance(text, bytes) else text
    try:
        pairs = parse_qsl(raw, encoding="latin-1", max_num_fields=MOST_FIELDS)
    except ValueError:
        raise InputError(f"an address or form of ours has no more than {MOST_FIELDS} fields") from None
    return {_text(key): _text(value) for key, value in pairs}


def _text(latin: str) -> str:
    raw = latin.encode("latin-1", errors="replace")
    try:
        return raw.decode(errors="surrogatepass")
    except UnicodeDecodeError:
        return raw.decode(errors="replace")


def local(path: str) -> str:
    """A path of this server as it is; `/` for anything that a browser could take for another place."""
    plain = path.isprintable() and path.isascii() and "\\" not in path
    return path if plain and path.startswith("/") and not path.startswith("//") else "/"


# Values as a reader sees them. What is unknown is said so, and is never 0.

_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_PRETTY_UP_TO = 200_000
"""Characters of a JSON text that is set out in lines; a longer one is shown as it came."""


def visible(value: Any) -> Any:
    """A text in which nothing hides: control characters, marks that turn the direction of writing and halves of surrogate
    pairs are written as `[U+202E]`. Anything else passes as it is."""
    if type(value) is not str or (value.isascii() and value.isprintable()):
        return value
    return _HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", value.replace("\r\n", "\n"))


def count(value: float | None) -> str:
    """12,345; or `unknown`."""
    return "unknown" if value is None else f"{value:,.0f}"


def short(value: int | None) -> str:
    """12.3k; or `?`."""
    if value is None:
        return "?"
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}" if value < 999.5 * size else f"{value / size:.0f}{unit}"
    return str(value)


def share(value: float | None) -> str:
    """0.25 as 25%; or `?`."""
    return "?" if value is None else f"{value:.0%}" if value in (0, 1) or 0.01 <= value <= 0.99 else f"{value:.1%}"


def reward(value: float | None) -> str:
    """Two digits behind the point; or `unknown`."""
    return "unknown" if value is None else f"{value:.2f}"


def when(value: datetime, *, now: datetime | None = None, kind: str = "") -> Markup | str:
    """A time in UTC: of today the hour, else the date as well. 1970 stands for a record that had no time.

    Args:
        kind: The class of the element that says it.
    """
    moment = value.astimezone(UTC)
    if moment.timestamp() == 0:
        return Markup('<time class="{}">no time</time>').format(kind) if kind else "no time"
    is_today = now is not None and moment.date() == now.astimezone(UTC).date()
    said, exact = f"{moment:%H:%M:%S}" if is_today else f"{moment:%Y-%m-%d %H:%M}", f"{moment:%Y-%m-%d %H:%M:%S}+00:00"
    of = Markup(' class="{}"').format(kind) if kind else ""
    return Markup('<time{} datetime="{}" title="{}">{}</time>').format(of, exact.replace(" ", "T"), exact, said)


def why_unpriced(tokens: int | None, models: Sequence[str | None]) -> str:
    """Why what asked these models has no cost, and what would give it one.

    Args:
        tokens: Of all it read; `None` where nobody counted them.
    """
    named = next((one_line(model, 60) for model in models if model), None)
    if named is None:
        return "cost unknown: which model was asked is not known"
    if tokens is None:
        return "cost unknown: nobody counted its tokens"
    return f'cost unknown: no list has a price for {named}; [prices."{named}"] in journeyman.toml sets one'


def pretty(text: str) -> str:
    """JSON set out in lines; any other text as it is."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > _PRETTY_UP_TO:
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def raw(value: Any) -> str:
    """What a recorder noted beside, as JSON."""
    try:
        return json.dumps(
            value, indent=2, ensure_ascii=False, default=lambda odd: dict(odd) if isinstance(odd, Mapping) else str(odd)
        )
    except (ValueError, TypeError, RecursionError):
        return repr(value)


_PAIRS = 12


def pairs(text: str) -> list[tuple[str, str]]:
    """What a small JSON object says, key by key; nothing for any other text."""
    if text[:1] != "{" or len(text) > 2_000:
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    plain = len(found) <= _PAIRS and all(isinstance(value, str | int | float | None) for value in found.values())
    return [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in found.items()] if plain else []


def one_line(text: str, most: int = 120) -> str:
    """The beginning of a text, its white space folded."""
    folded = " ".join(text[: 4 * most].split())
    return folded if len(folded) <= most and len(text) <= 4 * most else folded[: most - 1].rstrip() + "…"


# The list's filters: as fields of an address, and as a query of the store.

FIELDS = (
    "q", "agent", "model", "tool", "label", "error", "min_reward", "max_reward", "since", "until",
    "task", "session", "domain", "source", "candidate", "scored",
)  # fmt: skip
"""The first ten have a field in the form; the others come by links."""
QUICK = (
    ("With errors", "error", "yes"), ("Labelled bad", "label", "bad"), ("Labelled good", "label", "good"),
    ("Not labelled", "label", "none"), ("Last 24 hours", "since", "24h"), ("Without trainings", "source", AGENTS),
)  # fmt: skip
"""The filters that are asked for most: what the page calls each, and what it is in an address."""
UNNAMED = "(unknown)"
"""Stands in an address for traces that name no agent."""
_ANSWERS = {"yes": True, "no": False}
ENDED = "ended"
"""Of errors, those that the trace itself, or a call in it, ended in: a tool that refused is none of them."""
_LABELS = ("good", "bad", "none", "some")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def filters_of(fields: Mapping[str, str]) -> dict[str, str]:
    """The filters among the fields of an address, as they were typed: a blank behind a word that is looked for ends it."""
    return {key: fields[key].lstrip() if key == "q" else fields[key].strip() for key in FIELDS if fields.get(key, "").strip()}


def query_of(typed: Mapping[str, str], now: datetime) -> Query:
    """What the filters mean.

    Raises:
        InputError: One of them means nothing; the message names it.
    """
    label = typed.get("label")
    if label not in (None, *_LABELS):
        raise InputError(f"label: {label!r} is none of {', '.join(_LABELS)}")
    if typed.get("error") not in (None, ENDED, *_ANSWERS):
        raise InputError(f"error: {typed['error']!r} is none of yes, no, {ENDED}")
    if typed.get("scored") not in (None, *_ANSWERS):
        raise InputError(f"scored: {typed['scored']!r} is neither yes nor no")
    return Query(
        agent="" if typed.get("agent") == UNNAMED else typed.get("agent"),
        model=typed.get("model"),
        tool=typed.get("tool"),
        task_id=typed.get("task"),
        session=typed.get("session"),
        domain=typed.get("domain"),
        source=typed.get("source"),
        candidate_id=typed.get("candidate"),
        label={"good": True, "bad": False}.get(label or ""),
        labelled={"none": False, "some": True}.get(label or ""),
        min_reward=_number_of(typed, "min_reward"),
        max_reward=_number_of(typed, "max_reward"),
        failed=_ANSWERS.get(typed.get("error", "")),
        ended_in_error=typed.get("error") == ENDED or None,
        scored=_ANSWERS.get(typed.get("scored", "")),
        text=typed.get("q"),
        since=_moment_of(typed, "since", now),
        until=_moment_of(typed, "until", now),
    )


def _number_of(typed: Mapping[str, str], field: str) -> float | None:
    text = typed.get(field)
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", text, re.ASCII) or len(text) > 20:
        raise InputError(f"{field.replace('_', ' ')}: {text!r} is no number, such as 0.5")
    return float(text)


def _moment_of(typed: Mapping[str, str], field: str, now: datetime) -> datetime | None:
    """`7d` is that long ago; else a date or time, in UTC where it names no zone."""
    text = typed.get(field)
    if text is None:
        return None
    try:
        if ago := re.fullmatch(r"(\d{1,6})\s*([mhdw])", text, re.ASCII):
            # By the minute, so that what is counted of it is counted once for a while.
            return (now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).replace(second=0, microsecond=0)
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(
            f"{field}: {text!r} is no time, such as 2026-01-31, 2026-01-31 18:00 or 24h for the last day"
        ) from None


# Who may see a page, who may send a form, and what a browser is told not to do with either.

COOKIE = "journeyman"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""On every answer. What stands in a trace was written by strangers: the browser runs and loads nothing that we did not ship."""


class Guard(TokenGuard):
    """With tokens, a request needs one of them: as `Authorization: Bearer …`, or as the cookie that the login page gives."""

    def __init__(self, tokens: Sequence[str] = ()) -> None:
        super().__init__(tokens)
        self._form = secrets.token_bytes(_FORM_BYTES)

    @property
    def form_token(self) -> str:
        """What every form carries. Other origins cannot read it; it changes when the server starts anew.

        It stands behind another mask each time: a page is compressed, and what stood there alike each time, beside words that
        strangers choose, could be guessed from the page's length (BREACH).
        """
        mask = secrets.token_bytes(_FORM_BYTES)
        return (mask + _masked(self._form, mask)).hex()

    def _is_form_token(self, token: str) -> bool:
        try:
            given = bytes.fromhex(token)
        except ValueError:
            return False
        return hmac.compare_digest(_masked(given[_FORM_BYTES:], given[:_FORM_BYTES]), self._form)

    def cookie(self, token: str) -> str | None:
        """The value of the cookie that stands for a token, or `None` where the token is not one of ours."""
        known = self.token(token.encode(errors="replace"))
        return None if known is None else _derived(known)

    def admits(self, *, authorization: str, cookie: str) -> bool:
        """Whether a request with this `Authorization` header and this value of the cookie carries a token."""
        if self.bearer(authorization.encode(errors="replace")) is not None:
            return True
        return known_token(cookie.encode(errors="replace"), [_derived(known) for known in self._tokens]) is not None

    def wrong_form(self, headers: Mapping[str, str], token: str) -> str | None:
        """Why a form is not accepted; `None` when it is one of our pages that sent it."""
        site = headers.get("sec-fetch-site")
        origin = headers.get("origin", "null")
        # A page that sends no referrer sends the origin "null"; where the browser says more, it is `Sec-Fetch-Site`.
        foreign = site not in (None, "same-origin") or (origin != "null" and not is_of(origin, headers.get("host", "")))
        if foreign:
            return "This form was sent by another site, so nothing was done."
        if not self._is_form_token(token):
            return "This page is from before the server last started, so nothing was done: load it again."
        return None


_FORM_BYTES = 16


def _masked(value: bytes, mask: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(value, mask, strict=False))


def _derived(token: str) -> str:
    """What the cookie holds: whoever reads it has no token."""
    return hmac.new(token.encode(), b"journeyman pages", hashlib.sha256).hexdigest()


# The templates, the way a refusal looks, and the files that a browser loads.

_HERE = Path(__file__).parent
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


WATCHED = (("Watch", (("/traces", "Traces"), ("/sessions", "Sessions"), ("/performance", "Performance"))),)
OVERVIEW = (("", (("/", "Overview"), ("/alerts", "Alerts"), ("/system", "System"))),)
PROJECT = (
    (
        "Learn",
        (
            ("/documents", "Documents"),
            ("/tasks", "Tasks"),
            ("/datasets", "Datasets"),
            ("/learn", "Learning"),
            ("/runs", "Runs"),
            ("/evaluations", "Evaluations"),
        ),
    ),
    (
        "Ship",
        (
            ("/playbooks", "Playbooks"),
            ("/releases", "Releases"),
            ("/playground", "Playground"),
            ("/audit", "Audit"),
        ),
    ),
)
"""What the rail leads to: over traces, and over all that a project's store knows."""
ALSO_CALLED = (
    ("/runs", "Training progress"), ("/performance", "Model performance"), ("/system", "System health"),
    ("/releases", "A/B test results"), ("/system#resources", "Resource utilization"),
)  # fmt: skip
"""Pages by other names that people look for."""


_OPEN = ("login.html", "refused.html")


class PageRefused(Exception):
    """The page is not given, and the sentence says why."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class PageRenderer:
    """Fills templates. Every value is escaped, and what would hide in a text is made visible."""

    def __init__(
        self,
        guard: Guard,
        who: str,
        *,
        project: bool = False,
        demo: bool = False,
        counts: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """
        Args:
            demo: Whether what is shown was made up by a demo, which each page then says.
            counts: How many things there are behind each address of the rail, where that is known.
        """
        self.guard = guard
        rail = (*(OVERVIEW if project else ()), *WATCHED, *(PROJECT if project else ()))
        pages = [page for _, group in rail for page in group]
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=visible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update({each.__name__: each for each in _FILTERS}, as_json=raw)
        self._templates.globals.update(
            encoded=encoded, to_traces=to_traces, asset=asset, demands=guard.demands, who=who, rail=rail, pages=pages
        )
        self._templates.globals.update(demo=demo, has_project=project, why_unpriced=why_unpriced)
        self._templates.globals["also"] = ALSO_CALLED if project else ()
        self._counts = counts

    def page(self, template: str, status: int = HTTPStatus.OK, /, **values: Any) -> Response:
        """A filled template as an answer."""
        return HTMLResponse(self.text(template, **values), status_code=int(status))

    def text(self, template: str, /, **values: Any) -> bytes:
        """A filled template. What has no place in UTF-8 is `?`.

        Args:
            values: With `anew`, its own address, the page is drawn again every few seconds while somebody looks on.
        """
        given = {"now": datetime.now(UTC), "token": self.guard.form_token, "here": "", "anew": "", **values}
        # Whoever is not let in learns nothing; what is no whole page asks for nothing.
        given["counts"] = dict if template in _OPEN else self._counts
        return self._templates.get_template(template).render(given).encode(errors="replace")

    def refused(self, request: Request, status: HTTPStatus, sentence: str) -> Response:
        """The answer to what cannot be had: for a script one sentence, for a person a page, or the one to sign in at."""
        wants_page = "text/html" in request.headers.get("accept", "") and "hx-request" not in request.headers
        if not wants_page:
            return Response(visible(sentence).encode(errors="replace"), int(status), media_type="text/plain; charset=utf-8")
        if status == HTTPStatus.UNAUTHORIZED:
            to = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
            return RedirectResponse("/login" + encoded({"to": to}), status_code=HTTPStatus.SEE_OTHER)
        return self.page("refused.html", status, title=status.phrase, sentence=sentence)


def without(fields: Mapping[str, str], key: str) -> dict[str, str]:
    """The fields but one."""
    return {each: value for each, value in fields.items() if each != key}


def plus(fields: Mapping[str, str], **more: str) -> dict[str, str]:
    """The fields, and others that are not empty."""
    return {**fields, **{key: value for key, value in more.items() if value}}


def mark(id: str) -> str:
    """An id as one that HTML and CSS take without quoting."""
    return "t" + hashlib.blake2b(id.encode(errors="surrogatepass"), digest_size=6).hexdigest()


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """The shipped files with their types, read once."""
    found = {path.name: path for path in (_HERE / "static").iterdir() if path.suffix[1:] in _TYPES}
    return {name: (path.read_bytes(), _TYPES[path.suffix[1:]]) for name, path in found.items()}


@cache
def asset(name: str) -> str:
    """The address of a shipped file. It changes with the content, so a browser may keep it for good."""
    return f"/static/{name}?v={hashlib.blake2b(_files()[name][0], digest_size=6).hexdigest()}"


async def static(request: Request) -> Response:
    """A shipped file."""
    body, kind = _files().get(request.path_params["name"], (None, "text/plain"))
    if body is None:
        return Response("no such file", HTTPStatus.NOT_FOUND, media_type="text/plain")
    return Response(body, headers=_FOREVER, media_type=kind)


_FILTERS = (
    count, counted, noun, short, money, seconds, share, reward, when, pretty, one_line, pairs, is_length,
    name, mark, without, plus,
)  # fmt: skip
"""What a template can say behind `|`."""


# The plan of a trace as a graph: levels from left to right, drawn here as SVG.
#
# The layout is Sugiyama's, in its simplest form: long edges get a place on each level they cross, and what stands on a level is
# ordered by the middle of its neighbours, back and forth.

MOST = 150
"""Subtasks of a plan that is drawn; a larger one would be no picture."""
WIDTH, HEIGHT = 188, 66
"""Of a box."""
_GAP_X, _GAP_Y, _EDGE = 44, 14, 12
"""Between levels, between rows, and the height of an edge that passes by."""
_LETTERS = 23
"""Of a line in a box."""
_SWEEPS = 4
_MOST_SPOTS = 3000
"""Of all edges together: whoever wrote the trace decides how many there are."""

_Spot = str | tuple[str, str, int]
"""A subtask by its id, or a place that the edge between two of them has on a level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A subtask in the graph."""

    x: float
    y: float
    lines: tuple[str, ...]
    """What is to be done, in one line or two."""
    below: str
    """Who does it, and what it took."""
    state: str
    """A `State`, or "planned" where nobody knows what became of it."""
    mark: str
    says: str
    """All of it, for whoever points at it or has it read out."""
    step: int | None
    """The number of the step that tells of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    width: float
    height: float
    boxes: tuple[Box, ...]
    edges: tuple[tuple[str, bool], ...]
    """Paths, and whether an output went along."""
    says: str
    box: tuple[int, int] = (WIDTH, HEIGHT)


def graph(trace: Trace) -> Graph | None:
    """The graph; `None` where the trace tells of no plan, or of one that is too large to be drawn."""
    found = _plan(trace)
    if found is None or not found.subtasks or len(found.subtasks) > MOST:
        return None
    ways = _ways(found)
    if sum(map(len, ways.values())) > _MOST_SPOTS:
        return None
    told: dict[str, tuple[int, Step]] = {}
    for number, step in enumerate(trace.steps, start=1):
        told.setdefault(_id(step), (number, step))
    levels = _ordered(found, ways)
    spots = _places(levels)
    states = {subtask.id: _state(told.get(subtask.id)) for subtask in found.subtasks}
    boxes = tuple(_box(subtask, spots[subtask.id], states[subtask.id], told.get(subtask.id)) for subtask in found.subtasks)
    edges = tuple(
        (_path(way, spots), states[before] == SubtaskState.DONE and states[after] != SubtaskState.SKIPPED)
        for (before, after), way in ways.items()
    )
    states_said = [f"{list(states.values()).count(state)} {state}" for state in dict.fromkeys(states.values())]
    return Graph(
        width=len(levels) * (WIDTH + _GAP_X) - _GAP_X + 2,
        height=max(y for _, y in spots.values()) + HEIGHT / 2 + 1,
        boxes=boxes,
        edges=edges,
        says=f"{counted(len(boxes), 'subtask')} on {counted(len(levels), 'level')}: {', '.join(states_said)}",
    )


def _id(step: Step) -> str:
    id = step.raw.get("subtask")
    return id if isinstance(id, str) else ""


def _plan(trace: Trace) -> Plan | None:
    """As the trace holds it, or as its steps tell what they followed."""
    given = trace.raw.get("plan")
    try:
        if isinstance(given, Mapping):
            rows = given.get("subtasks")
            return plan_json.read(given) if isinstance(rows, Sequence) and len(rows) <= MOST else None
        steps = [step for step in trace.steps if isinstance(step, AgentCall) and _id(step)][: MOST + 1]
        return Plan.of(trace.query, [_subtask(step) for step in steps])
    except PlanError:
        return None


def _subtask(step: AgentCall) -> Subtask:
    after = step.raw.get("after")
    return Subtask(
        id=_id(step),
        text=step.input,
        type=str(step.raw.get("type", "general")),
        worker=step.agent,
        after=tuple(map(str, after)) if isinstance(after, list | tuple) else (),
    )


def _ways(plan: Plan) -> Mapping[tuple[str, str], list[_Spot]]:
    """The spots that each edge passes, from its first subtask to its last."""
    depth = {id: at for at, ids in enumerate(plan.levels) for id in ids}
    return {
        (before, after): [before, *((before, after, at) for at in range(depth[before] + 1, depth[after])), after]
        for before, after in plan.edges
    }


def _ordered(plan: Plan, ways: Mapping[tuple[str, str], Sequence[_Spot]]) -> list[list[_Spot]]:
    """Who stands on which level, in an order in which few edges cross."""
    levels: list[list[_Spot]] = [list(ids) for ids in plan.levels]
    links: dict[_Spot, list[_Spot]] = {}
    for way in ways.values():
        for spot in way:
            if isinstance(spot, tuple):
                levels[spot[2]].append(spot)
        for one, other in pairwise(way):
            links.setdefault(one, []).append(other)
            links.setdefault(other, []).append(one)
    for sweep in range(_SWEEPS):
        rows = range(1, len(levels)) if sweep % 2 == 0 else range(len(levels) - 2, -1, -1)
        for row in rows:
            beside = levels[row - 1 if sweep % 2 == 0 else row + 1]
            places = {spot: at / max(1, len(beside) - 1) for at, spot in enumerate(beside)}
            levels[row] = _by_middle(levels[row], places, links)
    return levels


def _by_middle(level: Sequence[_Spot], places: Mapping[_Spot, float], links: Mapping[_Spot, Sequence[_Spot]]) -> list[_Spot]:
    def middle(at: int, spot: _Spot) -> float:
        near = [places[each] for each in links.get(spot, ()) if each in places]
        # Who has no neighbour there stays about where it is.
        return sum(near) / len(near) if near else at / max(1, len(level) - 1)

    keys = {spot: middle(at, spot) for at, spot in enumerate(level)}
    return sorted(level, key=keys.__getitem__)


def _places(levels: Sequence[Sequence[_Spot]]) -> Mapping[_Spot, tuple[float, float]]:
    """The left end and the middle of each spot's height; every level is centred."""
    sizes = [[HEIGHT if isinstance(spot, str) else _EDGE for spot in level] for level in levels]
    heights = [sum(size) + _GAP_Y * (len(size) - 1) for size in sizes]
    spots: dict[_Spot, tuple[float, float]] = {}
    for column, (level, size, height) in enumerate(zip(levels, sizes, heights, strict=True)):
        top = 1 + (max(heights) - height) / 2
        for spot, tall in zip(level, size, strict=True):
            spots[spot] = (1 + column * (WIDTH + _GAP_X), top + tall / 2)
            top += tall + _GAP_Y
    return spots


def _path(way: Sequence[_Spot], spots: Mapping[_Spot, tuple[float, float]]) -> str:
    """From the right end of one box to the left end of another, past those between."""
    x, y = spots[way[0]]
    x += WIDTH
    parts = [f"M{x:g} {y:g}"]
    for spot in way[1:]:
        to_x, to_y = spots[spot]
        parts.append(f"C{x + _GAP_X / 2:g} {y:g} {to_x - _GAP_X / 2:g} {to_y:g} {to_x:g} {to_y:g}")
        x, y = to_x, to_y
        if isinstance(spot, tuple):
            x += WIDTH
            parts.append(f"H{x:g}")
    return "".join(parts)


def _state(told: tuple[int, Step] | None) -> str:
    """As its step says; where that says nothing, by whether there is an error or an output."""
    step = told[1] if told else None
    if not isinstance(step, AgentCall | ModelCall):
        return "planned"
    if (state := step.raw.get("state")) in list(SubtaskState):
        return str(state)
    if step.error is not None:
        return str(SubtaskState.FAILED)
    brought = step.output if isinstance(step, AgentCall) else step.reply
    return str(SubtaskState.DONE) if brought else "planned"


def _box(subtask: Subtask, spot: tuple[float, float], state: str, told: tuple[int, Step] | None) -> Box:
    number, step = told if told else (None, None)
    cost = getattr(step, "cost", None) if isinstance(step, ModelCall) else step.raw.get("cost") if step else None
    cost = cost if isinstance(cost, int | float) and not isinstance(cost, bool) else None
    took = step.seconds if step else None
    ran = step is not None and state not in (SubtaskState.SKIPPED, "planned")
    who = _who(subtask, step)
    error = getattr(step, "error", None)
    facts = [
        f"took {seconds(took)}" if took is not None else "time unknown",
        f"cost {money(cost)}" if cost is not None else "cost unknown",
    ]
    return Box(
        x=spot[0],
        y=round(spot[1] - HEIGHT / 2, 2),
        lines=_lines(subtask.text or subtask.id),
        below=" · ".join([who, *([seconds(took), money(cost)] if ran else [])]),
        state=state,
        mark=next((mark for each, mark in MARKS.items() if each == state), ""),
        says=_sentence(
            [f"{subtask.id}: {one_line(subtask.text, 200)}", state, f"by {who}", subtask.type, *(facts if ran else []), error]
        ),
        step=number,
    )


def _lines(text: str) -> tuple[str, ...]:
    return tuple(textwrap.wrap(one_line(text, 200), _LETTERS, max_lines=2, placeholder="…"))


def _who(subtask: Subtask, step: Step | None) -> str:
    did = step.agent if isinstance(step, AgentCall) else step.model if isinstance(step, ModelCall) else ""
    return one_line(did or subtask.worker or subtask.tool or "nobody yet", 40)


def _sentence(parts: Iterable[str | None]) -> str:
    return "; ".join(one_line(part, 200) for part in parts if part)
