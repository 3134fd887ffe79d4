"""Which control groups are found, and that those of the dead are swept away."""

import os
from pathlib import Path

from journeyman.sandbox import fork_server_host

VERSION_1 = """30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
31 25 0:27 /docker/ab /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
32 25 0:28 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices
33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
"""


def test_each_hierarchy_of_version_1_is_found_at_our_own_place_in_it() -> None:
    groups = "3:memory:/user\n2:pids:/docker/ab/me\n5:cpu,cpuacct:/\n4:devices:/\n1:name=systemd:/\n"
    found = {tuple(sorted(each.controllers)): str(each.folder) for each in fork_server_host.hierarchies(groups, VERSION_1)}
    assert found == {
        ("memory",): "/sys/fs/cgroup/memory/user",
        ("pids",): "/sys/fs/cgroup/pids/me",
        ("cpu", "cpuacct"): "/sys/fs/cgroup/cpu,cpuacct",
    }


def test_in_version_2_the_parent_shares_out_since_a_group_with_processes_cannot(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user/cgroup.subtree_control").write_text("memory pids\n")
    mounts = f"30 25 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n"
    (found,) = fork_server_host.hierarchies("0::/user/me\n", mounts)
    assert (found.version, found.folder, found.controllers) == (2, tmp_path / "user", frozenset({"memory", "pids"}))


def test_a_version_2_without_the_controllers_is_none(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("hugetlb\n")
    mounts = f"30 25 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n"
    assert list(fork_server_host.hierarchies("0::/\n", mounts)) == []


def test_groups_of_processes_that_are_gone_are_removed_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "journeyman-4194999-0/run-1").mkdir(parents=True)
    (tmp_path / f"journeyman-{os.getpid()}-0").mkdir()
    fork_server_host.sweep(tmp_path)
    assert [folder.name for folder in tmp_path.iterdir()] == [f"journeyman-{os.getpid()}-0"]
