"""Files of the host: reading them, writing them, and having them carried out."""

from pathlib import Path

from journeyman.sandbox.attacks import traps, victims
from journeyman.sandbox.attacks.base import Attack

ATTACKS = (
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
        trap=victims.host_environment,
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
