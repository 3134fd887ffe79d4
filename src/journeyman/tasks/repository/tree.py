"""The files of a repository at one state: what tasks are made of, and what an agent is given of it."""

import ast
import gzip
import hashlib
import io
import re
import subprocess
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path, PurePosixPath

from journeyman.core.errors import InputError
from journeyman.core.format import named
from journeyman.io.atomic import atomic_write

LARGEST_FILE = 2**20
"""Bytes. What is larger is data, and stays behind unless a test needs it."""
LARGEST_TREE = 64 * 2**20
_SEEN_NOWHERE = re.compile(
    r"(^|/)(\.git|\.hg|\.svn|\.tox|\.nox|\.venv|venv|env|\.mypy_cache|\.pytest_cache|\.ruff_cache|__pycache__|node_modules|"
    r"build|dist|[^/]+\.egg-info)(/|$)|\.py[co]$|(^|/)\.coverage"
)
"""What is no source: caches, what was built of it, and the history, in which what is right stands."""
TESTS = ("test_*.py", "*_test.py", "tests.py")
"""How files of tests are called."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Files by relative path."""

    files: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """16 hex digits made of all names and contents."""
        found = hashlib.sha256()
        for path, data in sorted(self.files.items()):
            found.update(f"{path}\0{len(data)}\0".encode())
            found.update(data)
        return found.hexdigest()[:16]

    @property
    def root(self) -> str:
        """What stands before the names of its modules: "src/" or nothing."""
        return "src/" if any(re.fullmatch(r"src/[^/]+(/__init__)?\.py", path) for path in self.files) else ""

    @property
    def packages(self) -> tuple[str, ...]:
        """Its own top-level modules, without tests and what only builds it."""
        found = set[str]()
        for path in self.files:
            if path.startswith(self.root) and (match := re.fullmatch(r"([^/]+)/__init__\.py", path[len(self.root) :])):
                found.add(match[1])
            elif path.startswith(self.root) and re.fullmatch(r"[A-Za-z_]\w*\.py", name := path[len(self.root) :]):
                found.add(name.removesuffix(".py"))
        return tuple(sorted(name for name in found if name not in _BESIDE and not is_test(f"{name}.py")))

    @property
    def tests(self) -> tuple[str, ...]:
        """The files of tests."""
        return tuple(sorted(path for path in self.files if is_test(path)))

    @property
    def sources(self) -> tuple[str, ...]:
        """Python files of its packages that are no tests."""
        return tuple(
            path
            for path in sorted(self.files)
            if path.endswith(".py") and not in_tests(path) and self.module_of(path).partition(".")[0] in self.packages
        )

    def module_of(self, path: str) -> str:
        """What a Python file is imported as."""
        name = path.removeprefix(self.root).removesuffix(".py").replace("/", ".")
        return name.removesuffix(".__init__")

    def text(self, path: str) -> str:
        return self.files[path].decode("utf-8", errors="replace")

    def changed(self, files: Mapping[str, str | None]) -> "Tree":
        """With files laid over it; those of `None` are gone."""
        kept = {path: data for path, data in self.files.items() if path not in files}
        return Tree(kept | {path: text.encode() for path, text in files.items() if text is not None})

    def pack(self, path: Path) -> None:
        """Write it as an archive, which is byte for byte the same for the same files."""
        with (
            atomic_write(path) as part,
            part.open("wb") as file,
            # Without the name and the time, which would be in it.
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as tar,
        ):
            for name, data in sorted(self.files.items()):
                told = tarfile.TarInfo(name)
                told.size = len(data)
                tar.addfile(told, io.BytesIO(data))

    @classmethod
    def unpack(cls, path: Path) -> "Tree":
        """What `pack` wrote."""
        try:
            with tarfile.open(path) as tar:
                return cls(dict(_members(tar, path)))
        except (OSError, tarfile.TarError, EOFError) as error:
            raise InputError(f"{path} cannot be read as files of a repository: {error}") from None


_BESIDE = frozenset(
    {
        "setup",
        "versioneer",
        "conftest",
        "noxfile",
        "tasks",
        "fabfile",
        "docs",
        "doc",
        "examples",
        "example",
        "benchmarks",
        "tests",
        "test",
    }
)
"""Modules at the top of a repository that are not what it is for."""


def is_test(path: str) -> bool:
    """Whether a path is that of a file of tests."""
    return any(fnmatch(PurePosixPath(path).name, pattern) for pattern in TESTS)


def in_tests(path: str) -> bool:
    """Whether it is a file of tests, or lies beside such files and helps them."""
    folders = PurePosixPath(path).parts[:-1]
    return is_test(path) or bool({"test", "tests", "testing"} & set(folders)) or PurePosixPath(path).name == "conftest.py"


def place_of_test(test: str) -> tuple[str, str]:
    """The file of a test `file::Class::test`, and its name there as `without_tests` takes it: `Class.test`."""
    path, _, name = test.partition("::")
    return path, name.replace("::", ".")


def without_tests(text: str, names: Collection[str], *, only: bool = False) -> str:
    """A file of tests without some of them, all else as it stands.

    Args:
        names: Functions, and methods as `Class.name`; an inherited one is where a class of the same file has it.
        only: Leave out all other tests instead.
    """
    lines, gone = text.splitlines(keepends=True), set[int]()
    bodies = _tests_in(text)
    wanted = {place for name in names for place in _places_of(name, bodies)}
    for body in bodies:
        left_out = [test for test in body.tests if (test.name in wanted) is not only]
        for test in left_out:
            gone |= set(range(test.first, test.last + 1))
        if len(left_out) == body.statements and left_out:
            lines[left_out[-1].first - 1] = f"{' ' * left_out[-1].column}pass\n"
            gone.discard(left_out[-1].first)
    return "".join(line for number, line in enumerate(lines, start=1) if number not in gone)


