"""`python -m heterog.export`."""

import sys

from heterog.export.command import main

sys.exit(main())
