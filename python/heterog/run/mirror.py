"""Tensors of a program whose newest values the workers of a runner hold.

Between two steps the program sees them as if each step had written them, and what it writes into
them is what the next step begins with; a training loop that looks at none of them pays for none.
"""

import os
import threading
from collections.abc import Callable

import torch

from heterog.base.errors import HeterogError

_T = torch.Tensor
# Asks for the form of a tensor, or for its gradient: none of it is with the workers.
_OF_FORM = {
    _T.shape.__get__, _T.dtype.__get__, _T.device.__get__, _T.layout.__get__, _T.ndim.__get__,
    _T.requires_grad.__get__, _T.is_leaf.__get__, _T.is_meta.__get__, _T.is_cuda.__get__,
    _T.grad.__get__, _T.grad.__set__, _T.grad_fn.__get__, _T.nbytes.__get__, _T.itemsize.__get__,
    _T.is_sparse.__get__, _T.is_quantized.__get__, _T.size, _T.dim, _T.numel, _T.stride,
    _T.element_size, _T.is_floating_point, _T.is_complex, _T.is_contiguous, _T.__len__,
}  # fmt: skip
# Held by its tensor, and by what counts it.
_ALONE = 2
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class Mirror:
    """The tensors are *away* while nobody has looked at them since the last step, and *here* from
    the first look on, when all of them are brought; the next step takes all back.

    A tensor that is away is of a class of its own, a subclass of what it was: whatever PyTorch does
    with it but asking for its form first comes to `__torch_function__`, which brings the values and
    gives every tensor its class back. Memory that others than the tensor hold (a view, a numpy
    array, another process) can be looked at without: of such tensors the values are brought after
    each step, and taken before each.
    """

    def __init__(
        self,
        what: str,
        tensors: dict[str, torch.Tensor],
        fetch: Callable[[list[str]], dict[str, torch.Tensor]] | None,
        put: Callable[[str, torch.Tensor], None],
        lock: threading.RLock,
        alone: bool,
        bring: Callable[[], None] | None = None,
    ):
        """what     in messages: "model"
        tensors  the program's own, by the names of the workers
        fetch    asks the workers; None: no step changes them
        put      gives the workers another value
        alone    no other process has workers; else a look is refused, since all must ask together
        bring    what a look does in place of bring(), which then leaves all to it
        """
        self.tensors = tensors
        self.away = False
        self._what, self._fetch, self._put = what, fetch, put
        self._lock, self._alone = lock, alone
        self._bring_instead = bring
        self._process = os.getpid()
        self._lost: str | None = None
        self._classes: dict[type, type] = {}
        self._shared: dict[str, torch.Tensor] = {}

    # ---- what a runner calls ----

    def leave(self) -> None:
        """The workers have the newest values now."""
        with self._lock:
            if not self.away:
                self._shared = {n: t for n, t in self.tensors.items() if _is_shared(t)}
                for name, tensor in self.tensors.items():
                    if name not in self._shared:
                        tensor.__class__ = self._class_of(type(tensor))
                self.away = True

    def after_step(self) -> None:
        """Values that can be read without a look."""
        if self._shared and self._fetch is not None:
            self._write(self._shared)

    @property
    def is_shared(self) -> bool:
        return bool(self._shared)

    @property
    def may_differ(self) -> bool:
        """Whether the program may have written since the workers had all values."""
        return not self.away or bool(self._shared) and (self._alone or self._fetch is None)

    def hand_over(self) -> None:
        """The workers get what the program may have written."""
        with self._lock:
            for tensor in self.tensors.values():
                other = getattr(type(tensor), "_mirror", self)
                if other is not self:  # of another runner, which has trained it since
                    self.bring()
                    other.bring()
            given = self._shared if self.away else self.tensors
            with torch._C.DisableTorchFunctionSubclass():
                for name, tensor in given.items():
                    self._put(name, tensor)
            self.leave()

    def replace(self, name: str, tensor: torch.Tensor, may: bool) -> None:
        """Another tensor stands for this name now; what it holds was written."""
        known = self.tensors[name]
        self.bring()
        if known.shape != tensor.shape or known.dtype != tensor.dtype or not may:
            what = "another tensor" if known.shape == tensor.shape else list(tensor.shape)
            raise HeterogError(
                f"{self._what}: '{name}' has become {what}; the runner was made with "
                f"{list(known.shape)}, make another"
            )
        self.tensors[name] = tensor

    def bring(self) -> None:
        """The program's tensors hold the newest values from now on."""
        with self._lock:
            if self._bring_instead is not None:
                self._bring_instead()
            elif self.away:
                self.check_reachable()
                fetched = self._fetch(list(self.tensors)) if self._fetch is not None else {}
                self.come_back()
                self._write(self.tensors, fetched)

    def lose(self, why: str) -> None:
        """The workers are gone, with the newest values of tensors that are away: a look is refused."""
        self._lost = why if self._fetch is not None else None
        if self._lost is None:
            self.come_back()

    # ---- within ----

    def come_back(self) -> None:
        """The tensors are of their own classes again, whatever they hold."""
        plain_of = {own: plain for plain, own in self._classes.items()}
        for tensor in self.tensors.values():
            if type(tensor) in plain_of:
                tensor.__class__ = plain_of[type(tensor)]
        self.away = False

    def check_reachable(self) -> None:
        if os.getpid() != self._process:
            raise HeterogError(
                f"{self._what}: a runner of another process has its values, and this one was forked "
                "from it; call sync_to_model() before"
            )
        if self._lost:
            raise HeterogError(self._lost)

    def look(self) -> None:
        """Before the program sees a value."""
        if self._fetch is not None and not self._alone and self.away and not self._lost:
            raise HeterogError(
                f"{self._what}: its newest values are with the ranks of several processes, and all "
                "of them have to ask: call sync_to_model() in each process before, or state_dict()"
            )
        self.bring()

    def _write(self, tensors: dict[str, torch.Tensor], values=None) -> None:
        if self._fetch is None:
            return
        values = self._fetch(list(tensors)) if values is None else values
        with torch.no_grad():
            for name, value in values.items():
                if tensors[name].shape != value.shape:
                    raise HeterogError(
                        f"{self._what}: '{name}' has become {list(tensors[name].shape)}; the runner "
                        f"was made with {list(value.shape)}, make another"
                    )
                tensors[name].copy_(value)

    def _class_of(self, plain: type) -> type:
        if plain not in self._classes:
            self._classes[plain] = _away_class(self, plain)
        return self._classes[plain]


def _away_class(mirror: Mirror, plain: type) -> type:
    def of_away(cls, func, types, args=(), kwargs=None):
        if func in _OF_FORM:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        if mirror._lost and func is _T.copy_ and type(args[0]) is cls:
            args[0].__class__ = plain  # all that was lost of it is given anew
        else:
            mirror.look()
        # All arguments are what they were: nothing comes here again, unless another runner's are
        # among them.
        return func(*args, **(kwargs or {}))

    def new(cls, *args, **kwargs):
        """`type(parameter)(data)`, as copies are made, is no tensor of the runner."""
        return plain.__new__(plain, *args, **kwargs)

    members = {
        "__new__": new,
        "__torch_function__": classmethod(of_away),
        "__module__": plain.__module__,
        "_mirror": mirror,
    }
    return type(plain.__name__, (plain,), members)


def _is_shared(tensor: torch.Tensor) -> bool:
    """Whether its values can be reached by other ways than by the tensor itself."""
    if type(tensor) not in _PLAIN or tensor.layout != torch.strided or tensor.is_shared():
        return True
    storage = tensor.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata) > _ALONE
