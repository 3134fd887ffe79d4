"""`python -m journeyman` is `journeyman`."""

import sys

from journeyman.cli import main

sys.exit(main())
