"""The scripts of `heterog completion`, read by the shells that they are for (bash: tests/cli)."""

import os
import pty
import select
import shutil
import subprocess
import time

import pytest
from program import find_program

ZSH, FISH = shutil.which("zsh"), shutil.which("fish")
PATIENCE = 120  # seconds, of a shell that never answers


def script(shell, folder):
    path = folder / f"completion.{shell}"
    made = subprocess.run([find_program(), "completion", shell], check=True, capture_output=True)
    path.write_bytes(made.stdout)
    (folder / "graph.json").write_text("{}")
    return path


def offered_by_fish(folder, line):
    path = script("fish", folder)
    asked = subprocess.run(
        [FISH, "--no-config", "-c", f"source '{path}'; complete --do-complete='{line}'"],
        cwd=folder, capture_output=True, text=True, check=True, timeout=PATIENCE,
        env=os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
    )  # fmt: skip
    assert asked.stderr == ""
    return [offer.split("\t")[0] for offer in asked.stdout.splitlines()]


@pytest.mark.skipif(FISH is None, reason="fish is not installed (scripts/setup.sh)")
def test_fish_offers_verbs_options_and_what_they_take(tmp_path):
    assert set(offered_by_fish(tmp_path, "heterog pl")) == {"plan", "planners"}
    options = offered_by_fish(tmp_path, "heterog plan --")
    assert {"--graph", "--cluster", "--batch"} <= set(options) and "--hostfile" not in options
    assert offered_by_fish(tmp_path, "heterog run --hostf") == ["--hostfile"]
    assert offered_by_fish(tmp_path, "heterog plan --planner loc") == ["local-search"]
    assert offered_by_fish(tmp_path, "heterog plan --planner=loc") == ["--planner=local-search"]
    assert set(offered_by_fish(tmp_path, "heterog shares --planner ")) == {"search", "ev-ar", "cp-ar"}
    assert set(offered_by_fish(tmp_path, "heterog completion ")) == {"bash", "zsh", "fish"}
    assert offered_by_fish(tmp_path, "heterog planners pip") == ["pipedream"]
    assert "graph.json" in offered_by_fish(tmp_path, "heterog plan --graph ")
    assert offered_by_fish(tmp_path, "heterog plan --batch ") == []


class Zsh:
    """A zsh at a terminal, in which keys are pressed."""

    def __init__(self, folder):
        path = script("zsh", folder)
        child, self._terminal = pty.fork()
        if child == 0:
            os.chdir(folder)
            home = {"HOME": str(folder), "ZDOTDIR": str(folder), "TERM": "dumb", "PATH": os.environ["PATH"]}
            os.execve(ZSH, ["zsh", "-f", "-i"], home)
        self._child = child
        self._number = 0
        self.run("unsetopt zle_bracketed_paste prompt_cr prompt_sp; PS1=; autoload -U compinit; compinit -D -u")
        self.run(f"source '{path}'")

    def run(self, command):
        """What it prints."""
        self._number += 1
        self.type(f"{command}; print end''-{self._number}-\n")
        return self.until(f"end-{self._number}-")

    def completed(self, line):
        """The line once the tabulator was pressed behind it."""
        self._number += 1
        # To the front of the line, to print it: quoted, and marked.
        self.type(f"{line}\t\x01print -r -- 'line-{self._number}:\x05'\n")
        told = self.until(f"\nline-{self._number}:").rpartition("\n")[0]
        rest = self.until("\n")
        assert told
        return rest.strip()

    def type(self, keys):
        os.write(self._terminal, keys.encode())

    def until(self, text):
        seen, end = "", time.monotonic() + PATIENCE
        while text not in seen:
            ready, _, _ = select.select([self._terminal], [], [], max(0, end - time.monotonic()))
            assert ready, f"zsh did not say {text!r}, but {seen!r}"
            # One by one: what stands behind is for the next question.
            seen += os.read(self._terminal, 1).decode(errors="replace")
        return seen

    def close(self):
        os.close(self._terminal)
        os.waitpid(self._child, 0)


@pytest.mark.skipif(ZSH is None, reason="zsh is not installed (scripts/setup.sh)")
def test_zsh_completes_verbs_options_and_what_they_take(tmp_path):
    zsh = Zsh(tmp_path)
    try:
        assert zsh.completed("heterog disc") == "heterog discover"
        assert zsh.completed("heterog run --hostf") == "heterog run --hostfile"
        assert zsh.completed("heterog plan --planner loc") == "heterog plan --planner local-search"
        assert zsh.completed("heterog plan --planner=loc") == "heterog plan --planner=local-search"
        assert zsh.completed("heterog simulate --order rank-q") == "heterog simulate --order rank-queued"
        assert zsh.completed("heterog completion f") == "heterog completion fish"
        assert zsh.completed("heterog planners pip") == "heterog planners pipedream"
        assert zsh.completed("heterog plan --graph gr") == "heterog plan --graph graph.json"
        # No word begins so: the line stays.
        assert zsh.completed("heterog plan --hostf") == "heterog plan --hostf"
    finally:
        zsh.close()
