"""What two processes on this machine achieve by each transport that the program has.

    cmake --preset release && cmake --build build/release --target heterog transport_rank
    .venv/bin/python scripts/measure/transports.py [--build build/release] [--steps 60] [--rounds 5] [--out F]

Steps a second are those of `heterog run` (the median of rounds, in each of which the transports take
turns), of a model of many small messages. Bytes a second are of all-reduces and of messages of
64 MiB that nothing runs beside, small all-reduces those of 4 KiB. A peer is lost by SIGKILL after
its second step, where nobody has started the ranks who would notice it: seconds until the other has
ended, with exit code 4 and a line that names it.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

FILES = ["--graph", "models/lenet5-tiny.json.gz", "--cluster", "configs/clusters/local-2cpu.json"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def output(arguments: list[str]) -> str:
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout


def transports(program: str) -> list[str]:
    """What the program says that it has."""
    wrong = subprocess.run(
        [program, "run", *FILES, "--plan", "none", "--transport", "?"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return wrong.stderr.split(" has ")[1].strip().split(", ")


def step_seconds(program: str, plan: str, transport: str, steps: int) -> float:
    said = output(
        [program, "run", *FILES, "--plan", plan, "--steps", str(steps), "--threads", "1",
         "--no-measure", "--json", "--transport", transport]
    )  # fmt: skip
    return json.loads(said)["median_step_seconds"]


def moved(program: str, transport: str) -> dict[str, float]:
    port = free_port()
    ranks = [
        subprocess.Popen([program, str(rank), str(port), transport], stdout=subprocess.PIPE)
        for rank in range(2)
    ]
    said = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"{transport}: a rank failed")
    return json.loads(said[0])


def seconds_until_noticed(program: str, plan: str, transport: str, folder: str) -> float:
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [program, "run", *FILES, "--plan", plan, "--steps", "1000000", "--threads", "1",
               "--no-measure", "--transport", transport]  # fmt: skip
    ranks = []
    for rank in range(2):
        with open(f"{folder}/{rank}", "w") as out:
            environment = os.environ | variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            ranks.append(
                subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.PIPE)
            )
    while "step 2" not in open(f"{folder}/0").read():  # rank 0 prints for both
        time.sleep(0.01)
    ranks[1].send_signal(signal.SIGKILL)
    begin = time.monotonic()
    error = ranks[0].communicate()[1].decode()
    seconds = time.monotonic() - begin
    ranks[1].communicate()
    if ranks[0].returncode != 4 or "rank 1 (local/gpu1): " not in error:
        sys.exit(f"{transport}: rank 0 ended with {ranks[0].returncode}: {error}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", help="all figures, as JSON")
    given = parser.parse_args()
    program, rank = f"{given.build}/bin/heterog", f"{given.build}/bin/transport_rank"
    names = transports(program)
    figures = {name: {"step_seconds": [], "noticed_seconds": [], "moved": []} for name in names}
    with tempfile.TemporaryDirectory() as folder:
        plan = f"{folder}/plan.json"
        output([program, "plan", *FILES, "--batch", "8", "--planner", "ev-ar", "--out", plan])
        for _ in range(given.rounds):
            for name in names:
                figures[name]["step_seconds"].append(step_seconds(program, plan, name, given.steps))
                figures[name]["moved"].append(moved(rank, name))
                figures[name]["noticed_seconds"].append(
                    seconds_until_noticed(program, plan, name, folder)
                )
    if given.out:
        with open(given.out, "w") as file:
            json.dump({"load": os.getloadavg(), "transports": figures}, file, indent=1)
    print("| transport | steps a second | small all-reduces a second | all-reduced, GB/s "
          "| sent, GB/s | seconds until a lost peer is noticed |\n|---|---|---|---|---|---|")  # fmt: skip
    for name, of in figures.items():
        rate = {key: statistics.median(one[key] for one in of["moved"]) for key in of["moved"][0]}
        print(
            f"| {name} | {1 / statistics.median(of['step_seconds']):.0f} "
            f"| {rate['small_all_reduces_per_second']:.0f} "
            f"| {rate['all_reduce_bytes_per_second'] / 1e9:.2f} "
            f"| {rate['message_bytes_per_second'] / 1e9:.2f} "
            f"| {statistics.median(of['noticed_seconds']):.2f} |"
        )
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
