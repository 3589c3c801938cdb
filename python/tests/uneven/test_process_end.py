"""A process does not end while a thread of PyTorch's has still an object of Python's to let go of."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Who holds the function is a Python thread here, and says so; it takes its time once the script is over.
SCRIPT = """
import threading, time
import torch
from heterog.uneven.process_end import released_before_the_end

held = [released_before_the_end(THING)]

def hold():
    time.sleep(0.5)
    print("lets go", flush=True)  # first: the end may come as soon as the function is gone
    held.clear()

threading.Thread(target=hold, daemon=True).start()
"""


@pytest.mark.parametrize("thing", ["lambda: None", "torch.zeros(1)"])
def test_python_ends_after_it_was_let_go_of(thing):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("THING", thing)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "lets go\n"
