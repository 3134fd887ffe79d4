"""Out to the host, or further."""

import socket
from functools import partial

from journeyman.sandbox.attacks import traps
from journeyman.sandbox.attacks.base import Attack

ATTACKS = (
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
