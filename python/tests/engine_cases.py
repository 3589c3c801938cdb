"""Models in stages under torch.distributed.pipelining, for test_pipeline_stage.py: by ranks, and whole."""

import json
import os

import torch
import torch.distributed as dist
from ranks_of_tests import refusals
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import heterog

BATCH, WORDS, LENGTH, LAYERS = 8, 23, 6, 4
STEPS = 2


def gpt2():
    """Its output layer is its table of words."""
    rates = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(n_layer=LAYERS, n_embd=8, n_head=2, vocab_size=WORDS, n_positions=8, **rates)
    return GPT2LMHeadModel(config).double()


def llama():
    config = LlamaConfig(
        num_hidden_layers=LAYERS, hidden_size=8, intermediate_size=12, num_attention_heads=2,
        num_key_value_heads=1, vocab_size=WORDS, max_position_embeddings=8,
    )  # fmt: skip
    return LlamaForCausalLM(config).double()


class Adapted(nn.Module):
    """A frozen product, and a small one beside it that is learnt (LoRA), by peft's names."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base_layer(x) + 2 * self.lora_B(self.lora_A(x))


def llama_lora():
    model = llama().requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, Adapted(getattr(layer.self_attn, name)))
    return model.double()


class Positions(nn.Module):
    """A parameter in no module of a stage; the first and the last stage read another, which is also part
    of the result."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.place = nn.Parameter(torch.randn(8))
        self.scale = nn.Parameter(torch.randn(8))
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(LAYERS)])
        self.head = nn.Linear(8, WORDS)

    def forward(self, x):
        h = self.first(x) * self.scale + self.place
        for block in self.blocks:
            h = block(h)
        return {"logits": self.head(h * 2) * self.scale.sum(), "scale": self.scale}


class Around(Positions):
    """What the first module gives passes around all others."""

    def forward(self, x):
        first = self.first(x)
        h = first
        for block in self.blocks:
            h = block(h)
        return self.head(h + first)


class Words(Positions):
    """The last module's first argument is no activation."""

    def __init__(self):
        super().__init__()
        self.head = nn.Embedding(WORDS, 8)

    def forward(self, x):
        h = self.first(x)
        for block in self.blocks:
            h = block(h)
        return h * self.head(torch.arange(8))


def positions():
    return Positions().double()


def layers(before, name, after):
    return [*before, *(f"{name}.{i}" for i in range(LAYERS)), *after]


# Modules in the order of the forward pass.
CASES = {
    "gpt2": (gpt2, layers(["transformer.wte", "transformer.wpe"], "transformer.h", ["transformer.ln_f", "lm_head"])),
    "llama": (llama, layers(["model.embed_tokens"], "model.layers", ["model.norm", "lm_head"])),
    "llama_lora": (llama_lora, layers(["model.embed_tokens"], "model.layers", ["model.norm", "lm_head"])),
    "positions": (positions, layers(["first"], "blocks", ["head"])),
}


def inputs_and_target(name):
    torch.manual_seed(3)
    if name == "positions":
        return {"x": torch.randn(BATCH, 3).double()}, torch.randint(0, WORDS, (BATCH,))
    words = torch.randint(0, WORDS, (BATCH, LENGTH))
    return {"input_ids": words, "use_cache": False}, words


def loss_fn(result, target):
    if "scale" in result:
        return F.cross_entropy(result["logits"], target) + 1e-2 * result["scale"].square().sum()
    return F.cross_entropy(result.logits[:, :-1].flatten(0, 1), target[:, 1:].flatten())


def build(name):
    torch.manual_seed(1)
    return CASES[name][0]()


def optimizer(parameters):
    learnt = [p for p in parameters if p.requires_grad]
    return torch.optim.SGD(learnt, lr=0.5, momentum=0.9)


