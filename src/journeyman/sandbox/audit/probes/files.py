"""Files of the host: reading, writing, and having them carried out as one's own."""

import os
import stat
from contextlib import suppress
from hashlib import sha256

from . import Bait, refusals, say


def read(bait: Bait) -> None:
    for path in bait["paths"]:
        with refusals(path), open(path, "rb") as file:
            say(read=file.read(4096).decode("latin-1"))


def read_privately(bait: Bait) -> None:
    """Opens what is not to be shown, and says how much there is."""
    with open(bait["path"], "rb") as file:
        if size := len(file.read(64)):
            say(through=f"{size} bytes of {bait['path']}")


def write(bait: Bait) -> None:
    for folder in bait["folders"]:
        with refusals(folder), open(os.path.join(folder, bait["name"]), "w") as file:
            file.write("written from within")


def append(bait: Bait) -> None:
    with open(bait["path"], "a") as file:
        file.write("written from within")


def environment(bait: Bait) -> None:
    """Of this process and of all that can be seen, as digests: what is secret stays here."""
    found = {f"{name}={value}" for name, value in os.environ.items()}
    pids: list[str] = []
    with refusals("/proc"):
        pids = [name for name in os.listdir("/proc") if name.isdecimal()]
    for pid in pids:
        with refusals(pid), open(f"/proc/{pid}/environ", "rb") as file:
            found.update(entry.decode("latin-1") for entry in file.read().split(b"\0") if entry)
    for entry in found:
        say(digest=sha256(entry.encode()).hexdigest())


def descriptors(bait: Bait) -> None:
    """Files that were left open."""
    for fd in range(3, 256):
        with suppress(OSError):
            if stat.S_ISREG(os.fstat(fd).st_mode):
                say(read=os.pread(fd, 256, 0).decode("latin-1"))


def link_to_file(bait: Bait) -> None:
    os.symlink(bait["path"], "link.out")
    os.symlink(f"/proc/self/root{bait['path']}", "root.out")


def link_to_folder(bait: Bait) -> None:
    os.symlink(os.path.dirname(bait["path"]), "folder")


def hard_link(bait: Bait) -> None:
    os.link(bait["path"], "hard.out")


def fifo(bait: Bait) -> None:
    """A file whose reader waits for ever."""
    os.mkfifo("fifo.out")


def device(bait: Bait) -> None:
    """A disk's device file of one's own making; it is opened and not read."""
    os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(*bait["device"]))
    os.close(os.open("disk", os.O_RDONLY))
    say(through="a disk was opened by a device file made within")


def disk(bait: Bait) -> None:
    for path in bait["paths"]:
        with refusals(path):
            os.close(os.open(path, os.O_RDONLY))
            say(through=f"{path} was opened")


def open_for_writing(bait: Bait) -> None:
    """Opened and closed, never written."""
    for path in bait["paths"]:
        with refusals(path):
            os.close(os.open(path, os.O_WRONLY))
            say(through=f"{path} was opened for writing")


def terminal(bait: Bait) -> None:
    """Writes on the user's terminal, and types into it."""
    import fcntl
    import termios

    fd = os.open(bait["path"], os.O_RDWR | os.O_NOCTTY)
    os.write(fd, bait["token"].encode())
    with refusals("TIOCSTI"):
        fcntl.ioctl(fd, termios.TIOCSTI, b"x")
