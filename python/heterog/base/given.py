"""What callers may give, as types."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

FilePath: TypeAlias = str | os.PathLike[str]
Devices: TypeAlias = FilePath | dict[str, Any] | Sequence[str | dict[str, Any]]
Profiles: TypeAlias = FilePath | Sequence[FilePath]

Model: TypeAlias = torch.nn.Module | Callable[[], torch.nn.Module]
MakeInputs: TypeAlias = Callable[[int], Sequence[Any]]
LossFunction: TypeAlias = Callable[..., torch.Tensor | tuple[torch.Tensor, Mapping[str, torch.Tensor]]]
Optimizer: TypeAlias = torch.optim.Optimizer | Callable[..., torch.optim.Optimizer]
