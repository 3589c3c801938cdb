"""A process does not end while a thread of PyTorch's has still a Python function to let go of."""

import os
import subprocess
import sys
from pathlib import Path

# Who holds the function is a Python thread here, and says so; it takes its time once the script is over.
SCRIPT = """
import threading, time
from heterog.process_end import released_before_the_end

held = [released_before_the_end(lambda: None)]

def hold():
    time.sleep(0.5)
    print("lets go", flush=True)  # first: the end may come as soon as the function is gone
    held.clear()

threading.Thread(target=hold, daemon=True).start()
"""


def test_python_ends_after_the_function_was_let_go_of():
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "lets go\n"