def handed_over(folder, name, stages, schedule, micro_batches=4, begins=None, samples=None):
    """Layers as they come, the fewest in the last stage; `begins` takes the place of where that begins."""
    modules = CASES[name][1]
    first = next(i for i, module in enumerate(modules) if module.endswith(".0"))
    cuts = [0, *(first + 2 + i for i in range(stages - 1)), len(modules)]
    samples = samples or [BATCH // micro_batches]
    devices = [{"name": f"box/cpu{i}", "type": "CPU"} for i in range(len(samples))]
    parts = [
        {"devices": devices, "modules": modules[a:b], "begins": modules[a] if a else None}
        for a, b in zip(cuts, cuts[1:], strict=False)
    ]
    parts[-1]["begins"] = begins or parts[-1]["begins"]
    path = f"{folder}/{name}-{schedule}-{micro_batches}.{os.getpid()}.json"
    content = {"format": "heterog-hand-over", "version": 2, "to": "torch-pipelining", "batch": BATCH,
               "micro_batches": micro_batches, "samples": samples, "schedule": schedule,
               "stages": parts}  # fmt: skip
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)
    return path


IGNORED = -100


def some_ignored(target):
    """Labels of some samples do not count, in one of them none does."""
    target = target.clone()
    for sample in range(BATCH):
        target[sample, : 1 + sample % (LENGTH + 1)] = IGNORED
    return target


def count(target):
    """What loss_fn() is a mean over."""
    return (target[:, 1:] != IGNORED).sum()


def whole(name, ignore=False):
    """Losses, and gradients and parameters by all their names, in one process."""
    model = build(name)
    inputs, target = inputs_and_target(name)
    target = some_ignored(target) if ignore else target
    update = optimizer(model.parameters())
    losses = []
    for _ in range(STEPS):
        update.zero_grad()
        loss = loss_fn(model(**inputs), target)
        loss.backward()
        losses.append(float(loss.detach()))
        gradients = of_names(model, lambda p: p.grad.clone())
        update.step()
    return losses, gradients, of_names(model, lambda p: p.detach().clone())


def of_names(model, what):
    return {
        name: what(p) for name, p in model.named_parameters(remove_duplicate=False) if p.grad is not None
    }


def in_stages(name, path, csv=None, ignore=False, group=None, seed=None):
    """`seed`: of parameters that are not those of all ranks."""
    model = build(name) if seed is None else other(name, seed)
    inputs, target = inputs_and_target(name)
    target = some_ignored(target) if ignore else target
    rank = heterog.pipeline_stage(
        model, path, loss_fn, inputs, schedule_csv=csv, group=group, count=count if ignore else None
    )
    update = optimizer(rank.model.parameters())
    losses = []
    for _ in range(STEPS):
        update.zero_grad()
        losses.append(float(rank.step(target, **inputs)))
        gradients = of_names(model, lambda p: p.grad.clone())
        update.step()
    return {"losses": losses, "gradients": gradients,
            "parameters": of_names(model, lambda p: p.detach().clone()),
            "held": sum(p.numel() for p in model.parameters())}  # fmt: skip


def other(name, seed):
    torch.manual_seed(seed)
    return CASES[name][0]()


def of_two_steps(name, path, group):
    """Gradients of two batches that are added up, as a part of those of one."""
    model = build(name)
    inputs, target = inputs_and_target(name)
    rank = heterog.pipeline_stage(model, path, loss_fn, inputs, group=group)
    rank.step(target, **inputs)
    once = of_names(model, lambda p: p.grad.clone())
    rank.step(target, **inputs)
    twice = of_names(model, lambda p: p.grad.clone())
    return {key: float((twice[key] - 2 * once[key]).norm() / once[key].norm()) for key in once}


