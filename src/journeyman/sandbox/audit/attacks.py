"""Every attack of the suite: what it does, the probe that does it, and the trap that shows whether it succeeded."""

import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from journeyman.sandbox.audit import traps
from journeyman.sandbox.audit.traps import SMALL, Attack, Category, Trapping
from journeyman.sandbox.base import KIB, MIB


def _attack(category: Category, name: str, tried: str, probe: str, trap: Callable[[], Trapping], **more: Any) -> Attack:
    return Attack(name=name, tried=tried, category=category, probe=probe, trap=trap, **more)


_file = partial(_attack, "files")
_network = partial(_attack, "network")
_privilege = partial(_attack, "privileges")
_process = partial(_attack, "processes")
_resource = partial(_attack, "resources")
_channel = partial(_attack, "channels")

# Files of the host: reading them, writing them, and having them carried out.

FILE_ATTACKS = (
    _file(
        "/etc/shadow",
        "reads the password digests of the host",
        "read_privately",
        traps.existing("/etc/shadow"),
        privileged=True,
    ),
    _file("home folder", "reads from your home folder", "read", traps.secret_file(Path.home)),
    _file("project folder", "reads from the folder that journeyman was started in", "read", traps.secret_file(Path.cwd)),
    _file("temporary folder", "reads from the host's folder for temporary files", "read", traps.secret_file(traps.temporary)),
    _file("other users' files", "reads what another user left readable for everybody", "read", traps.foreign_file),
    _file("environment", "reads the host's environment, where keys are kept", "environment", traps.host_environment),
    _file("files left open", "reads files that were left open by whoever started it", "descriptors", traps.left_open),
    _file(
        "writing outside",
        "writes into the host's folders: temporary, home, project",
        "write",
        traps.new_files(traps.temporary, Path.home, Path.cwd),
    ),
    _file(
        "writing to the system",
        "writes into the folders of the system",
        "write",
        traps.new_files(lambda: Path("/usr/lib"), lambda: Path("/etc"), lambda: Path("/var"), lambda: Path("/")),
        privileged=True,
    ),
    _file("changing a file", "changes a file of the host that everybody may write to", "append", traps.writable_file),
    _file(
        "link to a file",
        "leaves a link to a secret, to be returned as a file of its own",
        "link_to_file",
        traps.secret_file(traps.temporary),
        collect=("*.out",),
    ),
    _file(
        "link to a folder",
        "leaves a link to a folder with a secret, to be returned as its own",
        "link_to_folder",
        traps.secret_file(traps.temporary),
        collect=("**/*.out", "*/*.out"),
    ),
    _file(
        "hard link",
        "leaves a second name of a secret file, to be returned as its own",
        "hard_link",
        traps.secret_file(traps.temporary),
        collect=("*.out",),
    ),
    _file(
        "fifo",
        "leaves a fifo, for which whoever fetches the files would wait for ever",
        "fifo",
        traps.fifo_file,
        collect=("*.out",),
    ),
    _file(
        "disk",
        "opens a disk past its file system",
        "disk",
        traps.existing("/dev/[svx]d[a-z]", "/dev/nvme*n*", "/dev/dm-*", "/dev/loop0"),
        privileged=True,
    ),
    _file("device file", "makes itself a device file for a disk", "device", traps.whole_disk, privileged=True),
    _file(
        "settings of the kernel",
        "opens settings of the kernel in /proc for writing",
        "open_for_writing",
        traps.existing("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname"),
        privileged=True,
    ),
    _file(
        "settings in /sys",
        "opens settings of the machine in /sys for writing",
        "open_for_writing",
        traps.existing(
            "/sys/kernel/mm/*/enabled", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/*/cgroup.procs"
        ),
        privileged=True,
    ),
    _file("terminal", "writes on the user's terminal and types into it", "terminal", traps.terminal),
)

# Out to the host, or further.

NETWORK_ATTACKS = (
    _network("TCP", "connects to a server on the host's loopback", "tcp", traps.listener),
    _network("UDP", "sends a datagram to a server on the host's loopback", "udp", partial(traps.listener, socket.SOCK_DGRAM)),
    _network(
        "DNS", "asks a name server, with what it wants to tell as the name", "dns", partial(traps.listener, socket.SOCK_DGRAM)
    ),
    _network(
        "unix socket",
        "connects to a server of the host by a path",
        "unix_socket",
        partial(traps.listener, family=socket.AF_UNIX),
    ),
    _network(
        "abstract unix socket",
        "connects to a server of the host by a name that is no path",
        "abstract_socket",
        partial(traps.listener, family=socket.AF_UNIX, abstract=True),
    ),
    _network("vsock", "opens a socket to the hypervisor", "vsock", traps.vsock),
    _network(
        "raw packets",
        "sends what it likes, past the rules for ports",
        "packets",
        partial(traps.listener, socket.SOCK_DGRAM),
        privileged=True,
    ),
    _network(
        "io_uring", "has the kernel make its calls, past a filter of calls", "io_uring", traps.own_word(), privileged=True
    ),
)

# Rights that the code was not given; it can tell itself that one was granted.

PRIVILEGE_ATTACKS = (
    _privilege(
        "user namespace (unshare)",
        "makes a user namespace, to have every capability in it",
        "unshare_user",
        traps.own_word(),
        privileged=True,
    ),
    _privilege("user namespace (clone)", "starts a child in a user namespace", "clone_user", traps.own_word(), privileged=True),
    _privilege(
        "user namespace (clone3)",
        "the same by the newer call, whose arguments a filter cannot see",
        "clone3_user",
        traps.own_word(),
        privileged=True,
    ),
    _privilege(
        "setuid programs",
        "starts programs that run as root whoever starts them",
        "set_user_id",
        traps.existing("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/newgrp", "/bin/su"),
    ),
    _privilege(
        "new privileges",
        "asks whether programs that it starts may gain privileges",
        "new_privileges",
        traps.own_word(),
        privileged=True,
    ),
    _privilege("capabilities", "looks for capabilities that it was left", "capabilities", traps.own_word(), privileged=True),
    _privilege("becoming root", "sets its user to root", "become_root", traps.own_word(), privileged=True),
    _privilege("mount", "mounts a file system", "mount", traps.own_word(), privileged=True),
    _privilege(
        "mount by descriptor",
        "opens a file system to mount it, by newer calls",
        "mount_by_descriptor",
        traps.own_word(),
        privileged=True,
    ),
    _privilege("chroot", "changes its root folder", "change_root", traps.own_word(), privileged=True),
    _privilege(
        "pivot_root", "makes a namespace for mounts, to swap the root in it", "pivot_root", traps.own_word(), privileged=True
    ),
    _privilege("name of the machine", "sets the name of the machine", "host_name", traps.own_word(), privileged=True),
    _privilege("bpf", "loads what runs in the kernel", "programs_in_the_kernel", traps.own_word(), privileged=True),
    _privilege(
        "userfaultfd",
        "handles page faults, by which races in the kernel are won",
        "page_faults",
        traps.own_word(),
        privileged=True,
    ),
    _privilege("perf", "opens performance counters, a clock for side channels", "counters", traps.own_word(), privileged=True),
)

# Processes of the host, and other runs.

PROCESS_ATTACKS = (
    _process("environment of a process", "reads the environment of the host's processes", "files.environment", traps.victim),
    _process(
        "memory of a process", "reads the memory of a process of the host by a system call", "memory_by_call", traps.victim
    ),
    _process(
        "memory of a process by /proc", "reads the memory of a process of the host as a file", "memory_by_file", traps.victim
    ),
    _process("ptrace", "takes hold of a process of the host as a debugger does", "trace", traps.victim),
    _process("signals", "ends a process of the host", "signals", traps.victim),
    _process("signals by descriptor", "ends a process of the host by a pidfd", "signal_by_descriptor", traps.victim),
    _process(
        "settings of a process",
        "makes the kernel end a process of the host first when memory is short",
        "disturb",
        traps.victim,
    ),
    _process("daemon", "leaves a process behind that left the session and its parents", "daemon", traps.survivors),
    _process("reading another run", "reads what another run wrote, while both run", "seek", traps.neighbour, beside="hide"),
    _process("ending another run", "ends another run, while both run", "stab", traps.neighbour, beside="hide"),
    _process("keyring", "reads a key of the host from the kernel's keyring", "keys", traps.kernel_key),
)

_MORE = replace(
    SMALL, processes=56, memory=320 * MIB, file_size=8 * MIB, disk=48 * MIB, inodes=3000, open_files=250, output=256 * KIB
)
"""The control of the greedy ones: enough for their goal."""

# More than was granted.

RESOURCE_ATTACKS = (
    _resource(
        "fork bomb",
        "forks until it is stopped, and leaves the children behind",
        "fork_bomb",
        traps.fork_bomb(SMALL.processes, goal=48),
        lifted=_MORE,
        alone=True,
    ),
    _resource(
        "thread bomb",
        "starts threads until it is stopped",
        "thread_bomb",
        traps.further_than(SMALL.processes, "threads", goal=48),
        lifted=_MORE,
    ),
    _resource(
        "memory of one process",
        "takes more memory than it was granted",
        "memory",
        traps.further_than(2 * SMALL.memory, "bytes", goal=240 * MIB),
        lifted=_MORE,
    ),
    _resource(
        "memory of many processes",
        "takes more memory than it was granted, a share in each of several processes",
        "memory_of_many",
        traps.further_than(2 * SMALL.memory, "bytes", children=5, share=48 * MIB),
        lifted=_MORE,
    ),
    _resource(
        "shared memory",
        "takes more memory than it was granted, in pages that belong to no process alone",
        "memory_shared",
        traps.further_than(2 * SMALL.memory, "bytes", goal=240 * MIB),
        lifted=_MORE,
    ),
    _resource(
        "memory files",
        "takes more memory than it was granted, in files without a folder (memfd)",
        "memory_file",
        traps.further_than(2 * SMALL.memory, "bytes", goal=240 * MIB),
    ),
    _resource(
        "one big file",
        "writes a file bigger than any may be",
        "big_file",
        traps.further_than(SMALL.file_size, "bytes", goal=6 * MIB),
        lifted=_MORE,
    ),
    _resource(
        "many files",
        "writes more to the disk than it was granted, in files that are each small enough",
        "many_files",
        traps.further_than(2 * SMALL.disk, "bytes", goal=32 * MIB),
        lifted=_MORE,
    ),
    _resource(
        "many inodes",
        "makes more empty files and folders than it was granted",
        "many_inodes",
        traps.further_than(2 * SMALL.inodes, "files and folders", goal=2000),
        lifted=_MORE,
    ),
    _resource(
        "/dev/shm",  # noqa: S108 - a name
        "fills the memory that is mounted as a folder",
        "shared_memory_folder",
        traps.shared_memory_folder,
    ),
    _resource(
        "deep folders",
        "nests folders deeper than whoever removes them can go",
        "deep_folders",
        traps.deep_folders,
        limits=replace(SMALL, inodes=2000, disk=16 * MIB),
    ),
    _resource(
        "open files",
        "opens more files than it was granted",
        "open_files",
        traps.further_than(SMALL.open_files, "open files", goal=200),
        lifted=_MORE,
    ),
    _resource("endless output", "prints more than anybody wants to keep", "output", traps.endless_output, lifted=_MORE),
    _resource(
        "endless loop",
        "goes on after its time is over",
        "endless",
        traps.further_than(1.5, "seconds"),
        limits=replace(SMALL, wall_seconds=0.8),
        lifted=replace(SMALL, wall_seconds=2.5),
        alone=True,
    ),
    _resource(
        "CPU in many processes",
        "burns more CPU than it was granted, a share in each of several processes",
        "cpu_of_many",
        traps.further_than(1.2, "seconds of CPU", children=4, share=0.5),
        limits=replace(SMALL, cpu_seconds=0.6),
        lifted=SMALL,
        alone=True,
    ),
    _resource("left-over shared memory", "leaves System V shared memory behind", "leftover_segment", traps.segment),
)

# From one run to the next, and what the host tells of itself. All by files that every run must be able to read, or by calls.

CHANNEL_ATTACKS = (
    _channel(
        "reading without waiting",
        "asks whether a page of a file of the host is in memory, by a read that does not wait for it",
        "without_waiting",
        traps.shared_file(1),
    ),
    _channel("mincore", "asks which pages of a file of the host are in memory", "residency", traps.shared_file(2)),
    _channel(
        "cachestat",
        "counts the pages of a file of the host in memory",
        "cache_statistics",
        traps.shared_file(3),
        privileged=True,
    ),
    _channel("fadvise", "drops the pages of a file of the host from memory", "drop_pages", traps.shared_file(4)),
    _channel(
        "madvise", "calls pages of a file of the host needed, cold or to be paged out", "advise_pages", traps.shared_file(5)
    ),
    _channel(
        "names in memory",
        "asks whether somebody looked for a name before",
        "cached_names",
        traps.shared_file(6),
        privileged=True,
    ),
    _channel(
        "asynchronous reads",
        "sets up a queue of reads that need not wait, past a filter of calls",
        "queue",
        traps.own_word(),
        privileged=True,
    ),
    _channel("inotify", "watches when others open a file of the host", "watch", traps.shared_file(7)),
    _channel(
        "lock (flock)",
        "sees that another run locked a file of the host, which locks the host out, too",
        "see_flock",
        traps.another_run,
        beside="hold_lock",
    ),
    _channel(
        "lock (fcntl)",
        "sees that another run locked a range of a file of the host",
        "see_lock",
        traps.another_run,
        beside="hold_lock",
    ),
    _channel(
        "terminal of another run",
        "opens the terminal that another run made for itself",
        "seek_terminal",
        traps.another_run,
        beside="open_terminal",
    ),
    _channel("dates of files", "leaves a date on a file or device of the host", "leave_dates", traps.dates),
    _channel(
        "rights by descriptor",
        "sets the rights of a file of yours that it may only read",
        "leave_rights",
        traps.shared_file(8, ours=True),
    ),
    _channel("mounts", "reads what of the host is mounted where", "tell", traps.mounts),
    _channel(
        "mounts by call", "asks the kernel for its mounts by a newer call", "list_mounts", traps.own_word(), privileged=True
    ),
    _channel("command line", "reads the command lines of the kernel and of the first process", "tell", traps.command_line),
    _channel(
        "counters",
        "reads counters of the host, which tell what others do",
        "count_on",
        traps.existing(*(f"/proc/{name}" for name in traps.COUNTERS)),
    ),
    _channel(
        "system information",
        "asks the kernel for memory, load and processes of the host",
        "system_information",
        traps.own_word(),
    ),
)

ATTACKS: tuple[Attack, ...] = (
    *RESOURCE_ATTACKS,
    *NETWORK_ATTACKS,
    *FILE_ATTACKS,
    *PROCESS_ATTACKS,
    *CHANNEL_ATTACKS,
    *PRIVILEGE_ATTACKS,
)
