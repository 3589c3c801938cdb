"""Unequal shares under Hugging Face's Trainer, which wraps the model and deals out batches itself."""

from collections import deque

from torch.nn.parallel import DistributedDataParallel

from heterog.measured_shares import even_loader, share_out


def uneven_trainer(trainer_class: type, **options) -> type:
    """The Trainer class, made to find the samples of each rank by measuring and to weigh gradients
    exactly: `heterog.uneven_trainer(Trainer)(model=…, args=…, …)`.

    It measures in the first training step, since that is when the Trainer has wrapped the model.
    The options are those of `auto_shares`: most, rebalance, check_every, rounds, say.
    """
    settings = {"most": None, "rebalance": 0.05, "check_every": 100, "rounds": 7, "say": print}
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
            self._uneven.begin_later(self._drawn.append)
            return self._uneven

        def training_step(self, model, inputs, num_items_in_batch=None):
            number = self._drawn.popleft()
            uneven = self._uneven
            if isinstance(model, DistributedDataParallel):
                if uneven.weights is None:
                    # Drawn are those of this step, and what they have made the loader ask for.
                    first = number + len(self._drawn) + uneven.asked_ahead
                    self._share_out(model, super().training_step, first)
                self._weigh(number, num_items_in_batch)
            return super().training_step(model, inputs, num_items_in_batch)

        def _share_out(self, model, step, first):
            # The first of several batches that are accumulated comes under no_sync().
            kept = model.require_backward_grad_sync
            model.require_backward_grad_sync = True
            try:
                share_out(
                    self._uneven, model, lambda batch: step(model, batch), also=(), first=first,
                    **settings,
                )  # fmt: skip
            finally:
                model.require_backward_grad_sync = kept

        def _weigh(self, number, items):
            uneven = self._uneven
            counts_items = self.model_accepts_loss_kwargs or self.compute_loss_func is not None
            if items is None or not counts_items:
                uneven.begin_now(number)
            elif 0 in uneven.sampler.sizes(number):
                raise ValueError(
                    f"batch {number} has no sample for a rank, whose stand-in would be counted: set "
                    "dataloader_drop_last=True"
                )
            elif self.args.average_tokens_across_devices:
                # The loss is the rank's part of the mean over all items, times the ranks.
                uneven.weights.start(1, total=uneven.sampler.ranks)
            else:
                raise ValueError(
                    "average_tokens_across_devices: False; each rank's loss would be a mean over its "
                    "own tokens, and no sampler knows how many: set it to True"
                )

    UnevenTrainer.__name__ = f"Uneven{trainer_class.__name__}"
    return UnevenTrainer
