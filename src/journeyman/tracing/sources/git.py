"""The history of a repository, by `git`: a document for each commit, with what it says and what it changed."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from journeyman.core.document import Document
from journeyman.core.errors import InputError
from journeyman.io import git
from journeyman.tracing import fields
from journeyman.tracing.importers.source import Problem
from journeyman.tracing.sources.base import Bookmark, Item, SourceFinding, State

KIND = "git"
_FORMAT = "%x1e%H%x1f%an <%ae>%x1f%aI%x1f%P%x1f%B%x1f"
_PATCH = 16_000
"""Characters of what a commit changed that are kept."""


class GitHistory:
    """The commits of all branches of one repository, oldest first."""

    kind = KIND

    def __init__(self, path: Path | None = None) -> None:
        self._path = (path or Path.cwd()).expanduser().absolute()

    def find(self) -> SourceFinding | None:
        return SourceFinding(path=self._path, files=1, bytes=0) if (self._path / ".git").exists() else None

    def watched(self) -> Sequence[Path]:
        return [self._path / ".git"] if (self._path / ".git").is_dir() else [self._path]

    def people(self) -> Iterable[str]:
        return sorted({name for line in self._lines("log", "--branches", "--format=%an%n%cn") if (name := line.strip())})

    def read(self, states: Mapping[str, State]) -> Iterator[Item]:
        """
        Raises:
            InputError: It is no repository, or `git` is not installed.
        """
        key = str(self._path)
        tips = self._lines("for-each-ref", "--format=%(objectname)", "refs/heads") or self._lines("rev-parse", "HEAD")
        read = [tip for tip in states.get(key, {}).get("tips", ()) if self._has(tip)]
        if set(tips) <= set(read):
            return
        asked = [
            "log",
            "--reverse",
            "--topo-order",
            f"--format={_FORMAT}",
            "--patch",
            "--unified=2",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
        ]
        frontier = set(read)
        for text in self._records([*asked, *tips, *(f"^{tip}" for tip in read)]):
            parts = text.split("\x1f", 5)
            if len(parts) < 6:
                yield Problem(key, "a commit could not be read")
                continue
            yield self._commit(*parts)
            # Parents come first: what is read is what these lead to.
            frontier = (frontier - set(parts[3].split())) | {parts[0]}
            yield Bookmark(key, {"tips": sorted(frontier)})
        yield Bookmark(key, {"tips": tips})

    def _commit(self, hash: str, author: str, at: str, parents: str, message: str, patch: str) -> Document:
        title, _, body = message.strip().partition("\n")
        patch = patch.strip("\n")
        if len(patch) > _PATCH:
            patch = f"{patch[:_PATCH]}\n[{len(patch) - _PATCH} more characters]"
        files = [line[6:] for line in patch.splitlines() if line.startswith("+++ b/")]
        return Document(
            source=KIND,
            key=hash,
            kind="commit",
            title=title,
            text="\n\n".join(filter(None, (title, body.strip(), patch))),
            author=author,
            at=fields.time(at),
            where=str(self._path),
            raw=fields.without_empty(parents=parents.split(), files=files),
        )

    def _has(self, commit: str) -> bool:
        return git.run(self._path, "cat-file", "-e", f"{commit}^{{commit}}").returncode == 0

    def _lines(self, *arguments: str) -> list[str]:
        done = git.run(self._path, *arguments)
        if done.returncode:
            raise InputError(f"{self._path}: {done.stderr.decode(errors='replace').strip() or 'git could not read it'}")
        return done.stdout.decode(errors="replace").splitlines()

    def _records(self, arguments: Iterable[str]) -> Iterator[str]:
        """What `git log` says of each commit, piece by piece."""
        with subprocess.Popen(git.command(self._path, arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            rest = b""
            while data := process.stdout.read(1 << 20):
                *whole, rest = (rest + data).split(b"\x1e")
                yield from (each.decode(errors="replace") for each in whole if each.strip())
            if rest.strip():
                yield rest.decode(errors="replace")
        if process.returncode:
            raise InputError(f"{self._path}: git log ended with {process.returncode}")
