"""Finds out by what ranks are to be weighed: compares the gradient of a small batch with those of
unequal parts of it, before training, on the user's own step.

Where L is the loss and B is cut into parts B1 and B2, training on unequal shares is that of one
process if ∇L(B) = w1 ∇L(B1) + w2 ∇L(B2) with weights that are known before the backward pass: n1 / n
for a mean over samples, c1 / c for a mean over what is counted, 1 for a sum. The weighing that is
equal to rounding in two unlike cuts is taken. If there is none, samples depend on each other.
"""

import copy
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist

from heterog.base.data_parallel import any_sharded, apart, own_collectives, own_part
from heterog.base.untouched import untouched
from heterog.uneven.neutral import Neutral, fixed_statistics
from heterog.uneven.trial_steps import Trial
from heterog.uneven.weighing import SAMPLES, SUM, Weighing, given, known_counts

SAMPLES_AT_MOST = 8
LEAST_SAMPLES = 3  # of which two unequal parts can be cut
COMPARED = 1 << 22  # elements of the gradient at most, evenly spread
OVERFLOWS = 12  # passes that a GradScaler may take to find its scale
# How far gradients may be apart that differ by rounding alone, relative to their norm.
ROUNDING = 1e-5
ROUNDING_AT_MOST = {"single": 1e-4, "tf32": 2e-3, "half": 2e-2}
NOISE = 3.0  # times what no weights at all can explain


@dataclass(frozen=True)
class Verdict:
    """What the probe found; the same on all ranks."""

    weighing: Weighing | None  # None: no weighing is equal
    known: tuple[Weighing, ...] = ()  # all that were tried
    off: float = 0.0  # of the weighing, or of the nearest one, relative to the gradient
    nearest: str = ""
    samples: int = 0
    seconds: float = 0.0
    talks: str = ""  # the operator by which the step talks to other ranks
    why: str = ""  # nothing could be compared

    def without_functions(self) -> "Verdict":
        """To be sent to other ranks."""
        bare = None if self.weighing is None else replace(self.weighing, count=None)
        return replace(self, weighing=bare, known=tuple(replace(w, count=None) for w in self.known))


def agreed(own: Verdict, of_all: list[Verdict]) -> Verdict:
    """One verdict of all ranks': that the step talks, else that of the first rank that could compare
    gradients, if all ranks know its weighing."""
    for verdict in of_all:
        if verdict.talks:
            return replace(verdict, weighing=None)
    judged = [verdict for verdict in of_all if not verdict.why]
    if not judged:
        return of_all[0]
    if (taken := judged[0]).weighing is None:
        return taken
    mine = [w for w in (*own.known, SAMPLES, SUM) if w.key == taken.weighing.key]
    if all(any(w.key == taken.weighing.key for w in (*v.known, SAMPLES, SUM)) for v in of_all):
        return replace(taken, weighing=mine[0])
    return Verdict(None, why="ranks found different tensors in the same batch")


def probe(trial: Trial, samples: int, count=None) -> Verdict:
    """Of this rank; `samples` of a batch, 3 or more. Changes nothing; every rank must call it at the
    same time, with as many samples, since a step may talk to the others."""
    begun = time.perf_counter()
    kept = _Passes(trial, samples)
    try:
        with apart(trial.ddp), untouched(trial.ddp):
            found = _judged(kept, samples, count)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        found = Verdict(None, why=f"{samples} samples at once do not fit in a rank's memory")
    seconds = time.perf_counter() - begun
    return replace(found, samples=samples, seconds=seconds)


