"""`python -m heterog.discover`."""

import sys

from heterog.discover.command import main

sys.exit(main())
