"""All that an exported step depends on, watched: what has changed in it is found before each step.

The walk is that of the export's key (key.py); what it reads it also notes here, as pairs of a
place and what the place held. Comparing them is one comparison of two lists by Python itself.
"""

import collections
import operator
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from heterog.export.state.fingerprint import Fingerprint, Unhashable, form_of
from heterog.export.state.generators import is_generator
from heterog.export.state.installed import is_installed_file, is_installed_module
from heterog.export.state.key import OPTIMIZER_ASIDE, add_step

_MISSING = object()
_WHOLE = object()  # in place of a key
_CODE = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")
# Read by nn.Module itself, or what Python has no name for.
_ALWAYS_READ = {"training", "forward"}
# With these, code reads attributes whose names it does not spell out.
_DYNAMIC = {"vars", "__dict__", "__getattribute__", "getattr", "attrgetter"}
_MOST_BYTES = 1 << 24  # of tensors and arrays that code names, whose values are compared


@dataclass(frozen=True)
class Place:
    """Where something stands that code reads: a key of a dict, a variable of a closure, an attribute
    of a class, or all of a list."""

    holder: object
    key: object
    kind: str
    name: str
    before: object = None

    def get(self):
        if self.kind == "cell":
            return _content(self.holder)
        if self.kind == "class":
            return vars(self.holder).get(self.key, _MISSING)
        if self.key is _WHOLE:
            return _copy_of(self.holder)
        return self.holder.get(self.key, _MISSING)

    def put(self, value) -> None:
        if self.kind == "cell":
            self.holder.cell_contents = value
        elif self.kind == "class":
            if value is _MISSING:
                delattr(self.holder, self.key)
            else:
                setattr(self.holder, self.key, value)
        elif self.key is _WHOLE:
            self.holder.clear()
            (self.holder.update if hasattr(self.holder, "update") else self.holder.extend)(value)
        else:
            _write(self.holder, self.key, value)

    def put_back(self) -> None:
        self.put(self.before)


class _Walk(Fingerprint):
    """Goes on past what cannot be hashed."""

    def __init__(self):
        super().__init__()
        self.holders: list = []  # (holder, where, kind)
        self.globals: list = []  # (dict, name, where)
        self.names: set[str] = set()  # that code reads
        self.unseen: list[str] = []
        self.generators: dict = {}
        self._space: dict = {}

    def place(self, holder, where: str, kind: str = "attributes") -> None:
        self.holders.append((holder, where, kind))
        if kind == "code":
            self._add_names(holder.__code__)

    def _add_names(self, code) -> None:
        own = not is_installed_file(code.co_filename)
        for part in (code, *_codes_in(code)):
            names = set(part.co_names)
            names |= {c for c in part.co_consts if isinstance(c, str) and c.isidentifier()}
            self.names |= names if own else names - _DYNAMIC

    def _value(self, value, where: str) -> None:
        if is_generator(value):  # its draws are noticed where they are made (python_state.py)
            self.generators.setdefault(where, value)
            self._put("generator")
            return
        try:
            super()._value(value, where)
        except Unhashable as reason:
            self.unseen.append(str(reason))
            self._kept.append(value)
            self._put("unseen", id(value))

    def _function(self, value, where: str) -> None:
        before, self._space = self._space, value.__globals__
        try:
            super()._function(value, where)
        except Unhashable as reason:
            self.unseen.append(str(reason))
        finally:
            self._space = before

    def _read(self, read, where: str) -> None:
        space = vars(read.modules[-1]) if read.modules else self._space
        if not read.builtin and not read.package:
            self.globals.append((space, read.name.rpartition(".")[2], f"{read.name} in {where}"))
        super()._read(read, where)

    def digest(self) -> str:
        while True:
            try:
                return super().digest()
            except Unhashable as reason:  # of what was at the head of the queue
                self.unseen.append(str(reason))
                if len(self._seen) > 200_000:
                    return ""


def _codes_in(code) -> Iterator:
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            yield constant
            yield from _codes_in(constant)


