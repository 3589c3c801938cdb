"""`python -m heterog.import_timings`."""

import sys

from heterog.profiles.timings_command import main

sys.exit(main())
