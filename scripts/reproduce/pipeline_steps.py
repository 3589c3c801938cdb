"""Predicted against measured steps of plans under torch.distributed.pipelining, on this machine
(docs/results/pipeline_steps.md).

    sudo .venv/bin/python scripts/reproduce/pipeline_steps.py [--ranks 2 3] [--rounds 30] [--repeat 3]

A GPT-2 and a Llama with adapters (LoRA) of transformers are exported, planned (spp, a stage a rank,
four micro-batches), handed over and trained by PyTorch: ranks of one thread over gloo, each on a core
of its own before whatever else runs there; where there are more ranks than cores, each capped by the
kernel to its part of 0.8 of them (a control group with a quota in every 10 ms). Costs are a profile
that all ranks measure at once in the same way, `heterog profile --in-steps`; the link is a line
through times of messages between two such ranks. "Measured" is the median of a step
with its update, of --rounds steps after three to warm up. "Scaled" is "predicted" times what PyTorch
takes of a micro-batch and an update of the whole model on one rank, over what is predicted of that:
how much longer its passes are than those of the profile, without any pipeline; and, for each
micro-batch, what the model computes before its first layer (masks, positions), which every stage
does: also measured on one rank. "Replayed" is the step that the turns of the
schedule make of what forward and backward passes and the update took in those steps themselves: what
is left of its error is that of turns and links, the rest of "predicted" the profile's. Each repetition profiles, plans and
measures anew. Needs root, for the caps, and a build (--preset).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cap import Cap, run_capped

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
BATCH, PARTS, LENGTH, WORDS = 16, 4, 64, 1000
MODELS = ("gpt2", "llama_lora")
# glibc gives memory back to the system between passes and takes it again, page by page. heterog's runtime
# keeps it, so PyTorch does too.
KEEPS_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}
SIZES = [1 << 10, 1 << 16, 1 << 18, 1 << 20]  # bytes of messages


def build(name):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    if name == "gpt2":
        rates = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        config = GPT2Config(n_layer=6, n_embd=256, n_head=4, vocab_size=WORDS, n_positions=LENGTH, **rates)
        return GPT2LMHeadModel(config)
    config = LlamaConfig(
        num_hidden_layers=6, hidden_size=256, intermediate_size=688, num_attention_heads=4,
        num_key_value_heads=4, vocab_size=WORDS, max_position_embeddings=LENGTH,
    )  # fmt: skip
    if name == "llama":
        return LlamaForCausalLM(config)
    model = LlamaForCausalLM(config).requires_grad_(False)
    for layer in model.model.layers:
        for what in ("q_proj", "v_proj"):
            setattr(layer.self_attn, what, adapted(getattr(layer.self_attn, what)))
    return model


def adapted(base):
    """A frozen product, and a small one beside it that is learnt."""
    from torch import nn

    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base_layer = base
            self.lora_A = nn.Linear(base.in_features, 8, bias=False)
            self.lora_B = nn.Linear(8, base.out_features, bias=False)

        def forward(self, x):
            return self.base_layer(x) + 2 * self.lora_B(self.lora_A(x))

    return Adapted()


def loss_fn(result, words):
    from torch.nn import functional as F

    return F.cross_entropy(result.logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def optimizer(parameters):
    import torch

    return torch.optim.AdamW([p for p in parameters if p.requires_grad], lr=1e-3)


def export(name, path) -> None:
    import torch

    import heterog

    def words(batch):
        return (torch.randint(0, WORDS, (batch, LENGTH)),)

    model = build(name)
    step = heterog.export_training_step(
        model, words, lambda model, w: loss_fn(model(input_ids=w, use_cache=False), w),
        optimizer(model.parameters()), name, batches=[2, 4, 16], check=False,
    )  # fmt: skip
    step.save(path)


def together(commands, world) -> None:
    """Each command as a rank: on its core, or on its part of one."""
    cores = os.cpu_count()
    part = 0.8 * cores / world if world > cores else cores  # all: such a group comes before others
    caps = [Cap(f"pipeline{i}", part) for i in range(len(commands))]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python")} | KEEPS_MEMORY

    run_capped(commands, caps, lambda rank: rank if world <= cores else None, environment)


def rank_of(what, rank, world, folder, *words) -> list:
    return [sys.executable, __file__, "--rank-of", what, rank, world, folder, *words]


def fitted_link(folder) -> dict:
    """Seconds of a message = latency + bytes / bandwidth, by its two smallest and largest sizes."""
    seconds = json.loads((folder / "link0.json").read_text(encoding="utf-8"))
    bandwidth = (SIZES[-1] - SIZES[1]) / max(1e-9, seconds[-1] - seconds[1])
    return {"kind": "switch", "bandwidth_bytes_per_second": bandwidth, "latency_seconds": max(1e-7, seconds[0])}


def one(heterog, name, world, rounds, folder) -> dict:
    graph, plan, stages = folder / f"{name}.json.gz", folder / "plan.json", folder / "stages.json"
    profiles = [folder / f"{rank}.profile.json" for rank in range(world)]
    for path in [*profiles, *folder.glob("*.partial"), *folder.glob("meet*")]:
        path.unlink(missing_ok=True)
    together(
        [[heterog, "profile", "--in-steps", "--graph", graph, "--out", path, "--threads", 1,
          "--repeat", 9, "--slices", "2,4,8", "--force"] for path in profiles],
        world,
    )  # fmt: skip
    together([rank_of("link", rank, 2, folder) for rank in range(2)], world)
    together([rank_of("alone", rank, world, folder, name, rounds) for rank in range(world)], world)
    cluster = {"format": "heterog-cluster", "version": 1, "name": "ranks",
               "machines": [{"name": "box", "devices": [{"model": "CPU", "count": world}],
                             "fabric": fitted_link(folder)}]}  # fmt: skip
    (folder / "ranks.json").write_text(json.dumps(cluster), encoding="utf-8")
    files = ["--graph", graph, "--cluster", folder / "ranks.json", "--profile", profiles[0]]
    single = [heterog, "plan", *files, "--batch", str(BATCH // PARTS), "--planner", "single", "--out", plan, "--json"]
    of_one = json.loads(subprocess.run(single, check=True, stdout=subprocess.PIPE).stdout)["step_seconds"]
    of_torch = json.loads((folder / "alone0.json").read_text(encoding="utf-8"))
    planner = f"spp:stages={world},micro_batches={PARTS}"
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([heterog, "plan", *files, "--batch", str(BATCH), "--planner", planner, "--out", plan], **quiet)
    subprocess.run([heterog, "hand-over", *files, "--plan", plan, "--to", "torch-pipelining", "--out", stages], **quiet)
    handed = json.loads(stages.read_text(encoding="utf-8"))
    together([rank_of("train", rank, world, folder, name, rounds) for rank in range(world)], world)
    ranks = [json.loads((folder / f"train{rank}.json").read_text(encoding="utf-8")) for rank in range(world)]
    predicted = handed["step_seconds"]
    scaled = of_torch["step"] / of_one * predicted + PARTS * of_torch["before layers"]
    return {"predicted": predicted, "scaled": scaled, "measured": statistics.median(ranks[0]["steps"]),
            "replayed": replayed(ranks, handed["schedule"])}  # fmt: skip


def replayed(ranks, schedule) -> float:
    """Each stage takes its passes in turn, as soon as what a pass reads is there."""
    stages = len(ranks)
    turns = []
    for stage in range(stages):
        ahead = PARTS if schedule == "ScheduleGPipe" else min(PARTS, stages - stage)
        passes = [("forward", m) for m in range(ahead)]
        for m in range(PARTS):
            passes.append(("backward", m))
            passes += [("forward", ahead + m)] if ahead + m < PARTS else []
        turns.append(passes)
    end, free = {}, [0.0] * stages
    while any(turns):
        for stage, passes in enumerate(turns):
            while passes:
                kind, m = passes[0]
                reads = (kind, stage - 1 if kind == "forward" else stage + 1, m)
                if kind == "backward" and stage + 1 == stages:
                    reads = ("forward", stage, m)
                if reads not in end and not (kind == "forward" and stage == 0):
                    break
                free[stage] = max(free[stage], end.get(reads, 0.0)) + ranks[stage][kind]
                end[kind, stage, m] = free[stage]
                passes.pop(0)
    return max(at + rank["update"] for at, rank in zip(free, ranks, strict=True))


def rank_main(what, rank, world, folder, *words) -> None:
    import torch
    import torch.distributed as dist

    rank, world, folder = int(rank), int(world), Path(folder)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{what}", rank=rank, world_size=world)
    found = {"link": link, "alone": alone, "train": train}[what](rank, folder, *words)
    (folder / f"{what}{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    os._exit(0)  # threads of gloo do not always end with the interpreter


def link(rank, folder) -> list:
    """Seconds of a message of each size, half of there and back."""
    import torch
    import torch.distributed as dist

    found = []
    for size in SIZES:
        message, times = torch.zeros(size, dtype=torch.uint8), []
        for _ in range(60):
            begin = time.perf_counter()
            for sender in (0, 1):
                (dist.send if rank == sender else dist.recv)(message, 1 - rank)
            times.append((time.perf_counter() - begin) / 2)
        found.append(statistics.median(times))
    return found


def alone(rank, folder, name, rounds) -> dict:
    """Seconds of a micro-batch through the whole model and an update, of PyTorch alone, and of what a
    pass computes before the first layer."""
    import torch

    model = build(name)
    update = optimizer(model.parameters())
    words = torch.randint(0, WORDS, (BATCH // PARTS, LENGTH), generator=torch.Generator().manual_seed(3))
    times, before = [], []
    layers = next(module for module in model.modules() if isinstance(module, torch.nn.ModuleList))
    layers[0].register_forward_pre_hook(lambda *_: before.append(time.perf_counter() - begin))
    for _ in range(int(rounds) + 3):
        update.zero_grad()
        begin = time.perf_counter()
        loss_fn(model(input_ids=words, use_cache=False), words).backward()
        update.step()
        times.append(time.perf_counter() - begin)
    return {"step": statistics.median(times[3:]), "before layers": statistics.median(before[3:])}


def train(rank, folder, name, rounds) -> dict:
    """Seconds of each step, and the median of a pass and of an update: Python's collector of garbage
    takes a tenth of a second in some step."""
    import torch

    import heterog

    words = torch.randint(0, WORDS, (BATCH, LENGTH), generator=torch.Generator().manual_seed(3))
    inputs = {"input_ids": words, "use_cache": False}
    stage = heterog.pipeline_stage(build(name), folder / "stages.json", loss_fn, inputs)
    optimized = optimizer(stage.model.parameters())
    spent = {"forward": [], "backward": [], "update": []}

    def timed(what, function):
        def run(*args, **options):
            begin = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                spent[what].append(time.perf_counter() - begin)

        return run

    stage.stage.forward_one_chunk = timed("forward", stage.stage.forward_one_chunk)
    stage.stage.backward_one_chunk = timed("backward", stage.stage.backward_one_chunk)
    update = timed("update", optimized.step)
    times, rounds = [], int(rounds)
    for number in range(rounds + 3):
        if number == 3:
            for seconds in spent.values():
                seconds.clear()
        begin = time.perf_counter()
        optimized.zero_grad()
        stage.step(words, **inputs)
        update()
        if number >= 3:
            times.append(time.perf_counter() - begin)
    return {"steps": times} | {what: statistics.median(seconds) for what, seconds in spent.items()}


def main() -> None:
    if sys.argv[1:2] == ["--rank-of"]:
        rank_main(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 3])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--preset", default="release", help="whose build: build/PRESET")
    options = parser.parse_args()
    heterog = ROOT / "build" / options.preset / "bin" / "heterog"
    print("| model | ranks | measured | predicted | off, each run | scaled | off, each run "
          "| replayed | off, each run |")  # fmt: skip
    print("|" + "---|" * 9)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in options.models:
            export(name, folder / f"{name}.json.gz")
            for world in options.ranks:
                runs = [one(heterog, name, world, options.rounds, folder) for _ in range(options.repeat)]
                print(row(name, world, runs), flush=True)


def row(name, world, runs) -> str:
    cells = [f"{1e3 * statistics.median(run['measured'] for run in runs):.0f} ms"]
    for what in ("predicted", "scaled", "replayed"):
        cells.append(f"{1e3 * statistics.median(run[what] for run in runs):.0f} ms")
        cells.append(", ".join(f"{100 * (run[what] / run['measured'] - 1):+.0f} %" for run in runs))
    return f"| {name} | {world} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
