"""`python -m heterog.import_profile`."""

import sys

from heterog.profiles.command import main

sys.exit(main())
