"""The program `heterog`, which the tests hold the library against."""

import json
import os
import subprocess
from pathlib import Path

from heterog_command import program_environment

from heterog.base.errors import HeterogError

ROOT = Path(__file__).resolve().parent.parent.parent


def find_program() -> str:
    """HETEROG_BIN, or what this checkout has built."""
    places = [ROOT / "build" / kind / "bin" / "heterog" for kind in ("release", "dev")]
    if given := os.environ.get("HETEROG_BIN"):
        places = [Path(given)]
    for place in places:
        if place.is_file():
            return str(place)
    raise HeterogError(f"{places[0]}: no program; build it (scripts/build_release.sh)")


def run_program(arguments: list[str]) -> dict:
    """What a verb prints with --json."""
    done = started(arguments)
    if done.returncode != 0:
        raise HeterogError(error_of_program(done), done.returncode)
    return json.loads(done.stdout)


def started(arguments: list[str]) -> subprocess.CompletedProcess:
    program = find_program()
    return subprocess.run(
        [program, *arguments, "--json"],
        env=program_environment(Path(program).parent),
        capture_output=True,
        text=True,
        check=False,
    )


def error_of_program(done: subprocess.CompletedProcess) -> str:
    """The one line that it ends with."""
    return done.stderr.splitlines()[-1].removeprefix("heterog: error: ")
