"""One stage of a model as a module: the model's own code, in which other stages' modules do nothing.

The model runs from its beginning in every stage, so that masks, positions and whatever else comes of
the inputs is there. Modules of earlier stages give out zeros of the right shapes, which nobody reads:
where the stage begins, what the stage before handed on takes their place. Where the next stage begins,
the pass ends. A first pass, in which they give out NaN, shows that nobody does read them.
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
    plain   inputs that are no tensors: PyTorch asks for the gradients of all that a stage is given
    reads_more   whether the stage reads of other stages' modules what it does not receive
    """

    def __init__(self, model: nn.Module, handed: HandedOver, stage: int, inputs: dict[str, Any]):
        super().__init__()
        self._check_names(model, handed)
        seen = _look(model, handed, inputs)
        self.received = seen.crosses[stage - 1] if stage else None
        last = stage + 1 == len(handed.modules)
        self.sent = None if last else seen.crosses[stage]
        self.result: pytree.TreeSpec | None = seen.result if last else None
        self.result_forms = tuple(map(_without_values, seen.results))
        self.model = model
        self.plain: dict[str, Any] = {}
        self._now: torch.Tensor | None = None
        skipped: list[_Skipped] = []
        for number, modules in enumerate(handed.modules):
            for name in modules:
                if number != stage:
                    skipped.append(_Skipped(model.get_submodule(name), seen.forms.get(name)))
                    _replace(model, name, skipped[-1])
        if stage:
            model.get_submodule(handed.begins[stage - 1]).register_forward_pre_hook(
                self._begin, with_kwargs=True
            )
        if not last:
            model.get_submodule(handed.begins[stage]).register_forward_pre_hook(_end, with_kwargs=True)
        self.reads_more = self._reads_more(seen, skipped, inputs)
        self.received = _without_values(self.received)
        self.sent = _without_values(self.sent)

    def forward(self, *received: torch.Tensor, **inputs):
        """What the next stage gets; of the last stage, the tensors of the model's result."""
        self._now = received[0] if self.received is not None else None
        try:
            result = self.model(**self.plain, **inputs)
        except _Ends as ends:
            return _own(ends.activation)
        finally:
            self._now = None
        if self.result is None:
            raise RuntimeError("the pass did not come to where the next stage begins")
        leaves, spec = pytree.tree_flatten(result)
        if spec != self.result:
            raise RuntimeError("the model's result has another form than for the inputs that were given first")
        return tuple(map(_own, leaves))

    def _begin(self, module, args, kwargs):
        if self._now is None:
            return None  # again, in the same pass
        received, self._now = self._now, None
        return _with_first(args, kwargs, received)

    def _reads_more(self, seen: "_Seen", skipped: list["_Skipped"], inputs: dict[str, Any]) -> bool:
        for module in skipped:
            module.fill = float("nan")
        with _no_trace(self.model):
            found = self(*(() if self.received is None else (self.received,)), **inputs)
        for module in skipped:
            module.fill = 0.0
        if self.sent is not None:
            return not _alike(found, self.sent)
        return not all(_alike(a, b) for a, b in zip(found, seen.results, strict=True))

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


def _own(value: torch.Tensor) -> torch.Tensor:
    """torch.distributed.pipelining detaches in place what a stage gave out: a parameter itself would have
    no more gradients."""
    return value.clone() if value.is_leaf and value.requires_grad else value


def _first(args, kwargs):
    return next(iter(args or kwargs.values()), None)


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

    def filled(self, value: float, device):
        """Of whole numbers and truth values: zeros."""

        def made(leaf):
            if not isinstance(leaf, torch.Tensor):
                return leaf
            real = leaf.is_floating_point() or leaf.is_complex()
            return torch.full(leaf.shape, value if real else 0, dtype=leaf.dtype, device=device)

        return pytree.tree_unflatten([made(leaf) for leaf in self.leaves], self.spec)


class _Skipped(nn.Module):
    """In the place of another stage's module: no parameters, and `fill` as its result."""

    def __init__(self, module: nn.Module, form: _Form | None):
        super().__init__()
        # Models ask their layers what kind they are.
        own = {key: value for key, value in vars(module).items() if key not in self.__dict__}
        self.__dict__.update({key: value for key, value in own.items() if not key.startswith("_")})
        self._form = form
        self.fill = 0.0

    def forward(self, *args, **kwargs):
        if self._form is None:
            raise RuntimeError("a module of another stage was not called with the inputs that were given first")
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        return self._form.filled(self.fill, tensors[0].device if tensors else None)


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    model.get_submodule(parent)._modules[child] = module


@contextlib.contextmanager
def _no_trace(model: nn.Module):
    """Passes in here leave no gradients, statistics or drawn numbers behind."""
    modes = {module: module.training for module in model.modules()}
    with torch.random.fork_rng(), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            for module, training in modes.items():
                module.training = training


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """But for how kernels round; NaN is like NaN alone."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    least = 1e-2 * float(b.detach().abs().nan_to_num().max()) if b.numel() else 0.0
    return torch.allclose(a, b, rtol=1e-2, atol=least, equal_nan=True)


def _kind(value) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')}"
    return "nothing" if value is None else type(value).__name__


def _without_values(value):
    return None if value is None else value.detach().to("meta")


class _Seen:
    """What a pass of the whole model shows: forms of modules' results, what crosses to each next stage,
    and the model's result."""

    def __init__(self):
        self.forms: dict[str, _Form] = {}
        self.crosses: list[torch.Tensor] = []
        self.result: pytree.TreeSpec
        self.results: tuple[torch.Tensor, ...] = ()


def _look(model: nn.Module, handed: HandedOver, inputs: dict[str, Any]) -> _Seen:
    """One pass of the whole model."""
    seen = _Seen()

    def note_form(name):
        def hook(module, args, kwargs, result):
            seen.forms.setdefault(name, _Form(result))

        return hook

    crosses: dict[int, torch.Tensor] = {}

    def note_crossing(number):
        def hook(module, args, kwargs):
            first = _first(args, kwargs)
            if not isinstance(first, torch.Tensor) or not first.is_floating_point():
                raise InputError(
                    f"{handed.path}: stages[{number + 1}].begins: module '{handed.begins[number]}' has "
                    f"{_kind(first)} as its first argument; expected a tensor of real numbers"
                )
            # A copy: the model may go on in place.
            crosses.setdefault(number, first.detach().clone())

        return hook

    with contextlib.ExitStack() as stack:
        for modules in handed.modules:
            for name in modules:
                module = model.get_submodule(name)
                stack.callback(module.register_forward_hook(note_form(name), with_kwargs=True).remove)
        for number, name in enumerate(handed.begins):
            module = model.get_submodule(name)
            hook = note_crossing(number)
            stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
        stack.enter_context(_no_trace(model))
        result = model(**inputs)
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
    seen.results = tuple(leaves)
    return seen