def cuts(samples: int) -> list[tuple[list[int], list[int]]]:
    """Two unlike ways to cut a batch into two parts, of unequal sizes."""
    everything = list(range(samples))
    many = samples // 2 + 1
    few = [n for n in everything if n % 3 == 1][: max(1, samples // 4)]
    return [(everything[:many], everything[many:]), (few, [n for n in everything if n not in few])]


class _Passes:
    """Gradients of the user's step on some of the samples, which are drawn once."""

    def __init__(self, trial: Trial, samples: int):
        self._trial = trial
        self._samples = trial.samples(samples)
        self.seen = Neutral()  # of the last pass
        self.half = False

    def batch(self, rows: list[int]):
        return self._trial.batch_of(copy.deepcopy([self._samples[row] for row in rows]))

    def leave_statistics(self) -> None:
        """A step on all of them, whose effect on buffers stays."""
        with _not_compiled(), Neutral():
            self._trial.run(self.batch(list(range(len(self._samples)))))

    def gradient(self, rows: list[int]) -> tuple[torch.Tensor, object]:
        """Its elements in float64, on the host, and the batch as it was before the step. Of a sharded
        model all ranks take the same rows at a time: theirs averaged, from all."""
        for _ in range(OVERFLOWS):
            with untouched(self._trial.ddp):
                self.seen = Neutral()
                with _not_compiled(), self.seen:
                    batch = self.batch(rows)
                    whole = copy.deepcopy(batch)
                    found = self._run(batch)
                self.half = self.half or self.seen.half
                if any_sharded(self._trial.ddp):
                    own = own_collectives(self._trial.ddp)
                    self.seen.collectives = [c for c in self.seen.collectives if c not in own]
                    found = self._from_all(found)
            if found.isfinite().all() or self.seen.collectives:
                break
        return found, whole

    def _run(self, batch) -> torch.Tensor:
        parameters = [p for p in self._trial.ddp.parameters() if p.requires_grad]
        step = -(-sum(p.numel() for p in parameters) // COMPARED) | 1

        def some(tensor):
            values = own_part(tensor.detach())
            values = values.to_dense() if values.is_sparse else values
            return values.reshape(-1)[::step].to("cpu", torch.float64)

        parts = [torch.zeros(len(some(p)), dtype=torch.float64) for p in parameters]

        def note(gradient, place):
            parts[place] += some(gradient)

        before = [p.grad if p.grad is None else (p.grad, some(p.grad)) for p in parameters]

        def note_accumulated(parameter, place):
            """Of a sharded one, when the ranks' are averaged and added to what is there."""
            values = some(parameter.grad)
            known = before[place] is not None and before[place][0] is parameter.grad
            parts[place] += values - before[place][1] if known else values
            before[place] = (parameter.grad, values)

        sharded = any_sharded(self._trial.ddp)
        hooks = [
            parameter.register_post_accumulate_grad_hook(partial(note_accumulated, place=place))
            if sharded
            else parameter.register_hook(partial(note, place=place))
            for place, parameter in enumerate(parameters)
        ]
        try:
            self._trial.run(batch)
        finally:
            for hook in hooks:
                hook.remove()
        return torch.cat(parts)

    def _from_all(self, own: torch.Tensor) -> torch.Tensor:
        parts = [None] * dist.get_world_size(self._trial.group)
        dist.all_gather_object(parts, own, group=self._trial.group)
        return torch.cat(parts)


def _not_compiled():
    """What torch.compile makes draws its random numbers unseen."""
    stance = getattr(torch.compiler, "set_stance", None)  # from PyTorch 2.6 on
    return stance("force_eager") if stance else nullcontext()


def _judged(passes: _Passes, samples: int, count) -> Verdict:
    everything = list(range(samples))
    trial = passes._trial
    with fixed_statistics(trial.ddp, passes.leave_statistics):
        whole, batch = passes.gradient(everything)
        if passes.seen.collectives:
            return Verdict(None, talks=passes.seen.collectives[0])
        if not whole.isfinite().all():
            return Verdict(None, why="its gradient is not finite")
        if not whole.norm() > 0:
            return Verdict(None, why="its gradient is 0")
        certain, possible = known_counts(batch, passes.seen.label_losses)
        weighings = [*([given(count)] if count else []), *certain, SAMPLES, SUM, *possible]
        off = dict.fromkeys((w.key for w in weighings), 0.0)
        noise = 0.0
        for cut in cuts(samples):
            (first, first_batch), (last, last_batch) = (passes.gradient(rows) for rows in cut)
            parts = torch.stack([first, last], 1)
            best = torch.linalg.lstsq(parts, whole[:, None]).solution
            noise = max(noise, _relative(parts @ best, whole))
            for weighing in weighings:
                weights = weighing.parts([first_batch, last_batch], [len(rows) for rows in cut])
                if weights is None:
                    off[weighing.key] = float("inf")
                    continue
                mine = parts @ torch.tensor(weights, dtype=torch.float64)[:, None]
                off[weighing.key] = max(off[weighing.key], _relative(mine, whole))
    bound = min(max(ROUNDING, NOISE * noise), _rounding_at_most(passes))
    least = min(off.values())
    for weighing in weighings:
        if off[weighing.key] <= min(bound, 1.5 * least + ROUNDING / 10):
            return Verdict(weighing, tuple(weighings), off=off[weighing.key])
    nearest = min(weighings, key=lambda weighing: off[weighing.key])
    return Verdict(None, tuple(weighings), off=least, nearest=nearest.words)


def _relative(found: torch.Tensor, whole: torch.Tensor) -> float:
    return ((found[:, 0] - whole).norm() / whole.norm()).item()


def _rounding_at_most(passes: _Passes) -> float:
    if passes.half:
        return ROUNDING_AT_MOST["half"]
    on_gpu = passes._trial.device.type == "cuda"
    tf32 = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    return ROUNDING_AT_MOST["tf32" if on_gpu and tf32 else "single"]
