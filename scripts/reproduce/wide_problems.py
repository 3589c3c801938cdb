"""48 problems that nothing here was trained or tuned on: eight models of which no policy has seen one,
on twelve clusters of 4 to 1,024 GPUs, half of them behind networks of less than 3 GB/s."""

import json

# Kinds of machines of a cluster: how many, cards in each, card, link inside; then their network.
CLUSTERS = {
    "lab-4": ([(1, 2, "RTX-3090", "pcie4"), (1, 2, "RTX-2080-Ti", "pcie3")], "10gbe-tcp"),
    "cloud-8": ([(1, 4, "A100-SXM4-40GB", "nvlink3"), (1, 4, "V100-SXM2-16GB", "nvlink2-x2")],
                "100gbe-tcp"),
    "office-12": ([(1, 4, "RTX-4090", "pcie4-staged"), (1, 4, "RTX-3090", "pcie4"),
                   (1, 4, "RTX-2080-Ti", "pcie3")], "50gbe-rdma"),
    "rack-16": ([(1, 8, "V100-SXM2-16GB", "nvlink2-x2"), (1, 8, "P100-PCIE-16GB", "pcie3")],
                "infiniband-fdr"),
    "two-years-32": ([(2, 8, "A100-SXM4-80GB", "nvlink3"), (2, 8, "V100-SXM2-16GB", "nvlink2-x2")],
                     "25gbe-tcp"),
    "inference-40": ([(4, 4, "T4", "pcie3"), (6, 4, "L4", "pcie4")], "50gbe-tcp"),
    "three-years-48": ([(1, 8, "H100-SXM5-80GB", "nvlink4"), (2, 8, "A100-SXM4-40GB", "nvlink3"),
                        (3, 8, "V100-SXM2-16GB", "nvlink2-x2")], "100gbe-rdma"),
    "desks-64": ([(8, 4, "RTX-4090", "pcie4-staged"), (8, 4, "RTX-3090", "pcie4-staged")],
                 "50gbe-rdma"),
    "hall-256": ([(8, 8, "H100-SXM5-80GB", "nvlink4"), (24, 8, "A100-SXM4-40GB", "nvlink3")],
                 "100gbe-rdma"),
    "slow-hall-256": ([(16, 8, "A100-SXM4-80GB", "nvlink3"), (16, 8, "V100-SXM2-16GB", "nvlink2-x2")],
                      "25gbe-tcp"),
    "hall-512": ([(32, 8, "A100-SXM4-40GB", "nvlink3"), (32, 8, "V100-SXM2-16GB", "nvlink2-x2")],
                 "25gbe-rdma"),
    "hall-1024": ([(64, 8, "A100-SXM4-40GB", "nvlink3"), (64, 8, "V100-SXM2-16GB", "nvlink2-x2")],
                  "100gbe-rdma"),
}  # fmt: skip
SIZES = {"small": 16, "medium": 64, "large": 1024}  # the most devices of each third

# Samples a device. The first four go to every other cluster, the rest to those between.
MODELS = [{"resnet152": 24, "gpt-2_124m": 4, "bert_large48": 2, "swin-t": 16},
          {"transformer12": 48, "vit-b16": 16, "t5_small": 8, "tensor_holography": 4}]  # fmt: skip


def devices_of(cluster):
    return sum(machines * cards for machines, cards, _, _ in CLUSTERS[cluster][0])


def size_of(cluster):
    return next(size for size, most in SIZES.items() if devices_of(cluster) <= most)


def problems():
    """(model, batch, cluster) of all 48."""
    return [(model, each * devices_of(cluster), cluster)
            for at, cluster in enumerate(CLUSTERS)
            for model, each in MODELS[at % 2].items()]  # fmt: skip


def write_cluster(cluster, folder):
    """Its file, in a folder."""
    machines, network = CLUSTERS[cluster]
    described = [{"name": card.lower(), "count": count,
                  "devices": [{"model": card, "count": cards}],
                  "fabric": {"kind": "switch", "link": link}, "nic": {"link": network}}
                 for count, cards, card, link in machines]  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{cluster}.json"
    path.write_text(json.dumps({
        "format": "heterog-cluster", "version": 1, "name": cluster, "machines": described,
        "network": {"latency_seconds": 5e-6}}, indent=1))  # fmt: skip
    return path
