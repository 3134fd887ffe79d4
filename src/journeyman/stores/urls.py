"""URLs of stores, as far as messages and configuration care."""

import re
from pathlib import Path

_PASSWORD = re.compile(r"(?P<before>://[^/?#@]*?:).*(?P<after>@)", re.DOTALL)
_IN_QUERY = re.compile(r"(?P<before>[?&][^=&]*(?:password|passfile|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)


def redacted(url: str) -> str:
    """The URL with what is secret replaced by `***`, also when it is not a proper URL."""
    return _IN_QUERY.sub(r"\g<before>***", _PASSWORD.sub(r"\g<before>***\g<after>", url))


def is_url(text: str) -> bool:
    return text == MEMORY or "://" in text


def as_url(store: str | Path) -> str:
    """The URL of a store that is named by its URL, or by the path of its file."""
    return text if is_url(text := str(store)) else f"sqlite:///{Path(store)}"


def is_nowhere(url: str) -> bool:
    """Whether nothing can be kept there yet: in memory, or in a file that is not there. Told without loading what opens it."""
    file = file_of(url)
    return url == MEMORY if file is None else not file.exists()


def file_of(url: str) -> Path | None:
    """The file of a store of SQLite; `None` of any other."""
    return Path(url.removeprefix(_FILE).partition("?")[0]) if url.startswith(_FILE) else None


DEMO = "DEMO"
"""The name of a file that a demo leaves beside its store, or in its project: what is kept there is of made-up customers."""
_SAID = "What lies in this folder was written by `journeyman demo`. Delete the folder, and all of it is gone.\n"


def mark_demo(folder: Path) -> None:
    """Say of a folder that what is kept there is a demo's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DEMO).write_text(_SAID, encoding="utf-8")


def is_demo(store: str | Path, folder: Path) -> bool:
    """Whether a store, or the project in a folder, is a demo's."""
    file = file_of(as_url(store))
    return any((each / DEMO).is_file() for each in (folder, *((file.parent,) if file is not None else ())))


_FILE = "sqlite:///"
MEMORY = "memory:"
"""The store that keeps nothing."""


_NOTE = "store.url"


def note(folder: Path, store: str) -> None:
    """Write into the folder of a run where its attempts are kept, without a password."""
    url = redacted(as_url(store if is_url(store) else Path(store).resolve()))
    (folder / _NOTE).write_text(f"{url}\n", encoding="utf-8")


def noted(folder: Path) -> str | None:
    """The store that the folder of a run names; `None` where it names none, or one that is not there any more."""
    try:
        url = (folder / _NOTE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return url if url and not is_nowhere(url) else None