def refused(folder, world):
    said, says = refusals()
    inputs, _ = inputs_and_target("gpt2")
    path = handed_over(folder, "gpt2", world, "Schedule1F1B")
    with says("ranks"):
        heterog.pipeline_stage(
            build("gpt2"), handed_over(folder, "gpt2", world + 1, "ScheduleGPipe"), loss_fn, inputs
        )
    with says("model"):
        heterog.pipeline_stage(build("llama"), path, loss_fn, inputs)
    with says("cache"):
        heterog.pipeline_stage(build("gpt2"), path, loss_fn, {"input_ids": inputs["input_ids"]})
    with says("batch"):
        heterog.pipeline_stage(build("gpt2"), path, loss_fn, {"input_ids": inputs["input_ids"][:3]})
    csv = f"{folder}/order{dist.get_rank()}.csv"
    for what, text in (("few", "0F0,0B0\n1F0,1B0\n" + "\n" * (world - 2)), ("words", "F\n")):
        with open(csv, "w", encoding="utf-8") as file:
            file.write(text)
        with says(f"order of {what}"):
            heterog.pipeline_stage(build("gpt2"), path, loss_fn, inputs, schedule_csv=csv)
    with says("no order"):
        heterog.pipeline_stage(build("gpt2"), handed_over(folder, "gpt2", world, "csv"), loss_fn, inputs)
    inputs, _ = inputs_and_target("positions")
    with says("around"):
        path = handed_over(folder, "positions", world, "Schedule1F1B")
        heterog.pipeline_stage(Around().double(), path, loss_fn, inputs)
    with says("words"):
        path = handed_over(folder, "positions", world, "Schedule1F1B", begins="head")
        heterog.pipeline_stage(Words().double(), path, loss_fn, inputs)
    return said


def of_files(rank, world, folder, files):
    """Each case as its files say: its stages, and the order of passes or None."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.save({name: in_stages(name, *paths) for name, paths in files.items()}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def worker(rank, world, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    torch.set_num_threads(1)
    found = {
        (name, schedule): in_stages(name, handed_over(folder, name, world, schedule))
        for name in CASES
        for schedule in ("Schedule1F1B", "ScheduleGPipe")
    }
    found["refused"] = refused(folder, world)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


# Two stages of two devices: micro-batches, what each replica has of one, and the order of passes.
REPLICAS = {
    "Schedule1F1B": (4, [1, 1]),
    "ScheduleGPipe": (2, [3, 1]),
    "csv": (2, [1, 3]),
}
# PyTorch cannot put gradients off where the result holds a parameter.
OF_REPLICAS = [(n, s) for n in CASES for s in REPLICAS if (n, s) != ("positions", "csv")]
ORDER = "0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1F1,1W0,1I1,1W1\n"


def of_replicas(rank, world, folder):
    """Ranks 1 to 4 of five, each case in two stages of two devices."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    torch.set_num_threads(1)
    group = dist.new_group(range(1, world))
    found = of_replicas_in(group, folder) if rank else {}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def of_replicas_in(group, folder):
    csv = f"{folder}/order{dist.get_rank()}.csv"
    with open(csv, "w", encoding="utf-8") as file:
        file.write(ORDER)
    found = {}
    for name, schedule in OF_REPLICAS:
        micro_batches, samples = REPLICAS[schedule]
        path = handed_over(folder, name, 2, schedule, micro_batches, samples=samples)
        order = csv if schedule == "csv" else None
        # The first of each stage's replicas has the parameters that all begin with.
        seed = 7 if dist.get_rank(group) % 2 else None
        found[name, schedule] = in_stages(name, path, order, group=group, seed=seed)
    path = handed_over(folder, "llama", 2, "Schedule1F1B", 2, samples=[1, 3])
    found["ignored"] = in_stages("llama", path, ignore=True, group=group)
    found["twice"] = of_two_steps("gpt2", handed_over(folder, "gpt2", 2, "Schedule1F1B", 2, samples=[3, 1]), group)
    said, says = refusals()
    inputs, target = inputs_and_target("llama")
    with says("ranks"):
        path = handed_over(folder, "llama", 3, "ScheduleGPipe", 2, samples=[3, 1])
        heterog.pipeline_stage(build("llama"), path, loss_fn, inputs, group=group)
    path = handed_over(folder, "llama", 2, "ScheduleGPipe", 2, samples=[3, 1])
    stage = heterog.pipeline_stage(build("llama"), path, loss_fn, inputs, group=group, count=lambda _: 0)
    with says("count"):
        stage.step(target, **inputs)
    return found | {"refused": said}
