"""Steps of the user's training, of any number of samples, to be timed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from heterog.base.data_parallel import device_of, group_of, is_wrapped, not_summed, wrapped_models
from heterog.uneven.fair_shares import fit_line
from heterog.uneven.loader import UnevenLoader

MARGIN = 0.95  # of a GPU's memory: the rest is for what differs between batches


class Trial:
    """Call it with a number of samples: it runs the user's `step_fn` on so many, on this rank.

    All ranks take the same samples, so that what differs is the ranks.
    """

    def __init__(self, models, weights: Sequence, step_fn: Callable, loader: UnevenLoader):
        self.ddp = models  # one model, or a module of several
        first = wrapped_models(models)[0]
        self.group = group_of(first)
        self.device = device_of(first)
        self._weights = weights  # of each model
        self._step_fn = step_fn
        self._loader = loader
        generator = torch.Generator().manual_seed(0)
        self._order = torch.randperm(loader.sampler.length, generator=generator).tolist()
        self._batches: dict[int, object] = {}
        self._by_itself: bool | None = None  # step_fn runs the backward pass
        self.updates = False  # step_fn runs the optimizer, too
        self.peaks: dict[int, int] = {}  # bytes of the GPU, by samples

    def load(self, sizes: Sequence[int]) -> None:
        """Makes the batches of these sizes ready, in place of those before."""
        sizes = sorted(set(sizes))
        batches = self._loader.batches_of([self._order[:size] for size in sizes])
        self._batches = dict(zip(sizes, batches, strict=True))

    def samples(self, count: int) -> list:
        """The first samples of a measured batch, as the dataset gives them."""
        return self._loader.samples_of(self._order[:count])

    def batch_of(self, samples: list):
        """Samples put together as the loader does."""
        return self._loader.batch_of(samples)

    def step(self, micro: Sequence[int]) -> None:
        """A whole step: micro-batches of so many samples, of which the last has gradients summed; of
        a sharded model all, since whole gradients might not fit."""
        with not_summed(self.ddp):
            for place, samples in enumerate(micro[:-1]):
                self._pass(samples, adds=place > 0)
        self._pass(micro[-1], adds=len(micro) > 1)

    def __call__(self, samples: int) -> None:
        """A pass by itself. Of accumulated ones it is as all but the first of a step are: it finds
        gradients, which take memory, and adds to them."""
        self._pass(samples, adds=self._loader.sampler.parts > 1)

    def _pass(self, samples: int, *, adds: bool) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self.run(self._batches[samples], adds=adds)
        if self.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self.device)
            self.peaks[samples] = max(peak, self.peaks.get(samples, 0))

    def run(self, batch, *, adds: bool = False) -> None:
        """One step, with its backward pass. `adds`: to the gradients that are there."""
        for weights in self._weights:
            weights.start(1, total=dist.get_world_size(self.group))
        if self._by_itself is None:
            self._find_backward(batch)
        elif self._by_itself:
            self._step_fn(batch)
        else:
            if not adds:
                self._forget_gradients()
            self._step_fn(batch).backward()

    def _find_backward(self, batch) -> None:
        seen = []
        parameters = [p for p in self.ddp.parameters() if p.requires_grad]
        hooks = [
            p.register_post_accumulate_grad_hook(lambda _parameter: seen.append(True))
            for p in parameters
        ]
        self._forget_gradients()
        updates = []
        with _noting_updates(updates), _noting_models(self.ddp):
            loss = self._step_fn(batch)
        kinds = {kind.__name__ for optimizer in updates for kind in type(optimizer).__mro__}
        if "ZeroRedundancyOptimizer" in kinds:  # not imported for its name: that takes a second
            raise ValueError(
                "step_fn: its ZeroRedundancyOptimizer sends parameters to the other ranks in each update, "
                "so that no rank can be timed by itself: return the loss, and leave the update out"
            )
        self._by_itself, self.updates = bool(seen), bool(updates)
        if updates and self._loader.sampler.parts > 1:
            raise ValueError(
                "step_fn: it updates parameters, but with accumulate= it is called with each "
                "micro-batch: compute the loss of one and return it"
            )
        if not seen:
            if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
                raise ValueError(
                    f"step_fn: it ran no backward pass of the model and returned {type(loss).__name__}; "
                    "expected the loss, or a whole step"
                )
            loss.backward()
        for hook in hooks:
            hook.remove()

    def _forget_gradients(self) -> None:
        for parameter in self.ddp.parameters():
            parameter.grad = None

    def most(self) -> int | None:
        """Samples that fit in the GPU's memory, by what steps took."""
        if len(self.peaks) < 2:
            return None
        free, _ = torch.cuda.mem_get_info(self.device)
        limit = free + torch.cuda.memory_reserved(self.device)
        # A step that ends with the backward pass has no optimizer's state yet: Adam's is two tensors
        # of the size of each parameter.
        later = 0 if self._by_itself else 2 * gradient_bytes(self.ddp)
        return samples_within(self.peaks, MARGIN * limit - later)


@contextmanager
def unlogged(models) -> Iterator[None]:
    """Inside, self.log of Lightning's modules does nothing: outside of its Trainer's loop it is refused."""
    names = ("log", "log_dict")
    logging = [m for m in models.modules() if any(t.__name__ == "LightningModule" for t in type(m).__mro__)]
    for module in logging:
        for name in names:
            setattr(module, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for module in logging:
            for name in names:
                delattr(module, name)


@contextmanager
def _noting_updates(seen: list) -> Iterator[None]:
    watching = register_optimizer_step_pre_hook(lambda optimizer, *_: seen.append(optimizer))
    try:
        yield
    finally:
        watching.remove()


@contextmanager
def _noting_models(models) -> Iterator[None]:
    """Refuses a step of another wrapped model that learns, whose gradients would count by ranks."""
    known = set(models.modules())

    def check(module, _inputs):
        if is_wrapped(module) and module not in known and module.training:
            if torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()):
                inner = getattr(module, "module", module)
                raise ValueError(
                    f"model: step_fn runs another {type(module).__name__} model too (of "
                    f"{type(inner).__name__}), whose gradients would not be weighed: give "
                    "all of them, model=[first, second]"
                )

    watching = register_module_forward_pre_hook(check)
    try:
        yield
    finally:
        watching.remove()


def samples_within(peaks: dict[int, int], limit: float) -> int:
    """How many samples take no more than `limit` bytes, by the peaks of some numbers of samples."""
    fixed, per_sample = fit_line(peaks)
    return max(0, int((limit - fixed) / per_sample))


def gradient_bytes(model) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
