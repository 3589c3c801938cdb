"""How much faster LoRA is trained on ranks of unequal speed, and how far from one process it ends
(docs/auto_shares.md).

    sudo .venv/bin/python scripts/reproduce/lora_training.py [--repeat 3]

A small GPT-2 of transformers with peft's adapters, one text a rank, 16 of which a rank of the even
script accumulates for an update; 20 updates of AdamW. Each row is trained three times: by ranks with as
much each, by ranks with the micro-batches that were found, and by one process on all texts. Ranks are
capped to parts of a core, as in scripts/reproduce/auto_shares.py. Hugging Face's Trainer computes in
float32, the plain loop under DistributedDataParallel in float64. Times are the medians of an update, of
those behind the first ten. Needs root, for control groups, and peft and Accelerate
(examples/uneven/requirements.txt).
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from pathlib import Path

import auto_shares
from cap import PERIOD, Cap, run_capped

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = 16
UPDATES = 20
TOKENS = 64
SETUPS = {
    "2 ranks, one at half speed": [0.6, 0.3],
    "3 ranks of three speeds": [0.48, 0.32, 0.16],
}
LOOPS = {"trainer": "Trainer, float32", "ddp": "DDP, float64"}


def build(dtype):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_embd=192, n_layer=4, n_head=4, n_positions=TOKENS, vocab_size=1000, use_cache=False,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    adapters = LoraConfig(r=16, lora_alpha=32, target_modules=["c_attn"], fan_in_fan_out=True)
    return get_peft_model(GPT2LMHeadModel(config).to(dtype), adapters, autocast_adapter_dtype=False)


class Texts:
    """The same tokens in every process; of a fifth of the labels nothing is asked."""

    def __init__(self, count: int):
        import torch

        draw = torch.Generator().manual_seed(1)
        self.tokens = torch.randint(0, 1000, (count, TOKENS), generator=draw)
        ignored = torch.rand(count, TOKENS, generator=draw) < 0.2
        self.labels = self.tokens.masked_fill(ignored, -100)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, row):
        return {"input_ids": self.tokens[row], "labels": self.labels[row]}


def trained_by_trainer(model, texts, ranks: int, found: bool, out: str):
    """Times at which updates had ended."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    import heterog

    class Clock(TrainerCallback):
        ends: list = []

        def on_step_end(self, *args, **kwargs):
            self.ends.append(time.perf_counter())

    kind = heterog.uneven_trainer(Trainer, rebalance=None, say=say) if found else Trainer
    trainer = kind(
        model=model,
        args=TrainingArguments(
            output_dir=out, per_device_train_batch_size=1, max_steps=UPDATES, learning_rate=2e-4,
            gradient_accumulation_steps=PARTS * (ranks if int(os.environ["WORLD_SIZE"]) == 1 else 1),
            use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no",
            ddp_find_unused_parameters=False,
        ),
        train_dataset=texts,
        callbacks=[Clock],
    )  # fmt: skip
    trainer.train()
    return Clock.ends


def trained_by_loop(model, texts, ranks: int, found: bool):
    """The same in a plain loop. One process computes each accumulated batch in one pass: its loss is the
    mean over all labels that count, as weights make it on unequal shares."""
    import torch
    from torch.nn import functional as F
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    import heterog

    alone = int(os.environ["WORLD_SIZE"]) == 1
    wrapped = model if alone else DistributedDataParallel(model)
    parts = 1 if alone else PARTS
    sampler = None if alone else DistributedSampler(texts, shuffle=False)
    loader = DataLoader(texts, batch_size=PARTS * ranks if alone else 1, sampler=sampler)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)

    def loss(batch):  # the model's own casts logits to float32
        logits = wrapped(batch["input_ids"]).logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())

    if found:
        loader = heterog.auto_shares(wrapped, loader, loss, accumulate=parts, rebalance=None, say=say)
    ends = []
    for number, batch in enumerate(loader):
        last = loader.last if found else number % parts == parts - 1
        with contextlib.nullcontext() if last or alone else wrapped.no_sync():
            (loss(batch) / parts).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
            ends.append(time.perf_counter())
    return ends


def say(line: str) -> None:
    if os.environ["RANK"] == "0":
        print(line, file=sys.stderr, flush=True)


def rank_main(options) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    world = int(os.environ["WORLD_SIZE"])
    model = build(torch.float32 if options.loop == "trainer" else torch.float64)
    start = torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])
    texts = Texts(UPDATES * PARTS * options.ranks)
    if options.loop == "trainer":
        ends = trained_by_trainer(model, texts, options.ranks, options.found, options.out + ".trainer")
    else:
        if world > 1:
            dist.init_process_group("gloo")
        ends = trained_by_loop(model, texts, options.ranks, options.found)
    if os.environ["RANK"] == "0":
        if len(ends) != UPDATES:
            sys.exit(f"{len(ends)} updates; expected {UPDATES}")
        end = torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])
        steps = [after - before for before, after in zip(ends[9:], ends[10:])]
        torch.save({"start": start, "end": end, "update": statistics.median(steps)}, options.out)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def train(loop: str, caps: list[float], ranks: int, found: bool, folder: Path) -> dict:
    """What rank 0 saved. Without caps one process trains alone."""
    import torch

    out = folder / "result.pt"
    out.unlink(missing_ok=True)
    world = len(caps) or 1
    command = [sys.executable, __file__, "--loop", loop, "--ranks", ranks, "--out", out]
    command += ["--found"] if found else []
    # RANK is of each process: the environment of all is one.
    commands = [
        ["env", f"RANK={rank}", f"LOCAL_RANK={rank}", *command] for rank in range(world)
    ]
    environment = os.environ | {
        "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python"),
    }  # fmt: skip
    parts = [Cap(str(rank), part) for rank, part in enumerate(caps or [1.0])]
    run_capped(commands, parts, lambda rank: None, environment)
    return torch.load(out)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs of each row")
    parser.add_argument("--out", default="out/lora_training")
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--found", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop is not None:
        rank_main(options)
        return
    folder = Path(options.out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{os.cpu_count()} cores of {auto_shares.processor()}; caps of {PERIOD / 1000:g} ms")
    print("| ranks | trained by | even | found | times as fast | off one process, even | off, found |")
    print("|---|---|---|---|---|---|---|")
    for setup, caps in SETUPS.items():
        for loop, name in LOOPS.items():
            one = train(loop, [], len(caps), False, folder)
            way = (one["end"] - one["start"]).norm()
            runs = []
            for _ in range(options.repeat):
                even, found = (train(loop, caps, len(caps), kind, folder) for kind in (False, True))
                off = [((run["end"] - one["end"]).norm() / way).item() for run in (even, found)]
                runs.append((even["update"], found["update"], even["update"] / found["update"], *off))
            middle = [statistics.median(column) for column in zip(*runs)]
            print(
                f"| {setup} | {name} | {1e3 * middle[0]:.0f} ms | {1e3 * middle[1]:.0f} ms | {middle[2]:.2f} | "
                f"{middle[3]:.0e} | {middle[4]:.0e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
