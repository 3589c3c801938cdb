"""GPT-2 medium under AdamW on two cards of 8 GB, neither of which holds it: weights, gradients and
optimizer state alone take 5.7 GB, and a text of 1,024 words another 2.5. Trains a few steps on the
devices of the plan and, a sample at a time, in plain PyTorch, from the same weights on the same
texts, and prints both. On machines without such cards, CPUs stand in for them.

    python -m heterog.export examples/two_cards/train.py:training --out gpt2_medium.json.gz
    python examples/two_cards/train.py
    python examples/two_cards/train.py --layers 2 --width 64 --length 32      # in seconds

docs/pipelines.md goes through it.
"""

import argparse
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import heterog

BATCH, WORDS = 8, 50257
CLUSTER = Path(__file__).parent / "cluster.json"


def build_model(layers: int = 24, width: int = 1024, length: int = 1024) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(n_embd=width, n_layer=layers, n_head=16, n_positions=length)
    # Without dropout, whose masks would be others in plain PyTorch.
    config.attn_pdrop = config.embd_pdrop = config.resid_pdrop = 0.0
    return GPT2LMHeadModel(config).train()


def build_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def texts(batch: int, length: int = 1024):
    return (torch.randint(0, WORDS, (batch, length)),)


def loss_fn(model, tokens):
    return model(input_ids=tokens, labels=tokens, use_cache=False).loss


def training() -> dict:
    """What heterog.export asks for."""
    return dict(model=build_model, make_inputs=texts, loss_fn=loss_fn, optimizer=build_optimizer,
                name="gpt2_medium")  # fmt: skip


def train_plainly(build, batches) -> tuple[torch.nn.Module, list[float]]:
    model = build()
    optimizer = build_optimizer(model.parameters())
    losses = []
    for tokens in batches:
        optimizer.zero_grad()
        losses.append(0.0)
        for one in tokens.split(1):
            loss = loss_fn(model, one) / len(tokens)
            loss.backward()
            losses[-1] += loss.item()
        optimizer.step()
    return model, losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--planner", default="portfolio", help="one of `heterog planners`")
    options = parser.parse_args()

    def build():
        return build_model(options.layers, options.width, options.length)

    torch.manual_seed(1)
    batches = [texts(BATCH, options.length)[0] for _ in range(options.steps)]
    config = {"batch": BATCH, "planner": options.planner, "any_device": True, "check": False}
    with heterog.get_runner(
        build, lambda batch: texts(batch, options.length), loss_fn, build_optimizer, str(CLUSTER),
        config,
    ) as runner:  # fmt: skip
        losses = [runner.step((tokens,)) for tokens in batches]
        found = [p.detach().clone() for p in runner.sync_to_model().parameters()]
        if runner.rank != 0:
            return
    plain, plain_losses = train_plainly(build, batches)
    started = list(build().parameters())
    # Of what training changed: weights start alike.
    difference = max(
        ((f - p).norm() / (p - s).norm()).item()
        for f, p, s in zip(found, plain.parameters(), started, strict=True)
    )
    print(f"{sum(p.numel() for p in plain.parameters()):,} parameters, batch {BATCH}")
    print("plain PyTorch  loss", " ".join(f"{loss:.6f}" for loss in plain_losses))
    print("two devices    loss", " ".join(f"{loss:.6f}" for loss in losses))
    print(f"largest relative difference of what a parameter has learnt: {difference:.1e}")


if __name__ == "__main__":
    main()