class Registry:
    def __init__(self, model: torch.nn.Module, loss_fn, optimizer: torch.optim.Optimizer):
        self._given = model, loss_fn, optimizer
        self._aside: set[tuple[int, str]] = set()
        self._note()

    def _note(self) -> None:
        """What everything is now."""
        model, loss_fn, optimizer = self._given
        walk = _Walk()
        add_step(walk, model, loss_fn, optimizer)
        walk.digest()
        self.unseen, self.generators = walk.unseen, walk.generators
        self._names = walk.names
        self._own = {
            id(vars(module)) for module in model.modules()
            if not is_installed_module(type(module).__module__)
        }  # fmt: skip
        self._holders, self._live, self._kept = [], [], []
        self._cells, self._functions, self._values = [], [], []
        seen, budget = set(), _MOST_BYTES
        for holder, where, kind in walk.holders:
            if id(holder) in seen and kind != "class":
                continue
            seen.add(id(holder))
            if kind == "cell":
                self._cells.append((holder, where))
            elif kind == "code":
                self._functions.append((holder, where))
            elif kind == "values":
                budget -= holder.nbytes
                if budget >= 0:
                    self._values.append((holder, where, _values_of(holder)))
                else:
                    self.unseen.append(f"{where} is too large to be compared before each step")
            else:
                self._holders.append((holder, where, kind))
                self._live.append(vars(holder) if kind == "class" else holder)
                self._kept.append(_copy_of(self._live[-1]))
        own = vars(optimizer)
        aside = [(own, n, f"optimizer.{n}") for n in own if n not in OPTIMIZER_ASIDE]
        self._globals = list({(id(s), n): (s, n, w) for s, n, w in walk.globals + aside}.values())
        self._flags_of = list(model.named_parameters())
        self._now = self._other_places()
        self._flags = self._read_flags()

    # ---- before each step ----

    def changed(self, touched: bool) -> list[str]:
        """What has, in words; nothing in most cases. `touched`: the parameters may have been looked
        at, whose own settings are compared then."""
        with torch._C.DisableTorchFunctionSubclass():
            try:
                same = self._live == self._kept and self._now == self._other_places()
            except Exception:  # of two tensors, say: looked at one by one
                same = False
            if same and touched:
                same = self._flags == self._read_flags()
            if same and all(_has_values(h, kept) for h, _, kept in self._values):
                return []
            self._stale = False
            found = list(self._differences())
            if not found and self._stale:
                self._note()  # of objects that say the same as those before
            return found

    def aside(self, holder: dict, key: str) -> None:
        """An attribute that no step reads, whoever writes it."""
        self._aside.add((id(holder), key))

    def _other_places(self) -> tuple:
        return (
            [space.get(name, _MISSING) for space, name, _ in self._globals],
            [_content(cell) for cell, _ in self._cells],
            [_CODE(function) for function, _ in self._functions],
            _process_settings(),
        )

    def _read_flags(self) -> list:
        return [
            (p.requires_grad, len(p._backward_hooks or ()), len(p._post_accumulate_grad_hooks or ()))
            for _, p in self._flags_of
        ]

    # ---- while a step is traced ----

    def snapshot(self) -> tuple:
        return [_copy_of(live) for live in self._live], self._other_places()

    def places_changed(self, snapshot: tuple) -> list[tuple[Place, object, object]]:
        """Places, what stood there, and what stands there now."""
        found = []
        kept_then, (globals_then, cells_then, _, _) = snapshot
        for (holder, where, kind), live, kept in zip(
            self._holders, self._live, kept_then, strict=True
        ):
            differ = list(_keys_that_differ(live, kept))
            if differ and not hasattr(kept, "keys"):
                found.append((Place(holder, _WHOLE, kind, where, kept), kept, _copy_of(live)))
                continue
            for key, old, new in differ:
                name = _name(where, kind, key)
                found.append((Place(holder, key, kind, name, old), old, new))
        for (space, key, where), old in zip(self._globals, globals_then, strict=True):
            new = space.get(key, _MISSING)
            if new is not old:
                found.append((Place(space, key, "global", where, old), old, new))
        for (cell, where), old in zip(self._cells, cells_then, strict=True):
            if _content(cell) is not old:
                found.append((Place(cell, "", "cell", where, old), old, _content(cell)))
        return found

    # ---- in words ----

    def _differences(self) -> Iterator[str]:
        modes = []
        for (holder, where, kind), live, kept in zip(
            self._holders, self._live, self._kept, strict=True
        ):
            for key, old, new in list(_keys_that_differ(live, kept)):
                if not self._is_read(key, kind, old, holder):
                    _write(kept, key, new)  # and is not looked at again until it is written again
                elif key == "training" and kind == "attributes":
                    modes.append((where, new))
                elif _say_the_same(old, new, kind):
                    self._stale = True
                else:
                    yield _in_words(where, kind, key, old, new)
        if modes:
            where, new = modes[0]
            place = f"`{where.removeprefix('model.')}`" if where != "model" else "the model"
            more = f" and {len(modes) - 1} more modules" if len(modes) > 1 else ""
            yield f"model.{'train' if new else 'eval'}() was called on {place}{more}"
        places = [self._globals, self._cells, self._functions]
        now = self._other_places()
        for known, old_values, new_values in zip(places, self._now, now, strict=False):
            for place, old, new in zip(known, old_values, new_values, strict=True):
                if old is new:
                    continue
                if _say_the_same(old, new, "items"):
                    self._stale = True
                else:
                    yield _in_words(place[-1], "", "", old, new)
        for name, old in self._now[-1].items():
            if old != now[-1][name]:
                yield f"{name} of PyTorch was {old}, and is {now[-1][name]}"
        for (name, _), old, new in zip(self._flags_of, self._flags, self._read_flags(), strict=True):
            if old[0] != new[0]:
                yield f"requires_grad of {name} was {old[0]}, and is {new[0]}"
            elif old != new:
                yield f"{name} has other hooks"
        for holder, where, kept in self._values:
            if not _has_values(holder, kept):
                yield f"the values of {where} are others"

    def _is_read(self, key, kind: str, old, holder) -> bool:
        """Whether the step could read an attribute of that name: code names it, or a package has made
        it, whose code is not looked at."""
        if kind != "attributes" or not isinstance(key, str) or key in _ALWAYS_READ:
            return True
        if (id(holder), key) in self._aside:
            return False
        if key in self._names or self._names & _DYNAMIC:
            return True
        return old is not _MISSING and id(holder) not in self._own