@dataclass(frozen=True, slots=True)
class _TestPlace:
    name: str
    first: int
    last: int
    column: int


@dataclass(frozen=True, slots=True)
class _Body:
    """Of a module or of a class."""

    owner: str
    """The class."""
    bases: tuple[str, ...]
    statements: int
    tests: tuple[_TestPlace, ...]


def _places_of(name: str, bodies: Sequence[_Body]) -> Iterator[str]:
    """The name under which a test is defined: its own, or that of a class that its class is made from."""
    owner, _, test = name.rpartition(".")
    waiting, seen = [owner], set[str]()
    while waiting:
        owner = waiting.pop(0)
        for body in (body for body in bodies if body.owner == owner and owner not in seen):
            full = f"{owner}.{test}" if owner else test
            if any(each.name == full for each in body.tests):
                yield full
                return
            waiting += body.bases
        seen.add(owner)


@lru_cache(maxsize=32)
def _tests_in(text: str) -> tuple[_Body, ...]:
    """Where the tests of a file stand. The same long file is asked for with each task that is made of it."""
    tree = ast.parse(text)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    found: list[_Body] = []
    for node, body in [(None, tree.body), *((each, each.body) for each in classes)]:
        owner = node.name if node else ""
        bases = (ast.unparse(base).rpartition(".")[2] for base in node.bases) if node else ()
        defined = (each for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
        places = (
            _TestPlace(
                f"{owner}.{test.name}" if owner else test.name,
                min([test.lineno, *(each.lineno for each in test.decorator_list)]),
                test.end_lineno or test.lineno,
                test.col_offset,
            )
            for test in defined
            if test.name.startswith("test")
        )
        found.append(_Body(owner, tuple(bases), len(body), tuple(places)))
    return tuple(found)


def is_source(path: str) -> bool:
    """Whether a path is of the files of a repository: caches, history and what was built of it are not."""
    return not _SEEN_NOWHERE.search(path)


def read_tree(source: Path, *, commit: str = "") -> Tree:
    """The files of a repository at a commit, of a folder, or of a source package (`.tar.gz`, `.zip` of a release).

    Of a repository only what is committed, and nothing of its history; of each only source files of at most `LARGEST_FILE`.

    Raises:
        InputError: There is nothing to read, it is too large, or git does not know the commit.
    """
    if not source.exists():
        raise InputError(f"{source}: no such folder, repository or source package; check the path")
    if source.is_file():
        files = dict(_archived(source))
    elif is_repository(source):
        files = dict(_committed(source, commit or "HEAD"))
    elif commit:
        raise InputError(f"{source} is no git repository, so it has no commit {commit!r}")
    else:
        files = dict(_found(source))
    if not any(path.endswith(".py") for path in files):
        raise InputError(f"{source} holds no Python file; tasks are made of Python packages")
    if (size := sum(map(len, files.values()))) > LARGEST_TREE:
        raise InputError(
            f"{source} holds {size >> 20} MB of source files, and {LARGEST_TREE >> 20} are the most; name a part of it"
        )
    return Tree(files)


def is_repository(source: Path) -> bool:
    return (source / ".git").exists()


def git(source: Path, *arguments: str) -> bytes:
    """What git says, with no setting of this machine's and nothing of the repository's run.

    Raises:
        InputError: It is not installed, or refuses.
    """
    safe = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "safe.directory=*"]
    settings = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
    }
    try:
        words = ["git", *safe, "-C", str(source), *arguments]
        done = subprocess.run(words, capture_output=True, env=settings, timeout=600)
    except FileNotFoundError:
        raise InputError("git is not installed, and the repository cannot be read without it: apt install git") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise InputError(f"{source}: git {arguments[0]} failed: {said[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout


def _committed(source: Path, commit: str) -> Iterator[tuple[str, bytes]]:
    if commit.startswith("-"):
        raise InputError(f"{commit!r} is no name of a commit")
    if modules := git(source, "ls-tree", "-r", "-z", commit).decode(errors="replace").split("\0"):
        linked = [row.partition("\t")[2] for row in modules if row.startswith("160000 ")]
        if linked:
            raise InputError(
                f"{source} has submodules ({named(linked)}), which are not in its files; tasks need a repository without"
            )
    with tarfile.open(fileobj=io.BytesIO(git(source, "archive", "--format=tar", commit))) as tar:
        yield from _members(tar, source)


def _members(tar: tarfile.TarFile, path: Path) -> Iterator[tuple[str, bytes]]:
    total = 0
    for member in tar:
        name = str(PurePosixPath(member.name))
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise InputError(f"{path} holds {member.name!r}, which leads out of it; nothing of it is read")
        if member.isfile() and member.size <= LARGEST_FILE and is_source(name):
            if (total := total + member.size) > LARGEST_TREE:
                raise InputError(f"{path} holds more than {LARGEST_TREE >> 20} MB of source files; name a part of it")
            file = tar.extractfile(member)
            yield name, file.read() if file else b""


def _archived(path: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a source package, without the folder that holds them all."""
    try:
        with tarfile.open(path) as tar:
            files = dict(_members(tar, path))
    except (tarfile.TarError, EOFError, OSError):
        raise InputError(f"{path} is no source package: a .tar.gz as PyPI has it is wanted") from None
    tops = {name.partition("/")[0] for name in files}
    cut = len(f"{next(iter(tops))}/") if len(tops) == 1 else 0
    for name, data in files.items():
        yield name[cut:], data


def _found(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if is_source(name) and path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST_FILE:
            yield name, path.read_bytes()
