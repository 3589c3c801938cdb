"""What can be shared out at all: the models, how few samples a rank may have, and what is refused."""

from torch import nn

from heterog.base import data_parallel
from heterog.base.data_parallel import check_sharding, is_fsdp1, is_sharded, is_wrapped
from heterog.uneven.loader import LikeSampler
from heterog.uneven.sampler import split_by_shares

COARSE = 4  # samples


def models_of(model) -> list[nn.Module]:
    """Each wrapped model of a list, or the only one."""
    models = [wrapped(one) for one in (model if isinstance(model, (list, tuple)) else [model])]
    if not models:
        raise ValueError("model: an empty list; give the DistributedDataParallel models")
    sharded = [model for model in models if is_sharded(model)]
    if sharded and len(sharded) < len(models):
        raise ValueError("model: some are sharded and some are not; give models of one kind")
    for model in sharded:
        check_sharding(model)
    return models


def wrapped(model) -> nn.Module:
    """The DistributedDataParallel or fully_shard model, which Fabric and torch.compile wrap once more."""
    for inner in (model, *(getattr(model, n, None) for n in ("_forward_module", "_orig_mod"))):
        if isinstance(inner, nn.Module) and is_wrapped(inner):
            return inner
    if isinstance(model, nn.Module) and any(map(is_sharded, model.modules())):
        raise ValueError(
            f"model: {type(model).__name__}: parts of it are sharded, it is not: call fully_shard on "
            "the whole model after its layers"
        )
    if isinstance(model, nn.Module) and any(map(is_fsdp1, model.modules())):
        raise ValueError(
            f"model: {type(model).__name__}: FullyShardedDataParallel (FSDP1), whose gradients nothing "
            "can weigh: call fully_shard (FSDP2) in its place, or multiply losses as "
            "docs/auto_shares.md has it"
        )
    since = "" if data_parallel.FSDPModule else " (which is known from PyTorch 2.6 on)"
    raise ValueError(
        f"model: {type(model).__name__}; wrap the model in DistributedDataParallel, or call "
        f"fully_shard on it, first{since}"
    )


def least_samples(model) -> int:
    """Batch normalisation refuses to train on one sample."""
    norms = (isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
    return 2 if any(norms) else 1


def even_passes(sampler: LikeSampler) -> list[int]:
    """Samples of a pass of each rank, at even shares."""
    if sampler.even_micro is None:
        return sampler.samples_per_rank
    return [sampler.even_micro] * sampler.ranks


def coarse(sampler: LikeSampler) -> bool:
    """An even share is so few samples that hardly any other can be dealt."""
    return sampler.parts == 1 and max(sampler.samples_per_rank) < COARSE


def check_accumulation(models: nn.Module, sampler: LikeSampler) -> None:
    if sampler.parts > 1 and any(isinstance(m, nn.SyncBatchNorm) for m in models.modules()):
        raise ValueError(
            "accumulate: the model has SyncBatchNorm, which talks to the other ranks in every pass, "
            "so that all need as many micro-batches: leave accumulate= out, and their sizes differ"
        )


def check_even(sampler: LikeSampler, limits: list[int]) -> None:
    for rank, (share, limit) in enumerate(zip(even_passes(sampler), limits, strict=True)):
        if share > limit:
            raise ValueError(
                f"most: rank {rank} holds {limit} samples, and even shares, which are kept, have "
                f"{share}"
            )


def check_rest(sampler: LikeSampler, shares: list[int]) -> None:
    """Batch normalisation of one sample, or of a stand-in for none, is none."""
    least = sampler.least_of_step
    if sampler.least < 2:
        return
    rest = 0 if sampler.drop_last else sampler.length % sampler.batch
    for count in (sampler.batch, rest):
        sizes = split_by_shares(count, shares)
        if count and min(sizes) < least:
            rank = sizes.index(min(sizes))
            raise ValueError(
                f"the model has batch normalisation, which needs {least} samples on each rank, and of "
                f"a batch of {count} rank {rank} has {sizes[rank]}: "
                + ("give drop_last=True" if count == rest else "take larger batches")
            )
