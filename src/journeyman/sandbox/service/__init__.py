"""The code service: a sandbox behind HTTP, in a process of its own. `journeyman sandbox serve` starts it."""
