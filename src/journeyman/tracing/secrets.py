"""What keys, tokens and passwords look like in a text, and where they stand in it.

Most texts hold no secret, so what matters is how fast that is seen. A key is long and of one piece, and one pass over a text
tells whether it has so long a piece at all. Only such pieces are compared with the forms of keys, and what stands before them
with the names of keys; only passwords, which may be short, are looked for by name everywhere.

Forms of keys are those that their issuers document, or that GitHub's and GitLab's secret scanning, gitleaks and
detect-secrets look for.
"""

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Span = tuple[int, int, str]
"""From, to, and the kind of what stands there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKind:
    """One kind of secret."""

    name: str
    anchors: tuple[bytes, ...]
    """In lower case; one of them stands in every secret of the kind, or in the name before it."""
    pattern: re.Pattern[str]
    """Tried where an anchor stands; what goes is its group `secret`."""
    check: Callable[[str], bool] = bool
    """Whether the group is a secret after all."""


def find(text: str) -> Iterator[Span]:
    """Every secret in a text, in no order; they may overlap. Also one with letters that JSON has escaped: `\\u0073k-…`."""
    yield from _find(text)
    if "\\u00" in text or "\\/" in text:
        yield from _escaped(text)


def _escaped(text: str) -> Iterator[Span]:
    """The secrets that are there once escapes of ASCII are undone, where they stand in the text as it is."""
    parts, lengths, ends = [], [0], [0]
    for found in _ESCAPE.finditer(text):
        parts += [text[ends[-1] : found.start()], chr(int(found[1], 16)) if found[1] else "/"]
        lengths += [lengths[-1] + len(parts[-2]), lengths[-1] + len(parts[-2]) + 1]
        ends += [found.start(), found.end()]
    if parts:
        for start, end, kind in _find("".join([*parts, text[ends[-1] :]])):
            yield _original_position(start, lengths, ends), _original_position(end, lengths, ends), kind


def _original_position(at: int, lengths: Sequence[int], ends: Sequence[int]) -> int:
    known = bisect_right(lengths, at) - 1
    return ends[known] + at - lengths[known]


def _find(text: str) -> Iterator[Span]:
    # As many bytes as characters, so that places are the same in both.
    raw = text.encode("latin-1", "replace")
    low = raw.lower()
    for anchor, kinds in _EVERYWHERE:
        if anchor in low:
            yield from _at(text, low, anchor, kinds, 0, len(low))
    for start, end in _pieces(raw):
        yield from _near(text, low, start, end)


def suspected(body: bytes) -> bool:
    """Whether a secret, or the name of one, may stand in bytes in which texts stand between other things, as in protobuf.
    `False` is certain.

    A length or a tag before or behind a key can look like a letter of it, so what is compared with forms of keys in a text is
    here only looked for by how they begin.
    """
    # Every span is looked through: what is looked for more than once is looked for once.
    low = body.lower()
    passes, keys = b"pass" in low, b"key" in low
    if _named(low, passes=passes, keys=keys):
        return True
    text = body.decode("latin-1")
    if _BASIC.search(low) or (b"\\" in low and _ESCAPE.search(text)):
        return True
    # The other anchors of what may be short are names, too.
    for anchor, there in ((b"pass", passes), (b"key", keys), (b"://", b"://" in low)):
        if there and any(_at(text, low, anchor, _SHORT[anchor], 0, len(low))):
            return True
    for start, end in _pieces(body):
        if _ISSUED_ANCHORS.search(low, max(0, start - _LEAD), end) or any(_following(text, low, start)):
            return True
    return False


def begins(text: str) -> bool:
    """Whether a key that can be told by its form may begin in a text. `False` is certain, and soon said."""
    return _ISSUED_ANCHORS.search(text.lower().encode("latin-1", "replace")) is not None


def _pieces(raw: bytes) -> Iterator[tuple[int, int]]:
    """From where to where the long pieces go that may be keys."""
    pieces = raw.translate(_AS_PIECES)
    start = pieces.find(_LONG)
    while start >= 0:
        end = pieces.find(b" ", start)
        end = end if end >= 0 else len(pieces)
        # What has no digit is the name of something.
        if len(raw[start:end].translate(None, b"0123456789")) < end - start:
            yield start, end
        start = pieces.find(_LONG, end)


def _near(text: str, low: bytes, start: int, end: int) -> Iterator[Span]:
    """The secrets that a long piece belongs to."""
    if _ISSUED_ANCHORS.search(low, max(0, start - _LEAD), end):
        for anchor, kinds in _ISSUED:
            yield from _at(text, low, anchor, kinds, max(0, start - _LEAD), end)
    yield from _following(text, low, start)


def _following(text: str, low: bytes, start: int) -> Iterator[Span]:
    """Those that are told by what stands before a long piece."""
    begin = max(0, start - _REACH)
    before = low[begin:start]
    for anchor, kinds in _BEFORE:
        if anchor in before:
            yield from _at(text, low, anchor, kinds, begin, start)


def _at(text: str, low: bytes, anchor: bytes, kinds: Sequence[SecretKind], start: int, end: int) -> Iterator[Span]:
    at = low.find(anchor, start, end)
    while at >= 0:
        behind = at + len(anchor)
        for kind in kinds:
            if (found := kind.pattern.match(text, at)) and kind.check(found["secret"]):
                yield found.start("secret"), found.end("secret"), kind.name
                behind = max(behind, found.end("secret"))
        at = low.find(anchor, behind, end)


def is_secret_name(name: str) -> bool:
    """Whether what stands under a name is a secret: "Authorization", "x-api-key", "dbPassword"; not "max_tokens"."""
    words = _CAMEL.sub("_", name).lower()
    return _NAME.search(_NOT_WORD.sub("_", words).strip("_")) is not None


def _named(low: bytes, *, passes: bool, keys: bool) -> bool:
    """Whether the name of a secret may stand anywhere in it. `False` is certain.

    Args:
        passes: Whether "pass" does.
        keys: Whether "key" does.
    """
    return (
        any([word in low for word in _WORDS_OF_NAMES])
        or (passes and (b"passw" in low or b"passphrase" in low))
        or (b"connection" in low and (b"connectionstring" in low or b"connection_string" in low))
        or (keys and _named_before(low, b"key", _BEFORE_KEY))
        or _named_before(low, b"token", _BEFORE_TOKEN)
    )


def _named_before(low: bytes, word: bytes, before: tuple[bytes, ...]) -> bool:
    at = low.find(word)
    while at >= 0:
        if low[max(0, at - 13) : at].rstrip(b"_-. ").endswith(before):
            return True
        at = low.find(word, at + 1)
    return False


def looks_random(value: str) -> bool:
    """Whether a text could be a key: long, of one piece, digits among letters."""
    return len(value) >= 16 and _RANDOM.fullmatch(value) is not None and not _PLAIN.fullmatch(value)


def is_placeholder(value: str) -> bool:
    """Whether a text only stands for a secret: `${PASSWORD}`, `<your key>`, `****`, `[redacted password]`, `string`."""
    return _PLACEHOLDER.match(value) is not None


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_NAME = re.compile(
    r"(?:^|_)(?:authorization|cookies?|password|passwd|pwd|passphrase|credentials?|secrets?|signature_key"
    r"|(?:api|access|private|account|secret|signing|encryption|shared_access|subscription|master|service_account|auth)_?key"
    r"|apikey|(?:access|auth|refresh|id|session|bearer|api|bot|csrf|xsrf|device|client|security|personal|oauth)_?token"
    r"|secret_?token|client_?secret|connection_?string)(?:_(?:id_)?(?:hash|value|base64|plain|text|secret))?$|^token$"
)
_WORDS_OF_NAMES = (b"authorization", b"cookie", b"pwd", b"secret", b"credential")
_BEFORE_KEY = (b"api", b"access", b"private", b"account", b"signing", b"encryption", b"subscription", b"master", b"auth")
_BEFORE_TOKEN = (b"access", b"auth", b"refresh", b"id", b"session", b"bearer", b"api", b"bot", b"csrf", b"xsrf", b"device",
                 b"client", b"security", b"personal", b"oauth")  # fmt: skip
_RANDOM = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_.~+/=:%-]+", re.ASCII)
_PLAIN = re.compile(
    r"[a-z]+(?:[_.-](?:[a-z]+|v?[0-9]{1,4}))*|[0-9.:TZ+-]+|\S*://\S*|\w+\.(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*", re.ASCII
)
_PLACEHOLDER = re.compile(
    r"[<{$*%\[(]|x{3,}|\.{3}|…|\W*$"
    r"|(?:string|null|none|nil|true|false|undefined|password|passwd|passphrase|secret|token|pass|pwd|user|changeme|redacted|removed|hidden|masked"
    r"|test|dummy|fake|example|placeholder|required|optional|empty|not[_ -]needed|no[_-]?key|unknown|n/a)\W*$"
    r"|(?:your|my|the|some|insert|example|dummy|fake|test|sample|placeholder|redacted|enter|os\.|env\.|process\.|settings\.|config\.|self\.|getenv)"
    r"[\w .\[\]\"'()-]*$",
    re.I,
)


def _kind(name: str, anchors: str, pattern: str, check: Callable[[str], bool] = bool, flags: int = 0) -> SecretKind:
    return SecretKind(
        name=name, anchors=tuple(anchors.encode().split()), pattern=re.compile(pattern, re.ASCII | flags), check=check
    )


def _has_digit(value: str) -> bool:
    return any(char in "0123456789" for char in value)


def _is_value(value: str) -> bool:
    return not is_placeholder(value)


def _is_random(value: str) -> bool:
    return looks_random(value) and not is_placeholder(value)


def _is_password(value: str) -> bool:
    return not is_placeholder(value) and (_has_digit(value) or any(char in "!@#$%^&*?+~" for char in value))


def _is_key(value: str) -> bool:
    """Of a value whose name says that it is secret: in one piece, and no word."""
    return " " not in value and _has_digit(value) and not is_placeholder(value) and not _PLAIN.fullmatch(value)


def _is_basic(value: str) -> bool:
    try:
        return ":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False


# What stands between a name and its value: `": "`, `=`, ` => `, `\": \"` in JSON within JSON, `>` in XML.
_IS = r"""\\{0,3}["']?\]?\s{0,3}(?::=|=>|[:=>])\s{0,3}"""
_QUOTED = r"""\\{0,3}["'](?P<secret>[^"'\\\r\n\0]{%d,512}+)\\{0,3}["']"""
_BARE = r"""(?P<secret>[^\s"'\\,;&<>(){}\[\]\0]{%d,512}+)(?![(\[{.\w])"""
_BY_WORD = r"(?:password|passwd|passphrase|(?<![a-z])pwd)"
_KEY = (
    r"(?:(?:(?<=api)|(?<=api[ _-])|(?<=access)|(?<=access[ _-])|(?<=private[ _-])|(?<=account)|(?<=account[ _-])"
    r"|(?<=signing[ _-])|(?<=encryption[ _-])|(?<=subscription[ _-])|(?<=master[ _-])|(?<=auth[ _-]))key"
    r"|secret(?:[ _-]?access)?(?:[ _-]?key)?)"
)

ISSUED: tuple[SecretKind, ...] = (
    _kind("anthropic key", "sk-ant-", r"(?<![A-Za-z0-9])(?P<secret>sk-ant-[\w-]{16,})"),
    _kind("openai key", "sk-", r"(?<![\w-])(?P<secret>sk-(?:proj|svcacct|admin|service|None)-[\w-]{16,})"),
    _kind(
        "api key",
        "sk-",
        r"(?<![\w-])(?P<secret>sk-(?:(?:or-v1|lf|or|litellm|ws|helicone|gw|virtual)-)?[A-Za-z0-9]+(?:-[0-9a-f]{4,})*(?![\w-]))",
        lambda value: len(value) >= 20 and _has_digit(value),
    ),
    _kind("aws key", "akia asia abia acca", r"(?<![A-Za-z0-9])(?P<secret>(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16})(?![A-Za-z0-9])"),
    _kind("github token", "ghp_ gho_ ghu_ ghs_ ghr_", r"(?<![A-Za-z0-9])(?P<secret>gh[pousr]_[A-Za-z0-9]{30,255})"),
    _kind("github token", "github_pat_", r"(?P<secret>github_pat_[A-Za-z0-9_]{30,255})"),
    _kind("gitlab token", "glpat- gldt- glrt- glptt-", r"(?<![A-Za-z0-9])(?P<secret>gl(?:pat|dt|rt|ptt)-[\w.-]{18,300})"),
    _kind(
        "slack token",
        "xox xapp-",
        r"(?<![A-Za-z0-9])(?P<secret>(?:xox[abcdeoprs](?:\.xox[bp])?|xapp)-[A-Za-z0-9-]{10,300})",
        _has_digit,
    ),
    _kind("google key", "aiza", r"(?<![A-Za-z0-9])(?P<secret>AIza[\w-]{35})(?![\w-])"),
    _kind("google token", "ya29. gocspx-", r"(?<![A-Za-z0-9])(?P<secret>(?:ya29\.|GOCSPX-)[\w-]{20,})"),
    _kind("hugging face token", "hf_", r"(?<![A-Za-z0-9_])(?P<secret>hf_[A-Za-z]{30,40}|hf_[A-Za-z0-9]{30,40})(?![A-Za-z0-9])"),
    _kind("stripe key", "k_live_ k_test_ whsec_", r"(?:(?<=[sr])k_(?:live|test)_|whsec_)(?P<secret>[A-Za-z0-9+/=]{16,})"),
    _kind(
        "key",
        "gsk_ xai- pplx- nvapi- npm_ dop_v1_ pypi-",
        r"(?<![A-Za-z0-9])(?P<secret>(?:gsk_|xai-|pplx-|npm_|dop_v1_)[A-Za-z0-9]{32,}|(?:nvapi|pypi)-[\w-]{60,})",
        _has_digit,
    ),
    _kind("sendgrid key", "sg.", r"(?<![A-Za-z0-9])(?P<secret>SG\.[\w-]{22}\.[\w-]{43})(?![\w-])"),
    _kind("json web token", "eyj", r"(?<![A-Za-z0-9+/])(?P<secret>eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*)"),
    _kind("slack webhook", "services/t", r"(?<=hooks\.slack\.com/)services/(?P<secret>T[A-Za-z0-9+/]{20,})"),
)
"""Keys that can be told by their form. Each has 16 characters or more in one piece, and its anchor in it or just before it."""

FOLLOWING: tuple[SecretKind, ...] = (
    _kind(
        "private key",
        "-----begin",
        r"(?P<secret>-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[A-Za-z0-9+/=\s\\:,.]{0,9000}+(?:-[A-Za-z0-9+/=\s\\:,.]{1,9000}+){0,5}"
        r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|[A-Za-z0-9+/=\s\\]{40,9000}+))",
    ),
    _kind("bearer token", "bearer", r"bearer\s{1,3}(?P<secret>[A-Za-z0-9._~+/=-]{12,4096})", _is_random, re.I),
    _kind("basic credentials", "basic", r"basic\s{1,3}(?P<secret>[A-Za-z0-9+/]{8,1024}={0,2})(?![\w+/=])", _is_basic, re.I),
    _kind(
        "authorization",
        "authorization",
        r"""authorization\\{0,3}["']?\s{0,3}[:=,]\s{0,3}\\{0,3}["']?(?:[a-z]{3,12}\s{1,3})?(?P<secret>[\w.~+/=:-]{12,4096})""",
        _is_key,
        re.I,
    ),
    _kind(
        "cookie",
        "cookie",
        r"""cookie\\{0,3}["']?\s{0,3}[:=,]\s{0,3}\\{0,3}["']?(?P<secret>[\w.$-]{1,100}=[^\r\n"'\\\0]{6,4096})""",
        flags=re.I,
    ),
    _kind("token", "token", r"""token""" + _IS + r"""\\{0,3}["']?(?P<secret>[\w.~+/=:%-]{16,4096})""", _is_random, re.I),
    _kind("signature", "sig= signature=", r"(?:sig|signature)=(?P<secret>[A-Za-z0-9%+/=_-]{20,1024})", _is_random, re.I),
)
"""Keys that are told by what stands before them."""

