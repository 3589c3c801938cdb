"""What a plan gains over the best data parallelism, by the speed of the network.

    scripts/reproduce.sh network_speed [MODEL ...]

HeteroG's eight models on its 8 GPUs, with every machine's network card replaced: 1 to 100 Gb/s, by
TCP and by RDMA. Of each the best of EV and CP by parameter server and all-reduce and of Horovod, what
`heterog plan` finds, and the speed-up. The last rows are of the cluster with the links that the
paper's authors measured with NCCL, where HeteroG gains 19 to 45 % over CP-AR or CP-PS.
"""

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from heterog_tables import ROOT, TABLES, machine
from order_table import heterog

# Of the line rate, what TCP on frames of 1,500 bytes leaves: for what has no kind of its own.
TCP_SHARE = 0.94
NETWORKS = [("1 GbE, TCP", {"bandwidth_bytes_per_second": 1e9 / 8 * TCP_SHARE,
                            "latency_seconds": 2e-5}),
            ("5 GbE, TCP", {"bandwidth_bytes_per_second": 5e9 / 8 * TCP_SHARE,
                            "latency_seconds": 2e-5}),
            ("10 GbE, TCP", {"link": "10gbe-tcp"}), ("25 GbE, TCP", {"link": "25gbe-tcp"}),
            ("25 GbE, RDMA", {"link": "25gbe-rdma"}), ("50 GbE, TCP", {"link": "50gbe-tcp"}),
            ("50 GbE, RDMA", {"link": "50gbe-rdma"}), ("100 GbE, TCP", {"link": "100gbe-tcp"}),
            ("100 GbE, RDMA", {"link": "100gbe-rdma"})]  # fmt: skip


def without_comments(path):
    return "\n".join(line for line in path.read_text().splitlines()
                     if not line.lstrip().startswith("//"))


def clusters(folder):
    plain = json.loads(without_comments(ROOT / "configs/clusters/heterog-8gpu.json"))
    for name, nic in NETWORKS:
        for one in plain["machines"]:
            one["nic"] = nic
        path = Path(folder) / "cluster.json"
        path.write_text(json.dumps(plain))
        yield name, path
    yield "authors' NCCL", ROOT / "configs/clusters/heterog-8gpu-authors.json"


def main():
    _, cases = TABLES[1]
    batches = {}
    for model, batch, *_ in cases:
        batches.setdefault(model, batch)
    models = sys.argv[1:] or list(batches)
    print(f"planned on: {machine()}; milliseconds of a step: best data parallelism, plan, speed-up\n")
    print(f"{'network':15}" + "".join(f"{f'{m} ({batches[m]})':>29}" for m in models)
          + f"{'median':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for name, path in clusters(folder):
            cells, gains = [], []
            for model in models:
                said = heterog("plan", "--graph", ROOT / f"models/{model}.json.gz", "--cluster",
                               path, "--batch", batches[model], "--out", f"{folder}/plan.json",
                               "--json")
                fitting = [b["step_seconds"] for b in said["baselines"]
                           if b["feasible"] and b["name"] not in ("single", "accumulate")]
                step = said["step_seconds"]
                if not fitting:
                    cells.append(f"{'none fits':>12}{1e3 * step:9.1f}{'':8}")
                    continue
                gains.append(100 * (min(fitting) / step - 1))
                cells.append(f"{1e3 * min(fitting):12.1f}{1e3 * step:9.1f}{gains[-1]:+6.0f} %")
            print(f"{name:15}" + "".join(f"{cell:>29}" for cell in cells)
                  + f"{median(gains):+8.0f} %", flush=True)


if __name__ == "__main__":
    main()
