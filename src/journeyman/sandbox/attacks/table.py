"""Every attack of the suite."""

from journeyman.sandbox.attacks import files, network, privileges, processes, resources
from journeyman.sandbox.attacks.base import Attack

ATTACKS: tuple[Attack, ...] = (*resources.ATTACKS, *network.ATTACKS, *files.ATTACKS, *processes.ATTACKS, *privileges.ATTACKS)
