"""What the GPU kit runs in Python on the device.

    measure.py environment
    measure.py eager MODEL BATCH [bf16]    eager PyTorch and its step as a CUDA graph: JSON
    measure.py compiled MODEL BATCH [bf16] torch.compile: JSON
    measure.py client                      the Python client beside plain PyTorch
    measure.py trace FOLDER                kernels, gaps and host time of the client's steps
    measure.py shares [parts]              auto_shares of two ranks (under torch.distributed.run)
HETEROG_KIT_FAKE=1: all of it on the CPU, small.
"""

import contextlib
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import torch

FAKE = os.environ.get("HETEROG_KIT_FAKE") == "1"
DEVICE = torch.device("cpu" if FAKE else "cuda:0")
TYPE = os.environ.get("HETEROG_KIT_DEVICE", "CPU")


def synchronize():
    if not FAKE:
        torch.cuda.synchronize()


def environment():
    print("python", platform.python_version(), "torch", torch.__version__, *platform.libc_ver())
    if not FAKE:
        card = torch.cuda.get_device_properties(0)
        print(f"{card.name}, {card.total_memory / 1e9:.2f} GB, {card.multi_processor_count} multiprocessors, "
              f"L2 {card.L2_cache_size / 1e6:.0f} MB, {torch.cuda.device_count()} GPU(s), "
              f"cuDNN {torch.backends.cudnn.version()}, NCCL {torch.cuda.nccl.version()}")  # fmt: skip


def milliseconds(step, count, warm=3):
    """Median of `count` steps, each waited for; and the mean of as many issued one behind the other,
    as training runs, where the host may be ahead."""
    for _ in range(warm):
        step()
    alone = []
    for _ in range(count):
        synchronize()
        begin = time.perf_counter()
        step()
        synchronize()
        alone.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    for _ in range(count):
        step()
    synchronize()
    return 1e3 * statistics.median(alone), 1e3 * (time.perf_counter() - begin) / count


class Eager:
    """A model that PyTorch trains, with a fused optimizer; its inputs on the host, pinned, and on the GPU."""

    def __init__(self, name, batch, half=None):
        import models

        self.spec = spec = getattr(models, name)()
        self.count = 2 if FAKE else 12
        torch.manual_seed(0)
        self.model = spec["model"]().to(DEVICE)
        # Adam counts its steps on the GPU where a step is to be recorded; SGD counts none.
        capturable = {} if FAKE or spec["optimizer"].func is torch.optim.SGD else {"capturable": True}
        self.optimizer = spec["optimizer"](self.model.parameters(), **capturable)
        self.host = [t if FAKE else t.pin_memory() for t in spec["make_inputs"](int(batch))]
        self.there = [t.to(DEVICE) for t in self.host]
        self.cast = torch.autocast(DEVICE.type, torch.bfloat16) if half else contextlib.nullcontext()
        self.found = {"model": name + ("_bf16" if half else ""), "batch": int(batch)}

    def train(self, inputs, run):
        self.optimizer.zero_grad(set_to_none=True)
        with self.cast:
            loss = self.spec["loss_fn"](run, *inputs)
        loss.backward()
        self.optimizer.step()
        return loss

    def try_to(self, kind, measure):
        """What PyTorch cannot do here is a result, too."""
        try:
            self.found[f"{kind}_ms"] = measure()
        except Exception as error:
            self.found[f"{kind}_error"] = str(error).splitlines()[0][:160]
        print(json.dumps(self.found), flush=True)


def eager(name, batch, half=None):
    """The baselines: inputs that lie on the GPU and inputs copied from pinned memory; a step recorded as a
    CUDA graph, where it can."""
    here = Eager(name, batch, half)
    found, model = here.found, here.model
    found["ms"], found["ahead_ms"] = milliseconds(lambda: here.train(here.there, model), here.count)
    found["copy_ms"], _ = milliseconds(
        lambda: here.train([t.to(DEVICE, non_blocking=True) for t in here.host], model), here.count
    )
    found["peak_bytes"] = 0 if FAKE else torch.cuda.max_memory_allocated()
    found["loss"] = here.train(here.there, model).item()
    print(json.dumps(found), flush=True)  # in case that what follows runs out of time
    if FAKE:
        return

    def recorded():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                here.train(here.there, model)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            here.train(here.there, model)
        return milliseconds(graph.replay, here.count)[0]

    here.try_to("cuda_graph", recorded)
    print(kernels(lambda: here.train(here.there, model)), file=sys.stderr)