ANYWHERE: tuple[SecretKind, ...] = (
    _kind("password", "://", r"""://[^\s/?#:@"'<>\\\0]{0,128}:(?P<secret>[^\s/?#@"'<>\\\0]{1,256})@(?=[\w\[$.-])""", _is_value),
    _kind("password", "pass pwd", _BY_WORD + _IS + _QUOTED % 1, _is_value, re.I),
    _kind("password", "pass pwd", _BY_WORD + r"(?:" + _IS + r"|\s{1,3}is\s{1,3})" + _BARE % 6, _is_password, re.I),
    _kind("password", "pass", r"(?<=--)passw(?:or)?d[ =](?P<secret>[^\s\"'\\]{4,256})", _is_password, re.I),
    _kind("secret", "key secret", _KEY + _IS + _QUOTED % 8, _is_key, re.I),
    _kind("secret", "key secret", _KEY + _IS + _BARE % 8, _is_key, re.I),
)
"""What may be short."""


def _by_anchor(kinds: Sequence[SecretKind]) -> Sequence[tuple[bytes, Sequence[SecretKind]]]:
    anchors = dict.fromkeys(anchor for kind in kinds for anchor in kind.anchors)
    return [(anchor, [kind for kind in kinds if anchor in kind.anchors]) for anchor in anchors]


_ALPHABET = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+/-")
_LONG = b"a" * 16
_AS_PIECES = bytes(97 if code in _ALPHABET else 32 for code in range(256))
_LEAD = 8
"""Bytes before a long piece in which a key's own anchor may stand, where a dot parts the two."""
_REACH = 120
"""Bytes before a long piece in which its name is looked for."""
_EVERYWHERE, _ISSUED, _BEFORE = map(_by_anchor, (ANYWHERE, ISSUED, FOLLOWING))
_SHORT = dict(_EVERYWHERE)
_ISSUED_ANCHORS = re.compile(b"|".join(re.escape(anchor) for anchor, _ in _ISSUED))
_BASIC = re.compile(rb"basic\s{1,3}[a-z0-9+/]{8}")
_ESCAPE = re.compile(r"\\{1,8}(?:u00([2-7][0-9A-Fa-f])|/)")
