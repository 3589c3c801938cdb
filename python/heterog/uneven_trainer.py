"""Unequal shares under Hugging Face's Trainer, which wraps the model and deals out batches itself."""

from collections import deque

import torch
from torch.nn.parallel import DistributedDataParallel

from heterog.measured_shares import even_loader, share_out
from heterog.untouched import untouched
from heterog.weighing import SUM


def uneven_trainer(trainer_class: type, **options) -> type:
    """The Trainer class, made to find the samples of each rank by measuring and to weigh gradients
    as a probe of the loss says: `heterog.uneven_trainer(Trainer)(model=…, args=…, …)`.

    It probes and measures in the first training step, since that is when the Trainer has wrapped
    the model. The options are those of `auto_shares`: most, rebalance, check_every, rounds, count,
    force, say.
    """
    settings = {"most": None, "rebalance": 0.05, "check_every": 100, "rounds": 7}
    settings |= {"count": None, "force": False, "say": print}
    unknown = options.keys() - settings.keys()
    if unknown:
        raise ValueError(f"{min(unknown)}: unknown; expected one of {', '.join(settings)}")
    settings |= options

    class UnevenTrainer(trainer_class):
        def get_train_dataloader(self):
            # As it is before the batches are dealt out.
            accelerator = self.accelerator
            accelerator.prepare = lambda loader: loader
            try:
                loader = super().get_train_dataloader()
            finally:
                del accelerator.prepare
            seed = self.args.data_seed if self.args.data_seed is not None else self.args.seed
            self._uneven = even_loader(loader, seed=seed)
            # Batches are drawn some at a time; each is weighed when its own step comes.
            self._drawn = deque()
            self._uneven.begin_later(lambda number, _batch: self._drawn.append(number))
            return self._uneven

        def training_step(self, model, inputs, num_items_in_batch=None):
            number = self._drawn.popleft()
            uneven = self._uneven
            if isinstance(model, DistributedDataParallel) and uneven.sampler.ranks > 1:
                if uneven.weights is None:
                    # Drawn are those of this step, and what they have made the loader ask for.
                    first = number + len(self._drawn) + uneven.asked_ahead
                    self._share_out(model, super().training_step, inputs, num_items_in_batch, first)
                self._weigh(number, inputs, num_items_in_batch)
            return super().training_step(model, inputs, num_items_in_batch)

        def _share_out(self, model, step, inputs, items, first):
            # The first of several batches that are accumulated comes under no_sync().
            kept = model.require_backward_grad_sync
            model.require_backward_grad_sync = True
            try:
                share_out(
                    self._uneven, model, lambda batch: step(model, batch, items), also=(),
                    first=first, scale=self._multiplied(model, inputs, items), **settings,
                )  # fmt: skip
            finally:
                model.require_backward_grad_sync = kept

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

        def _weigh(self, number, inputs, items):
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
            uneven.begin_now(number, inputs)

    UnevenTrainer.__name__ = f"Uneven{trainer_class.__name__}"
    return UnevenTrainer
