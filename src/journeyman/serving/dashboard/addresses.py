"""Ids and filters as parts of addresses. Whatever an id holds, its address leads back to it."""

import base64
import binascii
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode

from journeyman.core.errors import InputError

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
    return "?" + urlencode(fields, errors="surrogatepass") if fields else ""


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
