"""Processes of the host, and other runs."""

from journeyman.sandbox.attacks import victims
from journeyman.sandbox.attacks.base import Attack

ATTACKS = (
    Attack(
        name="environment of a process",
        tried="reads the environment of the host's processes",
        category="processes",
        probe="files.environment",
        trap=victims.victim,
    ),
    Attack(
        name="memory of a process",
        tried="reads the memory of a process of the host by a system call",
        category="processes",
        probe="memory_by_call",
        trap=victims.victim,
    ),
    Attack(
        name="memory of a process by /proc",
        tried="reads the memory of a process of the host as a file",
        category="processes",
        probe="memory_by_file",
        trap=victims.victim,
    ),
    Attack(
        name="ptrace",
        tried="takes hold of a process of the host as a debugger does",
        category="processes",
        probe="trace",
        trap=victims.victim,
    ),
    Attack(
        name="signals",
        tried="ends a process of the host",
        category="processes",
        probe="signals",
        trap=victims.victim,
    ),
    Attack(
        name="signals by descriptor",
        tried="ends a process of the host by a pidfd",
        category="processes",
        probe="signal_by_descriptor",
        trap=victims.victim,
    ),
    Attack(
        name="settings of a process",
        tried="makes the kernel end a process of the host first when memory is short",
        category="processes",
        probe="disturb",
        trap=victims.victim,
    ),
    Attack(
        name="daemon",
        tried="leaves a process behind that left the session and its parents",
        category="processes",
        probe="daemon",
        trap=victims.survivors,
    ),
    Attack(
        name="reading another run",
        tried="reads what another run wrote, while both run",
        category="processes",
        probe="seek",
        trap=victims.neighbour,
        beside="hide",
    ),
    Attack(
        name="ending another run",
        tried="ends another run, while both run",
        category="processes",
        probe="stab",
        trap=victims.neighbour,
        beside="hide",
    ),
    Attack(
        name="keyring",
        tried="reads a key of the host from the kernel's keyring",
        category="processes",
        probe="keys",
        trap=victims.kernel_key,
    ),
)
