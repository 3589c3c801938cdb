"""What `plan --from` finds for a changed cluster or batch, beside the old plan and a new one.

    scripts/reproduce.sh replan [--known N] [--only WORD]

Each model is planned on its cluster. Then a device leaves, one becomes half as fast, one more comes,
or the batch doubles. Of each change: the step of the old plan carried over as it is, of `plan
--from` with a budget of a tenth of a second (half a second on 64 devices) beyond what reading files
takes, of `plan --from` without one, and of `plan` from nothing, and the seconds that the last three
take, without reading files.
"off" is how much longer than the shortest step that any of them found, and with --known N than what
`plan --evaluations N` finds too. --only: cases whose line has the word.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import mean

from heterog_tables import ROOT, machine
from network_speed import without_comments
from order_table import heterog

CASES = [("vgg19", "heterog-8gpu", 192), ("resnet200", "heterog-8gpu", 192),
         ("mobilenet_v2", "heterog-8gpu", 192), ("transformer6", "heterog-8gpu", 720),
         ("bert_large24", "heterog-8gpu", 48), ("resnet50", "office-mixed", 192),
         ("inception_v3", "heterog-12gpu", 288), ("transformer6", "dgx-h100-mixed", 1440),
         ("gnmt4", "workstation-3090-4090", 128), ("vgg19", "mixed-64gpu", 2048),
         ("resnet50", "mixed-64gpu", 4096), ("bert_large24", "mixed-64gpu", 512)]  # fmt: skip
AT_ONCE = 0.1, 0.5  # seconds, on up to 16 devices and on 64
RATES = ["fp32_flops_per_second", "tf32_flops_per_second", "half_flops_per_second",
         "bf16_flops_per_second", "fp64_flops_per_second", "memory_bytes_per_second"]  # fmt: skip


def changing(cluster):
    """Of the first machine that has several devices: it, and the last entry of its devices."""
    one = next(one for one in cluster["machines"]
               if sum(devices.get("count", 1) for devices in one["devices"]) > 1)
    one["devices"][-1].setdefault("count", 1)
    return one, one["devices"][-1]


def one_by_one(cluster):
    """Every machine described alone, so that one can be changed."""
    machines = []
    for one in cluster["machines"]:
        count = one.pop("count", 1)
        for i in range(count):
            name = one["name"] if count == 1 else f"{one['name']}-{i}"
            machines.append(json.loads(json.dumps({**one, "name": name})))
    cluster["machines"] = machines
    return cluster


def changes(name, batch, folder):
    """(what changes, the cluster then, the batch then)."""
    path = ROOT / f"configs/clusters/{name}.json"
    plain = one_by_one(json.loads(without_comments(path)))
    shipped = json.loads(without_comments(ROOT / "configs/devices.json"))["devices"]

    def written(what, change):
        cluster = json.loads(json.dumps(plain))
        here = Path(folder) / what.replace(" ", "-")
        here.mkdir(exist_ok=True)
        change(cluster, here)
        (here / "cluster.json").write_text(json.dumps(cluster))
        return what, here / "cluster.json", batch

    def leaves(cluster, _here):
        one, devices = changing(cluster)
        devices["count"] -= 1
        if devices["count"] == 0:
            one["devices"].remove(devices)

    def comes(cluster, _here):
        changing(cluster)[1]["count"] += 1

    def slows(cluster, here):
        one, devices = changing(cluster)
        fast = next(d for d in shipped if d["name"] == devices["model"])
        slow = {**fast, "name": fast["name"] + "-half"}
        slow.update({rate: fast[rate] / 2 for rate in RATES if rate in fast})
        (here / "devices.json").write_text(json.dumps(
            {"format": "heterog-devices", "version": 1, "devices": [slow]}))  # fmt: skip
        at = one["devices"].index(devices)
        rest = [{**devices, "count": devices["count"] - 1}] if devices["count"] > 1 else []
        one["devices"][at : at + 1] = [{"model": slow["name"], "count": 1}, *rest]

    yield written("one less", leaves)
    yield written("one half as fast", slows)
    yield written("one more", comes)
    yield "batch x 2", path, 2 * batch


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--known", type=int, help="plans of a long search, to compare with")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"planned on: {machine()}; milliseconds of a step, how much longer than the best, "
          "seconds of planning\n")
    print(f"{'model (batch), cluster':40}{'change':18}{'carried':>9}{'off':>8}{'at once':>9}{'off':>8}"
          f"{'s':>6}{'--from':>9}{'off':>8}{'s':>6}{'anew':>9}{'off':>8}{'s':>6}  found by")
    off = {"carried": [], "at once": [], "from": [], "anew": []}
    seconds_of = {"at once": ([], []), "from": ([], [])}  # on up to 16 devices, on 64
    parts = []
    for model, name, batch in CASES:
        case = f"{model} ({batch}), {name}"
        if options.only not in case:
            continue
        with tempfile.TemporaryDirectory() as folder:
            graph = ["--graph", ROOT / f"models/{model}.json.gz"]
            old = f"{folder}/old.json"
            heterog("plan", *graph, "--cluster", name, "--batch", batch, "--out", old, "--json")
            for what, cluster, then in changes(name, batch, folder):
                files = [*graph, "--cluster", cluster, "--batch", then, "--out",
                         f"{folder}/new.json", "--json"]  # fmt: skip
                is_large = "64gpu" in name
                replanned = heterog("plan", *files, "--from", old)
                carried = replanned["from"]
                reading = replanned["plan_seconds"] - carried["seconds"]
                at_once = heterog("plan", *files, "--from", old, "--budget",
                                  round(reading + AT_ONCE[is_large], 3))  # fmt: skip
                anew = heterog("plan", *files)
                steps = {"carried": carried["step_seconds"] if carried["feasible"] else None,
                         "at once": at_once["step_seconds"], "from": replanned["step_seconds"],
                         "anew": anew["step_seconds"]}
                known = [step for step in steps.values() if step]
                if options.known:
                    long = heterog("plan", *files, "--evaluations", options.known)
                    known.append(long["step_seconds"])
                best = min(known)
                cells = []
                for way, step in steps.items():
                    if step is None:
                        cells.append(f"{'no room':>9}{'':8}")
                        continue
                    longer = 100 * (step / best - 1)
                    off[way].append(longer)
                    cells.append(f"{1e3 * step:9.1f}{longer:+6.1f} %")
                seconds = {"at once": at_once["from"]["seconds"], "from": carried["seconds"]}
                for way, took in seconds.items():
                    seconds_of[way][is_large].append(took)
                parts.append(100 * seconds["from"] / anew["plan_seconds"])
                print(f"{case:40}{what:18}{cells[0]}{cells[1]}{seconds['at once']:6.2f}{cells[2]}"
                      f"{seconds['from']:6.2f}{cells[3]}{anew['plan_seconds']:6.2f}  "
                      f"{replanned['planner']}", flush=True)
    print("\n" + "; ".join(f"{way}: {mean(all_off):.1f} % off in the mean, {max(all_off):.1f} % at "
                           "most" for way, all_off in off.items() if all_off))
    if parts:
        print(f"--from takes {mean(parts):.0f} % of the time of a plan from nothing in the mean, "
              f"{max(parts):.0f} % at most")
    for way, by_size in seconds_of.items():
        for size, seconds in zip(("up to 16 devices", "64 devices"), by_size):
            if seconds:
                print(f"{way} on {size}: {mean(seconds):.2f} s in the mean, "
                      f"{max(seconds):.2f} s at most")


if __name__ == "__main__":
    main()
