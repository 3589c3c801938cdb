"""Unequal shares under Hugging Face's Trainer, which wraps the model and deals out batches itself."""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch.nn.parallel import DistributedDataParallel

from heterog.base.untouched import untouched
from heterog.uneven.measured_shares import even_loader, share_out
from heterog.uneven.weighing import SUM


def uneven_trainer(trainer_class: type, **options) -> type:
    """The Trainer class, made to find the samples of each rank by measuring and to weigh gradients
    as a probe of the loss says: `heterog.uneven_trainer(Trainer)(model=…, args=…, …)`.

    It probes and measures in the first training step, since that is when the Trainer has wrapped
    the model. The options are those of `auto_shares`: most, rebalance, check_every, rounds, count,
    force, shares, say.
    """
    settings = {"most": None, "rebalance": 0.05, "check_every": 100, "rounds": 7}
    settings |= {"count": None, "force": False, "shares": None, "say": print}
    unknown = options.keys() - settings.keys()
    if unknown:
        raise ValueError(f"{min(unknown)}: unknown; expected one of {', '.join(settings)}")
    settings |= options

    class UnevenTrainer(trainer_class):
        """To the Trainer, a batch is all that a rank has of a global batch: accumulation is done in
        `training_step`, over as many micro-batches as the rank has."""

        def _inner_training_loop(self, *args, **kwargs):
            arguments = self.args
            self._parts = arguments.gradient_accumulation_steps
            arguments.gradient_accumulation_steps = 1
            try:
                return super()._inner_training_loop(*args, **kwargs)
            finally:
                arguments.gradient_accumulation_steps = self._parts

        def get_train_dataloader(self):
            # As it is before the batches are dealt out.
            accelerator = self.accelerator
            accelerator.prepare = lambda loader: loader
            try:
                loader = super().get_train_dataloader()
            finally:
                del accelerator.prepare
            seed = self.args.data_seed if self.args.data_seed is not None else self.args.seed
            parts = getattr(self, "_parts", self.args.gradient_accumulation_steps)
            self._uneven = even_loader(loader, seed=seed, accumulate=parts)
            return _Steps(self._uneven)

        def get_batch_samples(self, epoch_iterator, num_batches, *rest, **named):
            step = next(epoch_iterator, None)
            if step is None:
                return super().get_batch_samples(iter([]), num_batches, *rest, **named)
            batches = step.batches
            _, items = super().get_batch_samples(iter(batches), len(batches), *rest, **named)
            return [step], items

        def training_step(self, model, inputs, num_items_in_batch=None):
            number, batches = inputs.number, inputs.batches
            uneven = self._uneven
            wrapped = isinstance(model, DistributedDataParallel) and uneven.sampler.ranks > 1
            if wrapped and uneven.weights is None:
                first = number + uneven.asked_ahead
                self._share_out(model, super().training_step, batches, num_items_in_batch, first)
            if wrapped:
                self._check(number, num_items_in_batch)
            self.current_gradient_accumulation_steps = uneven.sampler.parts if wrapped else len(batches)
            weights = uneven.begin(number, batches, uneven.sampler.parts) if wrapped else None
            losses = []
            for place, batch in enumerate(batches):
                last = place == len(batches) - 1
                if wrapped:
                    uneven.weights.current = weights[place]
                with nullcontext() if last or not wrapped else model.no_sync():
                    loss = super().training_step(model, batch, num_items_in_batch)
                if wrapped:
                    factor, nothing = weights[place].factor
                    loss = torch.where(torch.as_tensor(nothing, device=loss.device), 0.0, loss * factor)
                losses.append(loss)
            loss = torch.stack(losses).sum()
            # A part of the whole so far; the Trainer reports a rank's own as an estimate of all.
            sizes = uneven.sampler.sizes(number)
            own = sizes[uneven.sampler.rank]
            return loss * (sum(sizes) / own / len(sizes)) if wrapped and own else loss

        def _share_out(self, model, step, batches, items, first):
            self.current_gradient_accumulation_steps = self._uneven.sampler.parts
            share_out(
                self._uneven, model, lambda batch: step(model, batch, items), also=(), first=first,
                scale=self._multiplied(model, batches[0], items), **settings,
            )  # fmt: skip

        def _multiplied(self, model, inputs, items) -> int:
            """By what the Trainer multiplies the loss of a rank, so that the mean over ranks, which
            is not taken here, would be a sum: their number, or 1."""
            if items is None or not self.args.average_tokens_across_devices:
                return 1
            losses = []
            for multiplies in (False, True):
                self.args.average_tokens_across_devices = multiplies
                with untouched(model), torch.no_grad():
                    given = self._prepare_inputs(dict(inputs))
                    loss = self.compute_loss(model, given, num_items_in_batch=items)
                    losses.append(float(loss))
            ratio = losses[1] / losses[0] if losses[0] else 1.0
            ranks = self._uneven.sampler.ranks
            return ranks if abs(ratio - ranks) < abs(ratio - 1) else 1

        def _check(self, number, items):
            uneven = self._uneven
            if uneven.weighing is SUM and items is not None:
                if not self.args.average_tokens_across_devices:
                    raise ValueError(
                        "average_tokens_across_devices: False; each rank's loss would be a mean over "
                        "its own tokens alone: set it to True"
                    )
                if 0 in uneven.sampler.sizes(number):
                    raise ValueError(
                        f"batch {number} has no sample for a rank, whose stand-in would be counted: "
                        "set dataloader_drop_last=True"
                    )

    UnevenTrainer.__name__ = f"Uneven{trainer_class.__name__}"
    return UnevenTrainer


@dataclass
class _Step:
    """What a rank computes for one update. The Trainer counts tokens of it as of one batch."""

    number: int
    batches: list

    def __contains__(self, name) -> bool:
        return name in self.batches[0]

    def __getitem__(self, name) -> torch.Tensor:
        return torch.cat([batch[name].flatten() for batch in self.batches])


class _Steps:
    """The loader, a step at a time."""

    def __init__(self, loader):
        self._loader = loader

    def __len__(self) -> int:
        return self._loader.sampler.global_batches

    def __iter__(self):
        for number, batches in self._loader.steps():
            yield _Step(number, batches)

    def __getattr__(self, name):
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)
