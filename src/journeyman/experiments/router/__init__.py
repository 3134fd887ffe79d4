"""How a router is trained, proven and kept. At work it is `journeyman.serving.router`."""
