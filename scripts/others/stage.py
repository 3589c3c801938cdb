"""Runs a script of somebody else as one rank on CPUs, whatever it asks of GPUs, and keeps what it trained.

    RANK=… WORLD_SIZE=… python stage.py RESULT SCRIPT ARGUMENT…

Nothing of the script is changed. Around it:

- GPUs are CPUs, for scripts that want some: calls that name a GPU get the CPU, NCCL is Gloo, spawned ranks
  are this process.
- auto_shares measures by a made-up clock: rank 0 takes a second a sample, each later rank 1.5 more. So
  shares are unequal, and the same in each run.
- What a rank draws on its own is no training of one process: each sample's transforms draw by its index,
  dropout keeps all, noise has the same numbers in each row, batch normalisation takes its running
  statistics.
- Tensors are of float64 unless HETEROG_STAGE_FLOATS says float32; samples too.

RESULT gets the parameters of all optimizers, as they were made and as they ended, and the shares found.
"""

import os
import random
import runpy
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
GPUS = int(os.environ.get("HETEROG_STAGE_GPUS", WORLD))  # that the script is told of; 0: it asks for none
CPU = torch.device("cpu")


def is_gpu(place) -> bool:
    """Of an argument that may be a device."""
    if isinstance(place, torch.device):
        return place.type == "cuda" or place.index is not None
    return isinstance(place, str) and place.startswith(("cuda", "cpu:"))


def on_cpu(call, numbers: bool = False):
    """The call with each GPU among its arguments as the CPU; `numbers`: an integer names one too."""

    def redirected(*arguments, **options):
        moved = [CPU if is_gpu(one) or (numbers and type(one) is int) else one for one in arguments]
        return call(*moved, **{name: CPU if is_gpu(one) else one for name, one in options.items()})

    return redirected


def pretend_gpus() -> None:
    for module in (torch.Tensor, nn.Module):
        module.to = on_cpu(module.to, numbers=True)
        module.cuda = lambda self, *_, **__: self
    torch.tensor = on_cpu(torch.tensor)
    loader = torch.utils.data.DataLoader.__init__
    torch.utils.data.DataLoader.__init__ = lambda self, *arguments, pin_memory=False, **options: loader(
        self, *arguments, **options
    )
    load = torch.load
    torch.load = lambda file, map_location=None, **options: load(file, map_location="cpu", **options)
    torch.cuda.is_current_stream_capturing = lambda: False  # optimizers of 2.11 ask the driver
    gpu = torch.device("cuda")
    torch.accelerator.is_available = lambda: True
    torch.accelerator.device_count = torch.cuda.device_count = lambda: GPUS
    # What is asked with check_available are PyTorch's own questions.
    torch.accelerator.current_accelerator = lambda check_available=False: None if check_available else gpu
    torch.accelerator.set_device_index = torch.cuda.set_device = lambda *_: None
    join = dist.init_process_group

    def by_gloo(backend=None, init_method=None, world_size=-1, rank=-1, **_):
        return join("gloo", init_method=init_method, world_size=world_size, rank=rank)

    dist.init_process_group = torch.distributed.distributed_c10d.init_process_group = by_gloo
    dist.get_default_backend_for_device = lambda _: "gloo"
    torch.multiprocessing.spawn = lambda body, args=(), nprocs=1, **_: body(RANK if nprocs > 1 else 0, *args)


def wrap_without_devices() -> None:
    """Scripts and Accelerate (until 1.12 at least) name the rank's device, cpu:0, which DistributedDataParallel
    refuses of a CPU, and torch.load does not know."""
    wrap = nn.parallel.DistributedDataParallel.__init__
    nn.parallel.DistributedDataParallel.__init__ = lambda self, module, device_ids=None, **options: wrap(
        self, module, **options
    )
    load = torch.load
    torch.load = lambda file, map_location=None, **options: load(
        file, map_location=CPU if is_gpu(map_location) else map_location, **options
    )


