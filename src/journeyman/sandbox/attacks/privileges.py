"""Rights that the code was not given."""

from journeyman.sandbox.attacks import traps
from journeyman.sandbox.attacks.base import Attack


def _privilege(name: str, tried: str, probe: str, *, privileged: bool = True) -> Attack:
    """What the code itself can tell: that a right was granted."""
    return Attack(name=name, tried=tried, category="privileges", probe=probe, trap=traps.own_word(), privileged=privileged)


ATTACKS = (
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
