"""HeteroG's Table 5: minutes until a model has converged, by our steps, beside the paper's.

    scripts/reproduce.sh table5

The paper does not say how many iterations that takes; its minutes over its seconds a step (Tables 1
and 4) do. Prints that number for each of its three columns, and how far they are apart; then what as
many iterations as its HeteroG column has would take with our plan and our baselines, planned in one
shot. A speed-up is (baseline - HeteroG) / HeteroG.
"""

import argparse

from heterog_tables import BASELINES, TABLES, compare, machine

# Model, then minutes in the paper: HeteroG, CP-PS, CP-AR. The batch is that of Tables 1 and 4.
MINUTES = {
    1: [("vgg19", 513.1, 930.2, 660.9), ("resnet200", 633.1, 1137.1, 807.8),
        ("inception_v3", 834.6, 1463.9, 1047.5), ("mobilenet_v2", 221.4, 369.5, 319.5),
        ("nasnet_a_large", 1191.3, 1683.3, 1537.9)],
    4: [("vgg19", 369.8, 667.1, 457.1), ("resnet200", 423.8, 726.7, 533.1),
        ("inception_v3", 643.6, 980.8, 783.9), ("mobilenet_v2", 169.8, 264.5, 229.7),
        ("nasnet_a_large", 863.9, 1179.2, 1134.3)],
}  # fmt: skip
COMPARED = ["cp-ps", "cp-ar"]


def case_of(table, model):
    """Batch and the paper's seconds a step, by planner: the first case of the model."""
    _, batch, ours, *baselines = next(case for case in TABLES[table][1] if case[0] == model)
    return batch, {"HeteroG": ours, **dict(zip(BASELINES, baselines, strict=True))}


def steps_of(cluster, model, batch):
    found = compare(model, cluster, batch, None)
    return {"HeteroG": found["portfolio"]["step_seconds"],
            **{name: found[name]["step_seconds"] for name in COMPARED}}


def cells(minutes):
    ours = minutes["HeteroG"]
    return f"{ours:8.1f} " + " ".join(f"{minutes[name]:8.1f} {100 * (minutes[name] / ours - 1):+7.1f} %"
                                      for name in COMPARED)


def main():
    argparse.ArgumentParser(description=__doc__,
                            formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"HeteroG Table 5, minutes; planned on: {machine()}\n")
    heading = f"{'model (batch)':22} {'':6}" + f"{'HeteroG':>8} {'CP-PS':>18} {'CP-AR':>18}"
    spreads = []
    for table, rows in MINUTES.items():
        cluster = TABLES[table][0]
        print(f"{cluster:29}{heading[29:]}   iterations by HeteroG, CP-PS, CP-AR  apart  samples")
        for model, *minutes in rows:
            batch, step = case_of(table, model)
            paper = dict(zip(("HeteroG", *COMPARED), minutes, strict=True))
            iterations = {name: 60 * paper[name] / step[name] for name in paper}
            apart = max(iterations.values()) / min(iterations.values()) - 1
            spreads.append((apart, f"{model} on {cluster}"))
            steps = steps_of(cluster, model, batch)
            ours = {name: iterations["HeteroG"] * step / 60 for name, step in steps.items()}
            title = f"{model} ({batch})"
            print(f"{title:22} {'ours':6}{cells(ours)}")
            print(f"{'':22} {'paper':6}{cells(paper)}   "
                  + " ".join(f"{count:10,.0f}" for count in iterations.values())
                  + f" {100 * apart:7.1f} % {iterations['HeteroG'] * batch / 1e6:5.1f} M", flush=True)
        print()
    spreads.sort()
    print(f"iterations by the paper's three columns: {100 * spreads[0][0]:.1f} to "
          f"{100 * spreads[-2][0]:.1f} % apart, {100 * spreads[-1][0]:.1f} % for {spreads[-1][1]}")


if __name__ == "__main__":
    main()
