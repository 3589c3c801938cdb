"""One architecture exported, planned and verified, each in a process of its own with limits."""

import multiprocessing
import os
import resource
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLUSTER = HERE / "two-unequal-cpus.json"
PATIENCE = 20  # times the limit may pass on the clock: a busy machine is not the model's fault
# What a plan that does not train as one device is told, and how many times as many samples then
# show whether rounding is to blame: statistics over the few values of small images amplify it.
DIFFERS, MORE_SAMPLES = "does not train as one device", 4
RANDOM = "a branch on a random number"  # of the refusals, the one that dropout=False may avoid


@dataclass(frozen=True)
class Settings:
    heterog: str  # the program
    seconds: int = 180  # of the processor, for each of the three
    batch: int = 12  # two thirds on one device, one on the other
    planner: str = "cp-ar"
    steps: int = 2
    memory: int = 10 << 30  # bytes of a process: beyond that it fails, and not the machine


def warm_up(libraries):
    """What starts processes that have imported PyTorch, these libraries and the exporter already."""
    os.environ["PYTHONPATH"] = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["export_entry", *(f"{library}_models" for library in libraries)])
    return context


def measure(context, name: str, kind: str, settings: Settings) -> dict:
    """What docs/exporting.md counts: exported, verified, and the line where one of them failed."""
    with tempfile.TemporaryDirectory() as folder:
        record = {"name": name, "kind": kind} | _attempt(context, name, folder, settings, True)
        if RANDOM in record.get("refusal", ""):
            record["without_dropout"] = _attempt(context, name, folder, settings, False)
    return record


def _attempt(context, name: str, folder: str, settings: Settings, dropout: bool) -> dict:
    graph, plan = f"{folder}/graph.json.gz", f"{folder}/plan.json"
    answer = _export(context, name, graph, dropout, settings)
    record = {"exported": "line" in answer, "verified": False,
              "export_seconds": round(answer["seconds"], 1)}  # fmt: skip
    if not record["exported"]:
        broken = "refusal" not in answer
        return record | {"refusal": answer["broken" if broken else "refusal"], "broken": broken}
    record |= {"operators": answer["operators"], "parameters": answer["parameters"],
               "checked": answer["line"]}  # fmt: skip

    for batch in (settings.batch, MORE_SAMPLES * settings.batch):
        record |= _verify(graph, plan, batch, settings)
        if record["verified"] or DIFFERS not in record["reason"]:
            break
    return record


def _verify(graph: str, plan: str, batch: int, settings: Settings) -> dict:
    given = ["--graph", graph, "--cluster", str(CLUSTER), "--threads", "1"]
    stages = {
        "plan": ["--batch", batch, "--planner", settings.planner, "--out", plan],
        "verify": ["--plan", plan, "--steps", settings.steps],
    }
    record = {"batch": batch, "verify_seconds": 0.0, "verified": False}
    for stage, more in stages.items():
        command = [settings.heterog, stage, *given, *map(str, more)]
        code, err, took = _run(command, settings)
        record["verify_seconds"] = round(record["verify_seconds"] + took, 1)
        if code != 0:
            return record | {"stage": stage, "reason": _ended(code, err, settings.seconds)}
    return record | {"verified": True}


def _export(context, name: str, out: str, dropout: bool, settings: Settings) -> dict:
    from export_entry import export_entry

    seconds = settings.seconds
    receive, send = context.Pipe(duplex=False)
    limit = partial(set_limits, seconds, settings.memory)
    process = context.Process(target=export_entry, args=(name, out, dropout, limit, send))
    process.start()
    send.close()
    process.join(seconds * PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()
    if process.exitcode == 0 and receive.poll():
        return receive.recv()
    return {"broken": _ended(process.exitcode, "", seconds), "seconds": seconds}


def _run(command: list[str], settings: Settings) -> tuple[int, str, float]:
    """Exit code, what was printed on stderr, seconds of the processor."""
    with tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=err,
            preexec_fn=partial(set_limits, settings.seconds, settings.memory))  # fmt: skip
        late = threading.Timer(settings.seconds * PATIENCE, process.kill)
        late.start()
        _, status, usage = os.wait4(process.pid, 0)
        late.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        return process.returncode, err.read(), usage.ru_utime + usage.ru_stime


def set_limits(seconds: int, memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def _ended(code: int, err: str, seconds: int) -> str:
    """The line that says why a process did not do what it was to."""
    # Where soft and hard limit of the processor's time are one, the kernel sends SIGKILL.
    if code in (-signal.SIGKILL, -signal.SIGXCPU):
        return f"not done within {seconds} s of the processor"
    if code < 0:
        return f"ended by signal {-code} ({signal.Signals(-code).name})"
    lines = [line for line in err.strip().splitlines() if line.strip()]
    return lines[-1].removeprefix("heterog: error: ") if lines else f"exit code {code}"
