"""Runs a script as one rank of several, with a clock that trial steps put on: by a second a sample
on rank 0, by more on later ranks, whatever this machine's speed. Usage: slowed.py SCRIPT"""

import os
import runpy
import sys
from pathlib import Path

from heterog.uneven import step_times
from heterog.uneven.trial_steps import Trial

per_sample = 1 + 1.5 * int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))
now = 0.0
run_pass = Trial._pass


def timed_pass(trial, samples, **options):
    global now
    now += per_sample * samples
    run_pass(trial, samples, **options)


Trial._pass = timed_pass
step_times.clock = lambda: now
script = sys.argv.pop(1)
sys.path.insert(0, str(Path(script).parent))
runpy.run_path(script, run_name="__main__")
