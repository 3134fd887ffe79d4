"""Control groups that can be lent to a sandbox: below this process's own, where this user may make some."""

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PREFIX = "journeyman-"
CONTROLLERS = ("memory", "pids", "cpuacct")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """A tree of control groups, and this process's place in it."""

    version: int
    controllers: frozenset[str]
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """Folders in which the wardens of one sandbox make a group for each run."""

    folders: tuple[Path, ...]
    join: tuple[Path, ...] = ()
    """Files that the sandbox writes its process into before it starts: version 2 moves processes only within what was lent."""
    controllers: frozenset[str] = frozenset()

    def give_back(self) -> None:
        """Remove them, with what killed wardens left in them."""
        for folder in self.folders:
            remove(folder)


def lend(uid: int) -> Lent | None:
    """Groups that this user may fill; `None` where the kernel or container has none to give."""
    name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
    folders: list[Path] = []
    join: list[Path] = []
    controllers: set[str] = set()
    for hierarchy in hierarchies(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()):
        sweep(hierarchy.folder)
        with contextlib.suppress(OSError):
            folder = hierarchy.folder / name
            folder.mkdir()
            folders.append(folder)
            own(folder, uid)
            if hierarchy.version == 2:
                join.append(_enable(folder, uid))
            controllers |= hierarchy.controllers & set(CONTROLLERS)
    if not controllers:
        for folder in folders:
            remove(folder)
        return None
    return Lent(folders=tuple(folders), join=tuple(join), controllers=frozenset(controllers))


def hierarchies(groups: str, mounts: str) -> Iterator[Hierarchy]:
    """From /proc/self/cgroup and /proc/self/mountinfo, those in which something of ours can be limited.

    In version 2 a group with processes in it, such as our own, cannot share out its controllers: its parent is taken.
    """
    places = dict(_mounts(mounts))
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        controllers = frozenset(names.split(","))
        if names:
            found = next(
                (place for each, place in places.items() if controllers & set(CONTROLLERS) and each & controllers), None
            )
        else:
            found = places.get(frozenset())
        if found is None:
            continue
        root, mounted = found
        folder = mounted / Path(path).relative_to(root) if Path(path).is_relative_to(root) else mounted
        if names:
            yield Hierarchy(version=1, controllers=controllers, folder=folder)
        elif (shared := _shared_out(folder.parent if folder != mounted else folder)) & set(CONTROLLERS):
            yield Hierarchy(version=2, controllers=shared, folder=folder.parent if folder != mounted else folder)


def _shared_out(folder: Path) -> frozenset[str]:
    try:
        return frozenset((folder / "cgroup.subtree_control").read_text().split())
    except OSError:
        return frozenset()


def _mounts(text: str) -> Iterator[tuple[frozenset[str], tuple[Path, Path]]]:
    """The controllers of each mounted hierarchy (none for version 2), with the root and the place of its mount."""
    for line in text.splitlines():
        mount, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        root, place = mount.split(" ")[3:5]
        if kind == "cgroup":
            yield frozenset(options.split(",")) & {*CONTROLLERS}, (Path(root), Path(place))
        elif kind == "cgroup2":
            yield frozenset(), (Path(root), Path(place))


def _enable(folder: Path, uid: int) -> Path:
    wanted = [name for name in ("memory", "pids") if name in (folder / "cgroup.controllers").read_text().split()]
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))
    leaf = folder / "nursery"
    leaf.mkdir()
    own(leaf, uid)
    return leaf / "cgroup.procs"


def own(folder: Path, uid: int) -> None:
    """The folder and the file that takes processes; its limits stay ours."""
    for path in (folder, folder / "cgroup.procs"):
        os.chown(path, uid, -1)


def sweep(folder: Path) -> None:
    """Remove the groups of processes that are gone."""
    with contextlib.suppress(OSError):
        for each in folder.glob(f"{PREFIX}*-*"):
            if not Path(f"/proc/{each.name.removeprefix(PREFIX).split('-')[0]}").exists():
                remove(each)


def remove(folder: Path) -> None:
    """A group and all below it. What still holds a process after a second stays for the next sweep."""
    with contextlib.suppress(OSError):
        for child in [each for each in folder.iterdir() if each.is_dir()]:
            remove(child)
        for _ in range(100):
            try:
                folder.rmdir()
            except OSError:
                time.sleep(0.01)
            else:
                return