def take_chance_out() -> None:
    fetcher = torch.utils.data._utils.fetch._MapDatasetFetcher

    def fetch(self, indices):
        kept = torch.get_rng_state(), random.getstate()
        try:
            if not self.auto_collation:
                return self.collate_fn(drawn(self.dataset, indices))
            return self.collate_fn([drawn(self.dataset, index) for index in indices])
        finally:
            torch.set_rng_state(kept[0])
            random.setstate(kept[1])

    def drawn(data, index):
        torch.manual_seed(1000 + int(index))
        random.seed(1000 + int(index))
        return tree_map_only(torch.Tensor, in_default_floats, data[index])

    def in_default_floats(tensor):
        return tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor

    fetcher.fetch = fetch
    F.dropout = lambda x, *_, **__: x
    torch.randn = lambda *sizes, device=None, **options: same_rows(sizes, **options)
    torch.randn_like = lambda tensor, **_: same_rows(tensor.shape, dtype=tensor.dtype)
    nn.modules.batchnorm._BatchNorm.forward = lambda self, x: F.batch_norm(
        x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
    )


def same_rows(sizes, **options) -> torch.Tensor:
    sizes = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else tuple(sizes)
    options.setdefault("generator", torch.Generator().manual_seed(0))
    row = torch.empty(sizes[1:] or (1,), dtype=options.get("dtype")).normal_(generator=options["generator"])
    return row.expand(sizes).clone().requires_grad_(options.get("requires_grad", False))


def clock_that_slows() -> None:
    from heterog.uneven import step_times
    from heterog.uneven.trial_steps import Trial

    now = 0.0
    run_pass = Trial._pass

    def timed(trial, samples, **options):
        nonlocal now
        now += (1 + 1.5 * RANK) * samples
        run_pass(trial, samples, **options)

    Trial._pass = timed
    step_times.clock = lambda: now


def keep_what_is_trained() -> list:
    """(parameters, as they were) of each optimizer that is made from now on."""
    made: list = []
    init = torch.optim.Optimizer.__init__

    def remembered(self, *arguments, **options):
        init(self, *arguments, **options)
        parameters = [p for group in self.param_groups for p in group["params"]]
        made.append((parameters, [p.detach().clone() for p in parameters]))

    torch.optim.Optimizer.__init__ = remembered
    return made


def keep_shares() -> list:
    """Samples of each rank, of each loader that is shared out."""
    from heterog.uneven import measured_shares, trainer

    found: list = []
    share = measured_shares.share_out

    def kept(loader, *arguments, **options):
        share(loader, *arguments, **options)
        found.append(list(loader.samples_per_rank))

    measured_shares.share_out = trainer.share_out = kept
    return found


def offline_metrics() -> None:
    """evaluate.load asks the Hub for the code of a metric."""
    try:
        import evaluate
    except ImportError:
        return

    class Nothing:
        def add_batch(self, **_):
            pass

        def compute(self, **_):
            return {"accuracy": 0.0}

    evaluate.load = lambda *_, **__: Nothing()


def names_of_old() -> None:
    """What scripts of transformers ask of Accelerate, and 1.15 has not any more."""
    try:
        from accelerate.utils import DistributedType
    except ImportError:
        return
    if not hasattr(DistributedType, "TPU"):
        DistributedType.TPU = "TPU"


def main() -> None:
    result, script, *arguments = sys.argv[1:]
    if GPUS:
        pretend_gpus()
    wrap_without_devices()
    take_chance_out()
    offline_metrics()
    names_of_old()
    clock_that_slows()
    made, shares = keep_what_is_trained(), keep_shares()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    if os.environ.get("HETEROG_STAGE_FLOATS", "float64") == "float64":
        torch.set_default_dtype(torch.float64)
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        ends = [(began, [p.detach().clone() for p in parameters]) for parameters, began in made]
        torch.save({"optimizers": ends, "shares": shares}, result)


if __name__ == "__main__":
    main()
