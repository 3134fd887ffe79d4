"""More than was granted."""

from dataclasses import replace

from journeyman.sandbox.attacks import victims
from journeyman.sandbox.attacks.base import SMALL, Attack
from journeyman.sandbox.base import KIB, MIB

_MORE = replace(
    SMALL, processes=56, memory=320 * MIB, file_size=8 * MIB, disk=48 * MIB, inodes=3000, open_files=250, output=256 * KIB
)
"""The control of the greedy ones: enough for their goal."""

ATTACKS = (
    Attack(
        name="fork bomb",
        tried="forks until it is stopped, and leaves the children behind",
        category="resources",
        probe="fork_bomb",
        trap=victims.fork_bomb(SMALL.processes, goal=48),
        lifted=_MORE,
        alone=True,
    ),
    Attack(
        name="thread bomb",
        tried="starts threads until it is stopped",
        category="resources",
        probe="thread_bomb",
        trap=victims.further_than(SMALL.processes, "threads", goal=48),
        lifted=_MORE,
    ),
    Attack(
        name="memory of one process",
        tried="takes more memory than it was granted",
        category="resources",
        probe="memory",
        trap=victims.further_than(2 * SMALL.memory, "bytes", goal=240 * MIB),
        lifted=_MORE,
    ),
    Attack(
        name="memory of many processes",
        tried="takes more memory than it was granted, a share in each of several processes",
        category="resources",
        probe="memory_of_many",
        trap=victims.further_than(2 * SMALL.memory, "bytes", children=5, share=48 * MIB),
        lifted=_MORE,
    ),
    Attack(
        name="shared memory",
        tried="takes more memory than it was granted, in pages that belong to no process alone",
        category="resources",
        probe="memory_shared",
        trap=victims.further_than(2 * SMALL.memory, "bytes", goal=240 * MIB),
        lifted=_MORE,
    ),
    Attack(
        name="memory files",
        tried="takes more memory than it was granted, in files without a folder (memfd)",
        category="resources",
        probe="memory_file",
        trap=victims.further_than(2 * SMALL.memory, "bytes", goal=240 * MIB),
    ),
    Attack(
        name="one big file",
        tried="writes a file bigger than any may be",
        category="resources",
        probe="big_file",
        trap=victims.further_than(SMALL.file_size, "bytes", goal=6 * MIB),
        lifted=_MORE,
    ),
    Attack(
        name="many files",
        tried="writes more to the disk than it was granted, in files that are each small enough",
        category="resources",
        probe="many_files",
        trap=victims.further_than(2 * SMALL.disk, "bytes", goal=32 * MIB),
        lifted=_MORE,
    ),
    Attack(
        name="many inodes",
        tried="makes more empty files and folders than it was granted",
        category="resources",
        probe="many_inodes",
        trap=victims.further_than(2 * SMALL.inodes, "files and folders", goal=2000),
        lifted=_MORE,
    ),
    Attack(
        name="/dev/shm",  # noqa: S108 - a name
        tried="fills the memory that is mounted as a folder",
        category="resources",
        probe="shared_memory_folder",
        trap=victims.shared_memory_folder,
    ),
    Attack(
        name="open files",
        tried="opens more files than it was granted",
        category="resources",
        probe="open_files",
        trap=victims.further_than(SMALL.open_files, "open files", goal=200),
        lifted=_MORE,
    ),
    Attack(
        name="endless output",
        tried="prints more than anybody wants to keep",
        category="resources",
        probe="output",
        trap=victims.endless_output,
        lifted=_MORE,
    ),
    Attack(
        name="endless loop",
        tried="goes on after its time is over",
        category="resources",
        probe="endless",
        trap=victims.further_than(1.5, "seconds"),
        limits=replace(SMALL, wall_seconds=0.8),
        lifted=replace(SMALL, wall_seconds=2.5),
        alone=True,
    ),
    Attack(
        name="CPU in many processes",
        tried="burns more CPU than it was granted, a share in each of several processes",
        category="resources",
        probe="cpu_of_many",
        trap=victims.further_than(1.2, "seconds of CPU", children=4, share=0.5),
        limits=replace(SMALL, cpu_seconds=0.6),
        lifted=SMALL,
        alone=True,
    ),
    Attack(
        name="left-over shared memory",
        tried="leaves System V shared memory behind",
        category="resources",
        probe="leftover_segment",
        trap=victims.segment,
    ),
)
