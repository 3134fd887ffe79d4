"""To the host, which listens on loopback; nothing leaves the machine."""

import os
import socket

from . import Bait, number_of, refusals, say, syscall

SECONDS = 1.0


def tcp(bait: Bait) -> None:
    for address in bait["addresses"]:
        with refusals(address), socket.create_connection((address, bait["port"]), SECONDS) as line:
            line.sendall(bait["token"].encode())


def udp(bait: Bait) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(bait["token"].encode(), ("127.0.0.1", bait["port"]))


def dns(bait: Bait) -> None:
    """What is to be told, as the name of a host that is looked up."""
    label = bait["token"].encode()
    question = bytes([len(label)]) + label + b"\x07invalid\x00" + b"\x00\x01\x00\x01"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(os.urandom(2) + b"\x01\x00\x00\x01" + b"\x00" * 6 + question, ("127.0.0.1", bait["port"]))


def unix_socket(bait: Bait) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(SECONDS)
        line.connect(bait["path"])
        line.sendall(bait["token"].encode())


def abstract_socket(bait: Bait) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(SECONDS)
        line.connect("\0" + bait["path"])
        line.sendall(bait["token"].encode())


def vsock(bait: Bait) -> None:
    """A socket to the hypervisor, which no network namespace holds back on older kernels."""
    with socket.socket(40, socket.SOCK_STREAM) as line:
        say(through=f"a vsock socket, {line.fileno()}")


def packets(bait: Bait) -> None:
    """Raw packets, past every rule for ports: seen if this machine's loopback can be listened to."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as line:
        line.bind(("lo", 0))
        line.settimeout(SECONDS)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(bait["token"].encode(), ("127.0.0.1", bait["port"]))


def io_uring(bait: Bait) -> None:
    """A queue of requests that the kernel carries out past a filter of system calls."""
    import ctypes

    queue = syscall(425, ctypes.c_uint(1), ctypes.create_string_buffer(120))
    os.close(queue)
    say(through="io_uring was set up", on=number_of(1, 0))
