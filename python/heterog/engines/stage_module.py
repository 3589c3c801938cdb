"""One stage of a model as a module: the model's own code, in which other stages' modules do nothing.

The model runs from its beginning in every stage, so that masks, positions and whatever else comes of
the inputs is there. Modules of earlier stages give out zeros of the right shapes, which nobody reads:
where the stage begins, what the stage before handed on takes their place. Where the next stage begins,
the pass ends.
"""

import contextlib
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from heterog.base.errors import InputError
from heterog.engines.handed_over import HandedOver


class StageModule(nn.Module):
    """Stage `stage` of `model`, which loses the modules of all other stages; names stay.

    inputs   of one micro-batch, by the names of the model's arguments: on the model's device
    received, sent   the activation that comes and goes, without values; None at either end
    result   how the model's result is put together, of the last stage
    """

    def __init__(self, model: nn.Module, handed: HandedOver, stage: int, inputs: dict[str, Any]):
        super().__init__()
        self._check_names(model, handed)
        seen = _look(model, handed, inputs)
        self.received = seen.crosses[stage - 1] if stage else None
        last = stage + 1 == len(handed.modules)
        self.sent = None if last else seen.crosses[stage]
        self.result: pytree.TreeSpec | None = seen.result if last else None
        self.result_forms = seen.result_forms
        self.model = model
        self._now: torch.Tensor | None = None
        for number, modules in enumerate(handed.modules):
            for name in modules:
                if number != stage:
                    _replace(model, name, _Skipped(model.get_submodule(name), seen.forms.get(name)))
        if stage:
            model.get_submodule(handed.begins[stage - 1]).register_forward_pre_hook(
                self._begin, with_kwargs=True
            )
        if not last:
            model.get_submodule(handed.begins[stage]).register_forward_pre_hook(_end, with_kwargs=True)

    def forward(self, *received: torch.Tensor, **inputs):
        """What the next stage gets; of the last stage, the tensors of the model's result."""
        self._now = received[0] if self.received is not None else None
        try:
            result = self.model(**inputs)
        except _Ends as ends:
            return ends.activation
        finally:
            self._now = None
        if self.result is None:
            raise RuntimeError("the pass did not come to where the next stage begins")
        leaves, spec = pytree.tree_flatten(result)
        if spec != self.result:
            raise RuntimeError("the model's result has another form than for the inputs that were given first")
        return tuple(leaves)

    def _begin(self, module, args, kwargs):
        if self._now is None:
            return None  # again, in the same pass
        received, self._now = self._now, None
        return _with_first(args, kwargs, received)

    @staticmethod
    def _check_names(model: nn.Module, handed: HandedOver) -> None:
        known = {name for name, _ in model.named_modules(remove_duplicate=False)}
        for stage, modules in enumerate(handed.modules):
            begins = handed.begins[stage - 1 : stage] if stage else ()
            for name in (*modules, *begins):
                if name not in known:
                    raise InputError(
                        f"{handed.path}: stages[{stage}]: the model has no module '{name}'; hand over a plan "
                        "of a graph of this model"
                    )


class _Ends(Exception):  # noqa: N818  no error
    """The pass of a stage is over; carries what goes to the next."""

    def __init__(self, activation: torch.Tensor):
        super().__init__()
        self.activation = activation


def _end(module, args, kwargs):
    raise _Ends(_first(args, kwargs))


def _first(args, kwargs) -> torch.Tensor:
    values = args or tuple(kwargs.values())
    if not values or not isinstance(values[0], torch.Tensor):
        raise InputError("a module at which a stage begins takes no tensor as its first argument")
    return values[0]


def _with_first(args, kwargs, value):
    if args:
        return (value, *args[1:]), kwargs
    name = next(iter(kwargs))
    return args, {**kwargs, name: value}


class _Form:
    """A result of a module without its values."""

    def __init__(self, value):
        leaves, self.spec = pytree.tree_flatten(value)
        self.leaves = [leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def zeros(self, device):
        made = [
            torch.zeros(leaf.shape, dtype=leaf.dtype, device=device) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in self.leaves
        ]
        return pytree.tree_unflatten(made, self.spec)


class _Skipped(nn.Module):
    """In the place of another stage's module: no parameters, and zeros as its result."""

    def __init__(self, module: nn.Module, form: _Form | None):
        super().__init__()
        # Models ask their layers what kind they are.
        own = {key: value for key, value in vars(module).items() if key not in self.__dict__}
        self.__dict__.update({key: value for key, value in own.items() if not key.startswith("_")})
        self._form = form

    def forward(self, *args, **kwargs):
        if self._form is None:
            raise RuntimeError("a module of another stage was not called with the inputs that were given first")
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        return self._form.zeros(tensors[0].device if tensors else None)


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    model.get_submodule(parent)._modules[child] = module


class _Seen:
    """What a pass of the whole model shows: forms of results and of what crosses to each next stage."""

    def __init__(self):
        self.forms: dict[str, _Form] = {}
        self.crosses: list[torch.Tensor] = []
        self.result: pytree.TreeSpec
        self.result_forms: tuple[torch.Tensor, ...] = ()


def _look(model: nn.Module, handed: HandedOver, inputs: dict[str, Any]) -> _Seen:
    """One pass, whose chance and statistics leave no trace."""
    seen = _Seen()

    def note_form(name):
        def hook(module, args, kwargs, result):
            seen.forms.setdefault(name, _Form(result))

        return hook

    crosses: dict[int, torch.Tensor] = {}

    def note_crossing(number):
        def hook(module, args, kwargs):
            crosses.setdefault(number, _first(args, kwargs).detach().to("meta"))

        return hook

    modes = {module: module.training for module in model.modules()}
    with contextlib.ExitStack() as stack:
        for modules in handed.modules:
            for name in modules:
                module = model.get_submodule(name)
                stack.callback(module.register_forward_hook(note_form(name), with_kwargs=True).remove)
        for number, name in enumerate(handed.begins):
            module = model.get_submodule(name)
            hook = note_crossing(number)
            stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
        stack.enter_context(torch.random.fork_rng())
        stack.enter_context(torch.no_grad())
        model.eval()
        try:
            result = model(**inputs)
        finally:
            for module, training in modes.items():
                module.training = training
    for number, name in enumerate(handed.begins):
        if number not in crosses:
            raise InputError(
                f"{handed.path}: stages[{number + 1}].begins: module '{name}' takes no part in a pass of the model"
            )
    seen.crosses = [crosses[number] for number in range(len(handed.begins))]
    leaves, seen.result = pytree.tree_flatten(result)
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise InputError(
                f"the model's result holds {type(leaf).__name__}; stages hand tensors on "
                "(of transformers: give use_cache=False)"
            )
    seen.result_forms = tuple(leaf.to("meta") for leaf in leaves)
    return seen
