"""Files and the network, once for all rooms: whole files, JSON Lines, locks, HTTP, metrics."""