def kernels(step, count=2) -> str:
    """The kernels of so many steps that take longest, by CUPTI."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(count):
            step()
        torch.cuda.synchronize()
    return found.key_averages().table(sort_by="self_cuda_time_total", row_limit=25, max_name_column_width=110)


def compiled(name, batch, half=None):
    here = Eager(name, batch, half)
    run = torch.compile(here.model)
    here.try_to("compiled", lambda: milliseconds(lambda: here.train(here.there, run), here.count)[0])


def runner_of(spec, batch, **options):
    import heterog

    model = spec["model"]()
    options = {"batch": batch, "check": False, "processes": False, "tune_process": True,
               "any_device": FAKE} | options  # fmt: skip
    return heterog.get_runner(model, spec["make_inputs"], spec["loss_fn"],
                              spec["optimizer"](model.parameters()), [TYPE], options)  # fmt: skip


def client(steps=30):
    """From the same weights: losses and parameters after some steps, in float32 and plain SGD."""
    import models

    spec = models.tiny_mask() | {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1)}
    torch.manual_seed(0)
    plain = spec["model"]()
    optimizer = spec["optimizer"](plain.parameters())
    weights = {name: value.clone() for name, value in plain.state_dict().items()}

    def same_weights():
        model = models.tiny_mask()["model"]()
        model.load_state_dict(weights)
        return model

    with runner_of(spec | {"model": same_weights}, 16) as runner:
        for _ in range(steps):
            batch = spec["make_inputs"](16)
            loss = runner.step(batch)
            optimizer.zero_grad()
            expected = spec["loss_fn"](plain, *batch)
            expected.backward()
            optimizer.step()
        print(f"loss after {steps} steps: {loss:.6f}, plain PyTorch on the CPU {expected.item():.6f}")
        assert abs(loss - expected.item()) < 2e-3, "losses differ"
        own, theirs = runner.state_dict(), plain.state_dict()
        worst = max((own[name] - theirs[name]).abs().max().item() for name in own)
        print(f"largest difference of a parameter {worst:.2e}")
        assert worst < 2e-3, "parameters differ"


def trace(folder):
    """How much of a step of the client is kernels, by CUPTI in the same process."""
    import models
    from torch.profiler import ProfilerActivity, profile

    spec = models.tiny_causal() if FAKE else models.language("gpt2_4", 4, 768, 12, 256, 8192)
    with runner_of(spec, 8) as runner:
        inputs = spec["make_inputs"](8)
        for _ in range(5):
            runner.step(inputs)
        begin, inside = time.perf_counter(), 0.0
        for _ in range(10):
            runner.step(inputs)
            inside += runner.last_step_seconds
        print(f"{100 * (time.perf_counter() - begin):.2f} ms a call of step, {100 * inside:.2f} by its own clock")
        begin = time.perf_counter()
        runner.run(10, [inputs])  # each step is launched before the last one's loss is read
        print(f"{100 * (time.perf_counter() - begin):.2f} ms a step of run")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            for _ in range(3):
                runner.step(inputs)
    path = Path(folder) / "client_trace.json.gz"
    found.export_chrome_trace(str(path))
    there = [e for e in found.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    print(found.key_averages().table(sort_by="self_cpu_time_total" if FAKE else "self_cuda_time_total",
                                     row_limit=12, max_name_column_width=60))  # fmt: skip
    print(f"{len(there) / 3:.0f} kernels and copies a step, {sum(e.device_time_total for e in there) / 3e3:.2f} ms")


def shares(unequal=""):
    """Two ranks by gloo on one GPU. Rank 1 computes what the model does three times; with `parts` it has a
    third of rank 0's multiprocessors instead, where the driver's multi-process service runs."""
    import heterog
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    dist.init_process_group("gloo")
    if unequal:  # before the first call of CUDA
        os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "75" if dist.get_rank() == 0 else "25"
    rank, width = dist.get_rank(), 64 if FAKE else 4096
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)).to(DEVICE)
    ddp = DistributedDataParallel(model, device_ids=None if FAKE else [0])
    data = TensorDataset(torch.randn(512 * 16, width))
    loader = DataLoader(data, batch_size=256, sampler=DistributedSampler(data))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-4)

    def loss_of(batch):
        x = batch[0].to(DEVICE)
        with torch.no_grad():
            for _ in range(6 if rank == 1 and (FAKE or not unequal) else 0):
                model(x)
        return ddp(x).square().mean()

    loader = heterog.auto_shares(ddp, loader, loss_of, rounds=5, device=DEVICE)
    for batch in loader:
        optimizer.zero_grad()
        loss_of(batch).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    what, *rest = sys.argv[1:]
    {"environment": environment, "eager": eager, "compiled": compiled, "client": client, "trace": trace, "shares": shares}[what](*rest)
