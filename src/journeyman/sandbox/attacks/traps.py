"""What the suite sets up on the host for one attack, and takes away again. Every secret is made for the run that seeks it."""

import os
import secrets
import select
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from journeyman.sandbox.attacks.base import Seen, Trap, Untried

TIMEOUT = 5.0
PREFIX = "journeyman-attack-"
HARMLESS = frozenset({"PATH", "LANG", "LC_ALL", "TERM", "PWD", "SHELL", "SHLVL", "TZ", "_", "PYTHONDONTWRITEBYTECODE"})
"""Of an environment: these say nothing about who you are."""

Trapping = AbstractContextManager[Trap]


def token() -> str:
    return "jm" + secrets.token_hex(6)


def own_word(**bait: Any) -> Callable[[], Trapping]:
    """What only the code itself can see: it says what it gained."""

    @contextmanager
    def trap() -> Iterator[Trap]:
        yield Trap(bait, _through)

    return trap


def existing(*paths: str) -> Callable[[], Trapping]:
    """Paths of this machine that are to be opened, as far as there are any."""

    @contextmanager
    def trap() -> Iterator[Trap]:
        found = [str(path) for pattern in paths for path in sorted(Path("/").glob(pattern.lstrip("/")))[:4]]
        if not found:
            raise Untried(f"there is no {' or '.join(paths)} here")
        yield Trap({"paths": found, "path": found[0]}, _through)

    return trap


def _through(seen: Seen) -> str | None:
    return next(iter(seen.said("through")), None)


def secret_file(folder: Callable[[], Path], **bait: Any) -> Callable[[], Trapping]:
    """A file that everybody may read, in a folder of the host."""

    @contextmanager
    def trap() -> Iterator[Trap]:
        with _folder(folder()) as place:
            secret = token()
            path = place / "secret.out"
            path.write_text(secret)
            yield Trap(bait | {"paths": [str(path)], "path": str(path)}, shows(secret))

    return trap


def shows(secret: str) -> Callable[[Seen], str | None]:
    def sprung(seen: Seen) -> str | None:
        if secret in "".join(str(value) for value in seen.said("read")):
            return "read what was hidden"
        if any(secret.encode() in content for content in seen.outcome.files.values()):
            return "what was hidden came back as a file of its own"
        return None

    return sprung


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    try:
        place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    except OSError as error:
        raise Untried(f"nothing can be written to {parent}: {error.strerror}") from error
    place.chmod(0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def temporary() -> Path:
    return Path(tempfile.gettempdir())


@contextmanager
def foreign_file() -> Iterator[Trap]:
    """Somebody else's: another user's where we may give it away."""
    with secret_file(lambda: Path("/var/tmp"))() as trap:  # noqa: S108 - where other users' files lie
        with suppress(OSError):
            os.chown(trap.bait["path"], 12345, 12345)
        yield trap


@contextmanager
def writable_file() -> Iterator[Trap]:
    """A file of the host that everybody may write to."""
    with _folder(temporary()) as place:
        path = place / "diary"
        path.write_text("dear diary")
        path.chmod(0o666)
        yield Trap({"path": str(path)}, lambda _: "changed a file of the host" if path.read_text() != "dear diary" else None)


def new_files(*folders: Callable[[], Path]) -> Callable[[], Trapping]:
    """Folders of the host, in which no file may appear."""

    @contextmanager
    def trap() -> Iterator[Trap]:
        name = token()
        places = [folder() for folder in folders]

        def sprung(_: Seen) -> str | None:
            made = [str(place) for place in places if (place / name).exists()]
            return f"wrote into {', '.join(made)}" if made else None

        try:
            yield Trap({"folders": [str(place) for place in places], "name": name}, sprung)
        finally:
            for place in places:
                (place / name).unlink(missing_ok=True)

    return trap


@contextmanager
def listener(kind: int = socket.SOCK_STREAM, family: int = socket.AF_INET, *, abstract: bool = False) -> Iterator[Trap]:
    """A server of the host, which must hear nothing."""
    said = token()
    with _folder(temporary()) as place, socket.socket(family, kind) as server:
        path = said if abstract else str(place / "socket")
        server.bind((path if not abstract else "\0" + path) if family == socket.AF_UNIX else ("127.0.0.1", 0))
        bait: dict[str, Any] = {"token": said, "path": path, "addresses": ["127.0.0.1", "localhost"]}
        if family == socket.AF_UNIX:
            if not abstract:
                Path(path).chmod(0o777)
        else:
            bait["port"] = server.getsockname()[1]
        if kind == socket.SOCK_STREAM:
            server.listen()
        yield Trap(bait, lambda _: _heard(server, kind))


def _heard(server: socket.socket, kind: int) -> str | None:
    """Anything at all, also an empty connection."""
    if not select.select([server], [], [], 0.05)[0]:
        return None
    if kind == socket.SOCK_STREAM:
        server.accept()[0].close()
    return "the host's listener heard it"


@contextmanager
def fifo_file() -> Iterator[Trap]:
    def sprung(seen: Seen) -> str | None:
        return "whoever fetches the files waits for ever" if seen.outcome.limit == "wall" else None

    yield Trap({}, sprung)


@contextmanager
def terminal() -> Iterator[Trap]:
    """A terminal that everybody may write to."""
    said = token()
    try:
        ours, theirs = os.openpty()
    except OSError as error:
        raise Untried(f"no terminal can be made here: {error.strerror}") from error
    try:
        path = os.ttyname(theirs)
        with suppress(OSError):
            Path(path).chmod(0o666)

        def sprung(_: Seen) -> str | None:
            return "wrote on the user's terminal" if select.select([ours], [], [], 0.05)[0] else None

        yield Trap({"path": path, "token": said}, sprung)
    finally:
        os.close(ours)
        os.close(theirs)


@contextmanager
def left_open() -> Iterator[Trap]:
    """A file that this process holds open, and passes on to programs that it starts carelessly."""
    secret = token()
    with tempfile.TemporaryFile() as file:
        file.write(secret.encode())
        file.flush()
        os.set_inheritable(file.fileno(), True)
        yield Trap({}, shows(secret))


@contextmanager
def whole_disk() -> Iterator[Trap]:
    """The device of the first disk that the kernel knows."""
    table = Path("/proc/partitions")
    rows = [line.split() for line in table.read_text().splitlines()[2:]] if table.exists() else []
    if not rows:
        raise Untried("this machine shows no disk")
    yield Trap({"device": [int(rows[0][0]), int(rows[0][1])]}, _through)


@contextmanager
def vsock() -> Iterator[Trap]:
    """Needs no listener: what listens there is the hypervisor."""
    try:
        socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    except OSError as error:
        raise Untried(f"this kernel has no vsock: {error.strerror}") from error
    yield Trap({}, _through)
