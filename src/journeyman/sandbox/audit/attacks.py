"""Every attack of the suite."""

import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

from journeyman.sandbox.audit import traps
from journeyman.sandbox.audit.base import SMALL, Attack
from journeyman.sandbox.base import KIB, MIB

# Files of the host: reading them, writing them, and having them carried out.

FILE_ATTACKS = (
    Attack(
        name="/etc/shadow",
        tried="reads the password digests of the host",
        category="files",
        probe="read_privately",
        trap=traps.existing("/etc/shadow"),
        privileged=True,
    ),
    Attack(
        name="home folder",
        tried="reads from your home folder",
        category="files",
        probe="read",
        trap=traps.secret_file(Path.home),
    ),
    Attack(
        name="project folder",
        tried="reads from the folder that journeyman was started in",
        category="files",
        probe="read",
        trap=traps.secret_file(Path.cwd),
    ),
    Attack(
        name="temporary folder",
        tried="reads from the host's folder for temporary files",
        category="files",
        probe="read",
        trap=traps.secret_file(traps.temporary),
    ),
    Attack(
        name="other users' files",
        tried="reads what another user left readable for everybody",
        category="files",
        probe="read",
        trap=traps.foreign_file,
    ),
    Attack(
        name="environment",
        tried="reads the host's environment, where keys are kept",
        category="files",
        probe="environment",
        trap=traps.host_environment,
    ),
    Attack(
        name="files left open",
        tried="reads files that were left open by whoever started it",
        category="files",
        probe="descriptors",
        trap=traps.left_open,
    ),
    Attack(
        name="writing outside",
        tried="writes into the host's folders: temporary, home, project",
        category="files",
        probe="write",
        trap=traps.new_files(traps.temporary, Path.home, Path.cwd),
    ),
    Attack(
        name="writing to the system",
        tried="writes into the folders of the system",
        category="files",
        probe="write",
        trap=traps.new_files(lambda: Path("/usr/lib"), lambda: Path("/etc"), lambda: Path("/var"), lambda: Path("/")),
        privileged=True,
    ),
    Attack(
        name="changing a file",
        tried="changes a file of the host that everybody may write to",
        category="files",
        probe="append",
        trap=traps.writable_file,
    ),
    Attack(
        name="link to a file",
        tried="leaves a link to a secret, to be returned as a file of its own",
        category="files",
        probe="link_to_file",
        trap=traps.secret_file(traps.temporary),
        collect=("*.out",),
    ),
    Attack(
        name="link to a folder",
        tried="leaves a link to a folder with a secret, to be returned as its own",
        category="files",
        probe="link_to_folder",
        trap=traps.secret_file(traps.temporary),
        collect=("**/*.out", "*/*.out"),
    ),
    Attack(
        name="hard link",
        tried="leaves a second name of a secret file, to be returned as its own",
        category="files",
        probe="hard_link",
        trap=traps.secret_file(traps.temporary),
        collect=("*.out",),
    ),
    Attack(
        name="fifo",
        tried="leaves a fifo, for which whoever fetches the files would wait for ever",
        category="files",
        probe="fifo",
        trap=traps.fifo_file,
        collect=("*.out",),
    ),
    Attack(
        name="disk",
        tried="opens a disk past its file system",
        category="files",
        probe="disk",
        trap=traps.existing("/dev/[svx]d[a-z]", "/dev/nvme*n*", "/dev/dm-*", "/dev/loop0"),
        privileged=True,
    ),
    Attack(
        name="device file",
        tried="makes itself a device file for a disk",
        category="files",
        probe="device",
        trap=traps.whole_disk,
        privileged=True,
    ),
    Attack(
        name="settings of the kernel",
        tried="opens settings of the kernel in /proc for writing",
        category="files",
        probe="open_for_writing",
        trap=traps.existing("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname"),
        privileged=True,
    ),
    Attack(
        name="settings in /sys",
        tried="opens settings of the machine in /sys for writing",
        category="files",
        probe="open_for_writing",
        trap=traps.existing(
            "/sys/kernel/mm/*/enabled", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/*/cgroup.procs"
        ),
        privileged=True,
    ),
    Attack(
        name="terminal",
        tried="writes on the user's terminal and types into it",
        category="files",
        probe="terminal",
        trap=traps.terminal,
    ),
)

# Out to the host, or further.

NETWORK_ATTACKS = (
    Attack(
        name="TCP",
        tried="connects to a server on the host's loopback",
        category="network",
        probe="tcp",
        trap=traps.listener,
    ),
    Attack(
        name="UDP",
        tried="sends a datagram to a server on the host's loopback",
        category="network",
        probe="udp",
        trap=partial(traps.listener, socket.SOCK_DGRAM),
    ),
    Attack(
        name="DNS",
        tried="asks a name server, with what it wants to tell as the name",
        category="network",
        probe="dns",
        trap=partial(traps.listener, socket.SOCK_DGRAM),
    ),
    Attack(
        name="unix socket",
        tried="connects to a server of the host by a path",
        category="network",
        probe="unix_socket",
        trap=partial(traps.listener, family=socket.AF_UNIX),
    ),
    Attack(
        name="abstract unix socket",
        tried="connects to a server of the host by a name that is no path",
        category="network",
        probe="abstract_socket",
        trap=partial(traps.listener, family=socket.AF_UNIX, abstract=True),
    ),
    Attack(
        name="vsock",
        tried="opens a socket to the hypervisor",
        category="network",
        probe="vsock",
        trap=traps.vsock,
    ),
    Attack(
        name="raw packets",
        tried="sends what it likes, past the rules for ports",
        category="network",
        probe="packets",
        trap=partial(traps.listener, socket.SOCK_DGRAM),
        privileged=True,
    ),
    Attack(
        name="io_uring",
        tried="has the kernel make its calls, past a filter of calls",
        category="network",
        probe="io_uring",
        trap=traps.own_word(),
        privileged=True,
    ),
)

# Rights that the code was not given.


def _privilege(name: str, tried: str, probe: str, *, privileged: bool = True) -> Attack:
    """What the code itself can tell: that a right was granted."""
    return Attack(name=name, tried=tried, category="privileges", probe=probe, trap=traps.own_word(), privileged=privileged)


PRIVILEGE_ATTACKS = (
    _privilege("user namespace (unshare)", "makes a user namespace, to have every capability in it", "unshare_user"),
    _privilege("user namespace (clone)", "starts a child in a user namespace", "clone_user"),
    _privilege("user namespace (clone3)", "the same by the newer call, whose arguments a filter cannot see", "clone3_user"),
    Attack(
        name="setuid programs",
        tried="starts programs that run as root whoever starts them",
        category="privileges",
        probe="set_user_id",
        trap=traps.existing("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/newgrp", "/bin/su"),
    ),
    _privilege("new privileges", "asks whether programs that it starts may gain privileges", "new_privileges"),
    _privilege("capabilities", "looks for capabilities that it was left", "capabilities"),
    _privilege("becoming root", "sets its user to root", "become_root"),
    _privilege("mount", "mounts a file system", "mount"),
    _privilege("mount by descriptor", "opens a file system to mount it, by newer calls", "mount_by_descriptor"),
    _privilege("chroot", "changes its root folder", "change_root"),
    _privilege("pivot_root", "makes a namespace for mounts, to swap the root in it", "pivot_root"),
    _privilege("name of the machine", "sets the name of the machine", "host_name"),
    _privilege("bpf", "loads what runs in the kernel", "programs_in_the_kernel"),
    _privilege("userfaultfd", "handles page faults, by which races in the kernel are won", "page_faults"),
    _privilege("perf", "opens performance counters, a clock for side channels", "counters"),
)

# Processes of the host, and other runs.

PROCESS_ATTACKS = (
    Attack(
        name="environment of a process",
        tried="reads the environment of the host's processes",
        category="processes",
        probe="files.environment",
        trap=traps.victim,
    ),
    Attack(
        name="memory of a process",
        tried="reads the memory of a process of the host by a system call",
        category="processes",
        probe="memory_by_call",
        trap=traps.victim,
    ),
    Attack(
        name="memory of a process by /proc",
        tried="reads the memory of a process of the host as a file",
        category="processes",
        probe="memory_by_file",
        trap=traps.victim,
    ),
    Attack(
        name="ptrace",
        tried="takes hold of a process of the host as a debugger does",
        category="processes",
        probe="trace",
        trap=traps.victim,
    ),
    Attack(
        name="signals",
        tried="ends a process of the host",
        category="processes",
        probe="signals",
        trap=traps.victim,
    ),
    Attack(
        name="signals by descriptor",
        tried="ends a process of the host by a pidfd",
        category="processes",
        probe="signal_by_descriptor",
        trap=traps.victim,
    ),
    Attack(
        name="settings of a process",
        tried="makes the kernel end a process of the host first when memory is short",
        category="processes",
        probe="disturb",
        trap=traps.victim,
    ),
    Attack(
        name="daemon",
        tried="leaves a process behind that left the session and its parents",
        category="processes",
        probe="daemon",
        trap=traps.survivors,
    ),
    Attack(
        name="reading another run",
        tried="reads what another run wrote, while both run",
        category="processes",
        probe="seek",
        trap=traps.neighbour,
        beside="hide",
    ),
    Attack(
        name="ending another run",
        tried="ends another run, while both run",
        category="processes",
        probe="stab",
        trap=traps.neighbour,
        beside="hide",
    ),
    Attack(
        name="keyring",
        tried="reads a key of the host from the kernel's keyring",
        category="processes",
        probe="keys",
        trap=traps.kernel_key,
    ),
)

# More than was granted.

_MORE = replace(
    SMALL, processes=56, memory=320 * MIB, file_size=8 * MIB, disk=48 * MIB, inodes=3000, open_files=250, output=256 * KIB
)
"""The control of the greedy ones: enough for their goal."""

RESOURCE_ATTACKS = (
    Attack(
        name="fork bomb",
        tried="forks until it is stopped, and leaves the children behind",
        category="resources",
        probe="fork_bomb",
        trap=traps.fork_bomb(SMALL.processes, goal=48),
        lifted=_MORE,
        alone=True,
    ),
    Attack(
        name="thread bomb",
        tried="starts threads until it is stopped",
        category="resources",
        probe="thread_bomb",
        trap=traps.further_than(SMALL.processes, "threads", goal=48),
        lifted=_MORE,
    ),
    Attack(
        name="memory of one process",
        tried="takes more memory than it was granted",
        category="resources",
        probe="memory",
        trap=traps.further_than(2 * SMALL.memory, "bytes", goal=240 * MIB),
        lifted=_MORE,
    ),
    Attack(
        name="memory of many processes",
        tried="takes more memory than it was granted, a share in each of several processes",
        category="resources",
        probe="memory_of_many",
        trap=traps.further_than(2 * SMALL.memory, "bytes", children=5, share=48 * MIB),
        lifted=_MORE,
    ),
    Attack(
        name="shared memory",
        tried="takes more memory than it was granted, in pages that belong to no process alone",
        category="resources",
        probe="memory_shared",
        trap=traps.further_than(2 * SMALL.memory, "bytes", goal=240 * MIB),
        lifted=_MORE,
    ),
    Attack(
        name="memory files",
        tried="takes more memory than it was granted, in files without a folder (memfd)",
        category="resources",
        probe="memory_file",
        trap=traps.further_than(2 * SMALL.memory, "bytes", goal=240 * MIB),
    ),
    Attack(
        name="one big file",
        tried="writes a file bigger than any may be",
        category="resources",
        probe="big_file",
        trap=traps.further_than(SMALL.file_size, "bytes", goal=6 * MIB),
        lifted=_MORE,
    ),
    Attack(
        name="many files",
        tried="writes more to the disk than it was granted, in files that are each small enough",
        category="resources",
        probe="many_files",
        trap=traps.further_than(2 * SMALL.disk, "bytes", goal=32 * MIB),
        lifted=_MORE,
    ),
    Attack(
        name="many inodes",
        tried="makes more empty files and folders than it was granted",
        category="resources",
        probe="many_inodes",
        trap=traps.further_than(2 * SMALL.inodes, "files and folders", goal=2000),
        lifted=_MORE,
    ),
    Attack(
        name="/dev/shm",  # noqa: S108 - a name
        tried="fills the memory that is mounted as a folder",
        category="resources",
        probe="shared_memory_folder",
        trap=traps.shared_memory_folder,
    ),
    Attack(
        name="open files",
        tried="opens more files than it was granted",
        category="resources",
        probe="open_files",
        trap=traps.further_than(SMALL.open_files, "open files", goal=200),
        lifted=_MORE,
    ),
    Attack(
        name="endless output",
        tried="prints more than anybody wants to keep",
        category="resources",
        probe="output",
        trap=traps.endless_output,
        lifted=_MORE,
    ),
    Attack(
        name="endless loop",
        tried="goes on after its time is over",
        category="resources",
        probe="endless",
        trap=traps.further_than(1.5, "seconds"),
        limits=replace(SMALL, wall_seconds=0.8),
        lifted=replace(SMALL, wall_seconds=2.5),
        alone=True,
    ),
    Attack(
        name="CPU in many processes",
        tried="burns more CPU than it was granted, a share in each of several processes",
        category="resources",
        probe="cpu_of_many",
        trap=traps.further_than(1.2, "seconds of CPU", children=4, share=0.5),
        limits=replace(SMALL, cpu_seconds=0.6),
        lifted=SMALL,
        alone=True,
    ),
    Attack(
        name="left-over shared memory",
        tried="leaves System V shared memory behind",
        category="resources",
        probe="leftover_segment",
        trap=traps.segment,
    ),
)

ATTACKS: tuple[Attack, ...] = (*RESOURCE_ATTACKS, *NETWORK_ATTACKS, *FILE_ATTACKS, *PROCESS_ATTACKS, *PRIVILEGE_ATTACKS)
