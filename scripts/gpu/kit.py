"""Runs on a machine that has a GPU for a quarter of an hour, bare and without a network: python3 with
PyTorch and what scripts/gpu/prepare.sh has put into out/gpu are all that it needs.

    python3 scripts/gpu/kit.py right --out FOLDER    is it right?
    python3 scripts/gpu/kit.py fast --out FOLDER     how fast is it?
    python3 scripts/gpu/kit.py parts --out FOLDER    what do unequal shares gain on parts of one GPU?

Each takes --limit seconds at most (335). --only REGEX runs the steps that it is found in. FOLDER gets steps.tsv (name, exit code, seconds, last
line), log.txt (all that was said) and results.tgz, written anew after each step: what is there when
the machine goes away is kept. --fake runs the same lines on CPUs, small. Ends with 0 if every step
that there was time for did well, 1 if not, 2 on wrong usage: a folder without a wheel is none where
--site holds what an earlier run has installed.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
from pathlib import Path

from steps import Steps

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ZOO = ("lenet5 resnet50 bert_large24 xlnet_large24 lstm_lm transformer6 gnmt4 mobilenet_v2 ncf "
       "tensor_holography").split()  # fmt: skip
TINY = "tiny_causal tiny_causal_odd tiny_mask tiny_mask_odd tiny_dropout tiny_head6".split()
TINY_HALF = "tiny_causal tiny_head6 tiny_mask_odd tiny_dropout".split()
# What is timed: model, batch, and the type of autocast.
SPEED = (("gpt2", 8, "bf16"), ("resnet50_channels_last", 128, "bf16"), ("bert_large", 8, "bf16"),
         ("bert_large_no_dropout_tf32", 8), ("resnet50", 64), ("gpt2_tf32", 8))  # fmt: skip
# The parts of the one GPU, by multiprocessors, which an H200 gives in 15 groups of 8; and what is trained on them, with the batch.
PARTS = (64, 32, 16, 8)
ON_PARTS = {"resnet50": 64, "gpt2_tf32": 16, "bert_large_no_dropout_tf32": 16}
# What torch.cuda calls the cards that may be had, and their rows in configs/devices.json.
CARDS = {"NVIDIA H100 80GB HBM3": "H100-SXM5-80GB", "NVIDIA H200": "H200-SXM5-141GB"}


class Kit:
    def __init__(self, options):
        self.fake, self.folder = options.fake, options.kit.resolve()
        self.site = Path(options.site)
        if not list(self.folder.glob("*.whl")):
            if not (self.site / "heterog").is_dir():
                print(f"kit.py: --kit: {self.folder} holds no wheel; run scripts/gpu/prepare.sh first", file=sys.stderr)
                sys.exit(2)
            print(f"kit.py: {self.folder} holds no wheel: goes on with what {self.site} holds")
        # Where torch is on PYTHONPATH, and not in Python's own folder, it stays there.
        paths = [str(self.site), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {
            "HETEROG_KIT_FAKE": str(int(self.fake)), "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": f"{self.site}/kit-bin:{os.environ['PATH']}",
        }  # fmt: skip
        self.steps = Steps(options.out, options.limit, environment, options.only,
                           {f"{ROOT}/": "", str(self.folder): "KIT", str(self.site): "SITE"})
        self.results = self.steps.results
        self.device = "CPU"

    def python(self, script, *words):
        return [sys.executable, str(HERE / script), *map(str, words)]

    def prepare(self) -> bool:
        """The wheel, the command, and what the card is. Without these no other step is worth its time."""
        self.steps.step("machine", 20, "nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem "
                        "--format=csv; nproc; free -g | sed -n 2p; ldd --version | sed -n 1p; true", needed=True)  # fmt: skip
        if not (self.site / "heterog").is_dir():
            self.steps.step("install", 60, [
                sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile",
                "--no-cache-dir", "--target", str(self.site), *map(str, self.folder.glob("*.whl"))], needed=True)  # fmt: skip
        # The script that pip wrote is left out of --target's folder by some versions.
        command = self.site / "kit-bin" / "heterog"
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(
            f"#!/bin/sh\nexec {sys.executable} -c 'import heterog_command; heterog_command.main()' \"$@\"\n"
        )
        command.chmod(0o755)
        self.steps.step("environment", 60, self.python("measure.py", "environment"), needed=True)
        self.steps.step("planners", 40, "heterog planners", needed=True)
        if not self.fake:
            asked = [sys.executable, "-c", "import torch; print(torch.cuda.get_device_name(0))"]
            name = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
            self.device = CARDS.get(name, name.removeprefix("NVIDIA ").replace(" ", "-") or "H100-SXM5-80GB")
        self.steps.environment["HETEROG_KIT_DEVICE"] = self.device
        for name, devices in {"one": [self.device], "mixed": [self.device, "CPU"],
                              "shared": [self.device] * 2, "cpu": ["CPU", "CPU"]}.items():  # fmt: skip
            machine = {"name": "here", "devices": [{"model": each, "count": 1} for each in devices],
                       "fabric": {"kind": "switch", "link": "pcie5-staged"}}  # fmt: skip
            self.cluster(name).write_text(
                json.dumps({"format": "heterog-cluster", "version": 1, "name": name, "machines": [machine]})
            )
        return not self.steps.failed()

    def cluster(self, name) -> Path:
        return self.results / f"{name}.json"

    def graph(self, name) -> Path:
        return self.folder / f"{name}.json.gz"

    def verify(self, graph, cluster, planner, more="", batch=16) -> str:
        devices = "" if self.fake else "--devices plan"
        return f"heterog verify --graph {graph} --cluster {self.cluster(cluster)} --batch {batch} --planner {planner} {devices} {more}"

    # -------------------------------------------------------------------------------- is it right?
    def right(self):
        """Nothing is timed here, so steps go side by side, two threads each."""
        self.steps.environment.setdefault("OMP_NUM_THREADS", "2")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            train = f"heterog train --config {ROOT}/configs/train/small.json --set steps=2 --out {self.results}"
            steps = [pool.submit(self.steps_of_verify), pool.submit(self.ranks_as_processes),
                     pool.submit(self.steps.step, "client", 60, self.python("measure.py", "client")),
                     pool.submit(self.steps.step, "discover", 30, f"heterog discover --out {self.results}/discovered.json"),
                     pool.submit(self.steps.step, "train_cpu", 60, f"{train}/train_cpu")]  # fmt: skip
            if not self.fake:
                checked = self.verify("lenet5-tiny", "one", "single", "--dtype float32 --tolerance 2e-3")
                steps += [pool.submit(self.steps.step, "train_gpu", 60, f"{train}/train_gpu --gpu"),
                          pool.submit(self.steps.step, "memory_errors", 150, "compute-sanitizer --tool memcheck "
                                      f"--target-processes all {checked}")]  # fmt: skip
            for each in steps:
                each.result()

    def steps_of_verify(self):
        single = "--dtype float32 --tolerance 2e-3"
        zoo = ZOO[:3:2] if self.fake else ZOO
        self.steps.many("one_gpu", 90, 6, [
            self.verify(f"{name}-tiny", "one", "single", more) for more in ("", single) for name in zoo])  # fmt: skip
        self.steps.many("attention", 60, 6, [
            line for name in TINY for line in (
                self.verify(self.graph(name), "one", "single"),
                self.verify(self.graph(name), "one", "single", "--dtype float32 --tolerance 2e-3", 5))
        ] + [self.verify(self.graph(name + "_bf16"), "one", "single", "--dtype float32 --tolerance 5e-2")
             for name in TINY_HALF])  # fmt: skip
        self.steps.many("gpu_and_cpu", 90, 6, [
            self.verify(f"{name}-tiny", "mixed", planner) for name in zoo for planner in ("ev-ar", "cp-ps")
        ] + [self.verify(self.graph(name), "mixed", "ev-ar", "--dtype float32 --tolerance 2e-3")
             for name in ("tiny_mask", "tiny_dropout")
        ] + [self.verify("bert_large24-tiny", "shared", planner) for planner in ("ev-ps", "gpipe")
        ] + [self.verify(self.graph("tiny_dropout"), "mixed", "ev-ar",
                         "--processes --dtype float32 --tolerance 2e-3")])  # fmt: skip

    def ranks_as_processes(self):
        graph, job = "bert_large24-tiny", None
        for cluster, planner in (("cpu", "ev-ar"), ("mixed", "ev-ar"), ("mixed", "ev-ps"),
                                 ("shared", "ev-ar"), ("shared", "ev-ps")):  # fmt: skip
            plan = self.results / f"{cluster}.{planner}.plan.json"
            words = f"--graph {graph} --cluster {self.cluster(cluster)}"
            job = f"heterog run {words} --plan {plan} --steps 10 --any-device"
            self.steps.step(f"run_{cluster}_{planner}", 50,
                            f"heterog plan {words} --batch 16 --planner {planner} --out {plan} && {job}")  # fmt: skip
        if self.fake:
            self.steps.step("losses", 20, self.python("table.py", "losses", self.results))
            return
        # Two processes on GPU 0. NCCL refuses a GPU that another rank of its host has: each gets a host
        # of its own by name, and sockets of the loopback device between them.
        job = (f"heterog run --graph {graph} --cluster {self.cluster('shared')} --plan "
               f"{self.results}/shared.ev-ar.plan.json --steps 10 --any-device --timeout 25")  # fmt: skip
        self.steps.step("run_nccl_on_one_gpu", 50, (
            "export HETEROG_NCCL_ON_ONE_GPU=1 NCCL_SOCKET_IFNAME=lo NCCL_NET=Socket NCCL_P2P_DISABLE=1 "
            "NCCL_SHM_DISABLE=1 NCCL_DEBUG=WARN MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 WORLD_SIZE=2; "
            f"RANK=1 LOCAL_RANK=1 NCCL_HOSTID=b {job} & RANK=0 LOCAL_RANK=0 NCCL_HOSTID=a {job}; code=$?; "
            "wait $! && exit $code"))  # fmt: skip
        self.steps.step("losses", 20, self.python("table.py", "losses", self.results))

    # -------------------------------------------------------------------------------- how fast is it?
    def speed(self, model, batch, half=""):
        """Eager PyTorch with its baselines, the runtime, and the runtime that records every task."""
        name = model + (f"_{half}" if half else "")
        graph, plan, one = self.graph(name), self.results / f"{name}.plan.json", self.cluster("one")
        self.baseline("eager", model, batch, half)
        self.steps.step(f"plan_{name}", 20, f"heterog plan --graph {graph} --cluster {one} --batch {batch} "
                        f"--planner single --out {plan}")  # fmt: skip
        job = f"heterog run --graph {graph} --cluster {one} --plan {plan} --json"
        for kind, more in (("run", "--steps 14 --no-measure"), ("recorded", f"--steps 8 --trace {self.results}/trace_{name}")):
            self.steps.step(f"{kind}_{name}", 60, f"{job} {more} | tee {self.results}/{kind}_{name}.json "
                            "| tail -c 300; exit ${PIPESTATUS[0]}")  # fmt: skip

    def baseline(self, kind, model, batch, half=""):
        """kind: eager or compiled, of measure.py."""
        name = model + (f"_{half}" if half else "")
        self.steps.step(f"{kind}_{name}", 90, f"{sys.executable} {HERE}/measure.py {kind} {model} {batch} {half} "
                        f"| tee {self.results}/{kind}_{name}.json; exit ${{PIPESTATUS[0]}}")  # fmt: skip

    def fast(self):
        if self.fake:
            self.speed("tiny_causal", 8, "bf16")
            profile, graph = self.results / "tiny.profile.json", self.graph("tiny_causal")
            self.steps.step("profile_in_steps", 60, f"heterog profile --graph {graph} --device CPU --in-steps "
                            f"--slices 4,8 --repeat 3 --force --out {profile}")  # fmt: skip
        else:
            for model in SPEED:
                self.speed(*model)
            graph, profile = self.graph("gpt2_bf16"), self.results / "gpt2.profile.json"
            self.steps.step("profile_in_steps", 50, f"heterog profile --graph {graph} --device {self.device} --in-steps "
                            f"--slices 4,16 --repeat 7 --out {profile}")  # fmt: skip
            self.steps.step("plan_by_profile", 20, f"heterog plan --graph {graph} --cluster {self.cluster('one')} "
                            f"--batch 8 --planner single --profile {profile} --out {self.results}/gpt2.by_profile.json")  # fmt: skip
        self.steps.step("trace", 60, self.python("measure.py", "trace", self.results))
        self.steps.step("shares", 60, [sys.executable, "-m", "torch.distributed.run", "--standalone",
                                       "--nproc-per-node", "2", str(HERE / "measure.py"), "shares"])  # fmt: skip
        if not self.fake:
            # Samples for configs/calibration: operators one by one, for so many seconds.
            for name in ("resnet50_channels_last_bf16", "gpt2_bf16"):
                self.steps.step(f"operators_{name}", 35, f"heterog profile --graph {self.graph(name)} --device {self.device} "
                                f"--slices 8,32 --repeat 5 --limit 28 --out {self.results}/operators_{name}.json")  # fmt: skip
            # Last, as each takes half a minute to compile.
            for model in SPEED:
                self.baseline("compiled", *model)
        print(self.steps.step("table", 20, self.python("table.py", "steps", self.results), needed=True).said)

    # -------------------------------------------------------------------------------- unequal parts of one GPU
    def parts(self):
        # Memory is dealt evenly: each part holds the even plan, and speed alone is unequal.
        devices = [{"model": "H100-SXM5-80GB" if self.fake else self.device,
                    "part_of_gpu": {"multiprocessors": each, "memory_bytes": 19_000_000_000}} for each in PARTS]  # fmt: skip
        fabric = {"kind": "bus", "bandwidth_bytes_per_second": 1.675e12, "latency_seconds": 20e-6}
        machine = {"name": "here", "devices": devices, "fabric": fabric}
        self.cluster("parts").write_text(
            json.dumps({"format": "heterog-cluster", "version": 1, "name": "parts", "machines": [machine]})
        )
        if not self.fake:
            split = ",".join(map(str, PARTS))
            self.steps.step("split", 30, f"heterog discover --split {split} --out {self.results}/split.json")
        self.steps.many("verify_parts", 45, 4, [
            self.verify(f"{name}-tiny", "parts", planner) for name in ("bert_large24", "resnet50")[:1 if self.fake else 2]
            for planner in ("ev-ar", "cp-ar", "gpipe")])  # fmt: skip
        models = {"tiny_causal": 16} if self.fake else ON_PARTS
        self.steps.many("plan_parts", 60, 4, [
            self.plan_parts(model, batch, kind, more) for model, batch in models.items()
            for kind, more in (("even", "--planner ev-ar"), ("proportional", "--planner cp-ar"), ("best", ""))])  # fmt: skip
        for model, batch in models.items():
            self.on_parts(model, batch)
        self.shares_of_multiprocessors()
        print(self.steps.step("table", 20, self.python("table.py", "parts", self.results), needed=True).said)

    def words_of_parts(self, model) -> str:
        return f"--graph {self.graph(model)} --cluster {self.cluster('parts')}"

    def plan_of_parts(self, model, kind) -> Path:
        return self.results / f"parts_{model}.{kind}.plan.json"

    def plan_parts(self, model, batch, kind, more) -> str:
        return f"heterog plan {self.words_of_parts(model)} --batch {batch} {more} --out {self.plan_of_parts(model, kind)}"

    def on_parts(self, model, batch):
        """Runs the even, the proportional and the best plan; then that by what each part was measured to take."""

        def run(kind):
            self.steps.step(f"run_{model}_{kind}", 25, (
                f"heterog run {self.words_of_parts(model)} --plan {self.plan_of_parts(model, kind)} --in-threads --steps 12 --json "
                f"{'--any-device' if self.fake else ''} | tee {self.results}/parts_{model}.{kind}.run.json | tail -c 300; "
                "exit ${PIPESTATUS[0]}"))  # fmt: skip

        for kind in ("even", "proportional", "best"):
            run(kind)
        if self.fake:
            return  # without a GPU, no operator of a part can be measured
        profiles = []
        for part in PARTS:
            profiles.append(f"--profile {self.results}/parts_{model}.{part}.profile.json")
            self.steps.step(f"profile_{model}_{part}", 20, f"heterog profile --graph {self.graph(model)} --device "
                            f"{self.device}:{part} --in-steps --slices 2,8,16 --repeat 3 --out {profiles[-1].split()[1]}")  # fmt: skip
        self.steps.step(f"plan_{model}_by_profile", 25, self.plan_parts(model, batch, "by_profile", " ".join(profiles)))
        run("by_profile")

    def shares_of_multiprocessors(self):
        """auto_shares of two processes that the driver's multi-process service gives unequal parts."""
        job = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2 {HERE}/measure.py shares parts"
        if self.fake:
            self.steps.step("shares_parts", 60, job)
            return
        self.steps.step("shares_parts", 60, (
            f"export CUDA_MPS_PIPE_DIRECTORY={self.results}/mps CUDA_MPS_LOG_DIRECTORY={self.results}/mps; mkdir -p {self.results}/mps; "
            "if ! nvidia-cuda-mps-control -d; then echo the multi-process service does not start here; exit 0; fi; "
            f"{job}; code=$?; echo quit | nvidia-cuda-mps-control; exit $code"))  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["right", "fast", "parts"])
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--kit", type=Path, default=ROOT / "out" / "gpu", help="what prepare.sh has filled")
    parser.add_argument("--limit", type=float, default=335, help="seconds (335)")
    parser.add_argument("--only", default="", metavar="REGEX", help="of the steps, those whose name this is found in")
    parser.add_argument("--site", default="/tmp/heterog-site", help="where the wheel is installed")
    parser.add_argument("--fake", action="store_true", help="on CPUs, small")
    options = parser.parse_args()
    kit = Kit(options)
    try:
        if kit.prepare():
            {"right": kit.right, "fast": kit.fast, "parts": kit.parts}[options.what]()
    finally:
        kit.steps.close()
    failed = kit.steps.failed()
    print(f"{len(kit.steps.rows) - len(failed)} steps passed, {len(failed)} failed" + (": " if failed else "") + ", ".join(failed))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