def _write(holder: dict, key, value) -> None:
    if value is _MISSING:
        holder.pop(key, None)
    else:
        holder[key] = value


def _copy_of(holder):
    if isinstance(holder, dict):
        # What lies in it: transformers' table of activations makes one as it is asked for.
        return dict(dict.items(holder))
    if hasattr(holder, "keys"):
        return dict(holder)
    if isinstance(holder, collections.deque):
        return collections.deque(holder)
    return set(holder) if isinstance(holder, (set, frozenset)) else list(holder)


def _content(cell):
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _values_of(value):
    """A copy; nothing of what holds no values."""
    if not isinstance(value, torch.Tensor):
        return value.tobytes()
    if value.device.type == "meta" or isinstance(value, torch._subclasses.FakeTensor):
        return None
    return value.detach().clone()


def _has_values(holder, kept) -> bool:
    if isinstance(kept, torch.Tensor):
        return holder.shape == kept.shape and same_bits(holder.detach(), kept)
    return kept is None or holder.tobytes() == kept


def _process_settings() -> dict:
    """The part of surroundings() that a program changes in mid-run, in its words."""
    return {
        "the default dtype": torch.get_default_dtype(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "use_deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }


def _keys_that_differ(holder, kept) -> Iterator[tuple]:
    if hasattr(kept, "keys"):
        for key in [*kept, *(k for k in list(holder) if k not in kept)]:
            old, new = kept.get(key, _MISSING), holder.get(key, _MISSING)
            if old is not new:
                yield key, old, new
    elif isinstance(kept, (set, frozenset)):
        if holder != kept:
            yield "", kept, holder
    else:
        for place in range(max(len(holder), len(kept))):
            old = kept[place] if place < len(kept) else _MISSING
            new = holder[place] if place < len(holder) else _MISSING
            if old is not new:
                yield place, old, new


def _say_the_same(old, new, kind: str) -> bool:
    if old is _MISSING or new is _MISSING or kind in ("_modules", "_parameters"):
        return False
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        return kind in ("_buffers", "attributes") and form_of(old) == form_of(new)
    if isinstance(old, torch.nn.Module) or isinstance(new, torch.nn.Module):
        return False
    try:
        digests = []
        for value in (old, new):
            found = Fingerprint()
            found.add(value, "value")
            digests.append(found.digest())
        return digests[0] == digests[1]
    except Unhashable:
        return False


def _name(where: str, kind: str, key) -> str:
    if kind == "class":
        return f"class {where}.{key}"
    if key == "":
        return where
    return f"{where}[{key!r}]" if kind == "items" else f"{where}.{key}"


def _in_words(where: str, kind: str, key, old, new) -> str:
    if kind == "hooks":
        return f"{where} has other hooks"
    name = _name(where, kind, key)
    if old is _MISSING:
        return f"{name} is new ({_shown(new)})"
    if new is _MISSING:
        return f"{name} is gone"
    before, after = _shown(old), _shown(new)
    return f"{name} was {before}, and is {'another' if before == after else after}"


def _shown(value) -> str:
    if isinstance(value, (bool, int, float, str, type(None), torch.dtype)):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:37]}…"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
