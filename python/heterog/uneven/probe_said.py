"""What `auto_shares` does with the verdict of the probe, and how it says it."""

from torch import nn

from heterog.uneven.loss_probe import Verdict
from heterog.uneven.neutral import batch_norms
from heterog.uneven.weighing import SAMPLES, Weighing, given


def chosen(verdict: Verdict, count) -> Weighing:
    """By what gradients are weighed: what is equal, else what the user says, else samples, which
    at even shares is what DistributedDataParallel does."""
    if verdict.weighing is not None:
        return verdict.weighing
    return given(count) if count else SAMPLES


def refuse_unequal(verdict: Verdict, sampler, force: bool) -> None:
    """A collective operator of the user's takes as many samples on each rank."""
    if force:
        raise ValueError(
            f"force: step_fn talks to other ranks ({verdict.talks}), which unequal shares would make "
            "wait for ever; leave that out of step_fn"
        )
    rest = 0 if sampler.drop_last else sampler.length % sampler.batch
    for size in (sampler.batch, rest):
        if size % sampler.ranks:
            raise ValueError(
                f"step_fn: it talks to other ranks ({verdict.talks}), which takes as many samples on "
                f"each; a batch has {size} for {sampler.ranks} ranks: give another batch, or "
                "drop_last=True"
            )


def verdict_lines(verdict: Verdict, ranks: int, count, force: bool) -> list[str]:
    """`ranks`: by how many DistributedDataParallel would divide what it sums, 1 if the loss has been
    multiplied by that."""
    probed = f"{verdict.samples} samples probed in {verdict.seconds:.1f} s"
    if verdict.talks:
        return [
            f"heterog: even shares are kept: step_fn talks to other ranks ({verdict.talks}), so its "
            "loss may depend on their samples; if it need not, leave that out of step_fn"
        ]
    if (weighing := verdict.weighing) is not None:
        equal = f"({probed}, gradients equal to {verdict.off:.0e})"
        if weighing.key == "sum":
            alone = f"; DistributedDataParallel alone would take 1/{ranks} of that" if ranks > 1 else ""
            what = "adds up the ranks' gradients: the loss is a sum over samples"
            return [f"heterog: {what} {equal}{alone}"]
        return [f"heterog: weighs ranks by {weighing.words} {equal}"]
    if verdict.why:
        found = f"the probe of the loss cannot tell: {verdict.why}"
    else:
        found = (
            "the loss couples samples: no weighing of parts gives the gradient of the whole (nearest: "
            f"by {verdict.nearest}, {100 * verdict.off:.2g} % off; {probed})"
        )
    if count:
        return [f"heterog: weighs ranks by what count= says, unproved: {found}"]
    if force:
        return [f"heterog: weighs ranks by samples, as force=True wants, though {found}"]
    return [
        f"heterog: even shares are kept: {found}; count= may say what counts, force=True takes "
        "unequal shares all the same"
    ]


def norm_lines(model, found) -> list[str]:
    """Batch normalisation under unequal shares, which is not what it is under even ones."""
    norms = [m for m in batch_norms(model) if not isinstance(m, nn.SyncBatchNorm)]
    if not norms or len(set(found.samples_per_rank)) == 1:
        return []
    return [
        f"heterog: {type(norms[0]).__name__} takes the statistics of each rank's own samples, of "
        f"{min(found.samples_per_rank)} to {max(found.samples_per_rank)} of them: other ones than at "
        "even shares; SyncBatchNorm takes those of the whole batch"
    ]
