"""A digest of objects, and of all the code that they can reach, to know them again in another process.

Two programs with one digest do the same with what was added. The code of functions counts, their
closures, and the globals that they read, on to where installed packages begin: of these the version
counts. What cannot be known to be the same raises Unhashable.
"""

import collections
import ctypes
import enum
import functools
import hashlib
import logging
import os
import pathlib
import re
import sys
import threading
import types
import weakref

import torch

from heterog.export.state.code_names import Read, code_digest, names_read
from heterog.export.state.installed import (
    foreign,
    is_installed_file,
    is_installed_module,
    is_named,
    version_of,
)

_ATOMS = (
    type(None), bool, int, str, bytes, complex, type(...), type(NotImplemented), range,
    torch.dtype, torch.layout, torch.memory_format, torch.device, torch.Size,
)  # fmt: skip
_DESCRIPTORS = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.MethodWrapperType,
)  # fmt: skip
# Says nothing of what is computed.
_SILENT = (logging.Logger, type(threading.Lock()), type(threading.RLock()), types.GenericAlias)
_PLAIN_BASES = (
    object, dict, list, tuple, set, frozenset, str, bytes, int, float, complex,
    collections.OrderedDict, collections.defaultdict, collections.deque,
)  # fmt: skip
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_CLASS_ASIDE = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__",
    "__orig_bases__", "__parameters__", "__abstractmethods__", "__firstlineno__",
    "__static_attributes__", "__annotate__", "__annotate_func__", "__annotations_cache__",
    "_abc_impl", "__dataclass_fields__", "__dataclass_params__", "__match_args__",
    "_autograd_function_id",
}  # fmt: skip
# Numbers that are others in each process: of transformers, a hash of strings.
_ATTRIBUTES_ASIDE = {"_original_object_hash"}
# Functions that reach what no name says.
_OPAQUE = {"eval", "exec", "compile", "globals", "__import__"}
_ENVIRONMENT = (os.environ, os.getenv)
_OPERATORS = {"aten", "prims", "prim", "quantized", "torchvision"}  # of torch and of installed ones
_HEAP_TYPE = 1 << 9  # of a class's flags: it was made by a `class` statement, or as if
_MOST = 200_000  # objects


class Unhashable(Exception):
    """The text says what, and where it was met."""

    def __init__(self, where: str, what: str):
        super().__init__(f"{where} is {what}")


class Fingerprint:
    """Things are added in an order that is part of the digest. `known` objects are hashed by the
    caller, and only named where they are met."""

    def __init__(self):
        self._hasher = hashlib.sha256()
        self._seen: dict = {}
        self._kept: list = []  # so that no other object gets the id of one
        self._open: collections.deque = collections.deque()
        self._packages: set[str] = {"torch", "heterog", "sys"}
        self._met: set[str] = set()  # modules of packages' classes
        self._looked: set[str] = set()

    def know(self, value, name: str) -> None:
        """`value` is called `name` from now on."""
        self._kept.append(value)
        self._seen[id(value)] = f"known {name}"

    def add(self, value, where: str) -> None:
        self._value(value, where)

    def add_named(self, name: str, value, where: str) -> None:
        self._put(name)
        self._value(value, where)

    def add_class_of(self, value, where: str) -> None:
        """The code of an object, and none of what it holds."""
        self._instance_class(type(value), where)

    def digest(self) -> str:
        while self._open:
            content, value, where = self._open.popleft()
            if len(self._seen) > _MOST:
                raise Unhashable(where, f"one of more than {_MOST} objects")
            content(value, where)
            if not self._open:
                self._add_foreign()
        self._put("packages", *(f"{p} {version_of(p)}" for p in sorted(self._packages)))
        return self._hasher.hexdigest()

    def _add_foreign(self) -> None:
        """What a program has put into the modules of packages that were met: in place of a function,
        or into a table of functions. Packages' own code is not followed, and would not show it."""
        near = set(self._met)
        for name in self._met:
            space = vars(sys.modules.get(name, types)).values()
            near |= {value.__name__ for value in space if isinstance(value, types.ModuleType)}
        for name in sorted(near - self._looked):
            for key, value in foreign(name):
                self._put("put into", name, key)
                self._value(value, f"{name}.{key}")
        self._looked |= near
        self._met.clear()

    # ---- for who wants to know where things stand (registry.py) ----

    def place(self, holder, where: str, kind: str = "attributes") -> None:
        """`holder` is a dict, list, set, cell, tensor, array, class or function whose contents are added."""

    # ---- what is written ----

    def _put(self, *parts) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
            self._hasher.update(b"%d:" % len(data))
            self._hasher.update(data)

    def _later(self, key, content, value, where: str) -> None:
        """Writes the number of a thing; what it holds comes when it is its turn."""
        if key not in self._seen:
            self._kept.append(value)
            self._seen[key] = len(self._seen)
            self._open.append((content, value, where))
        self._put("at", self._seen[key])

    # ---- values ----

    def _value(self, value, where: str) -> None:
        kind = type(value)
        if kind in _ATOMS:
            self._put(kind.__name__, repr(value))
        elif kind is float:
            self._put("float", value.hex())
        elif id(value) in self._seen:
            self._put("at", self._seen[id(value)])
        elif kind in (tuple, slice):
            items = value if kind is tuple else (value.start, value.stop, value.step)
            self._items(kind.__name__, items, where)
        elif kind in (set, frozenset):
            self._set(value, where)
        elif isinstance(value, _SILENT):
            self._put("silent", kind.__name__)
        elif isinstance(value, _DESCRIPTORS):
            self._builtin(value, where)
        elif kind is types.MethodType:
            self._put("method")
            self._value(value.__func__, where)
            self._value(value.__self__, where)
        else:
            self._later(id(value), self._content_of(value), value, where)

    def _content_of(self, value):
        """What writes down such a thing."""
        if isinstance(value, type):
            return self._built_class
        if isinstance(value, torch.Tensor):
            return self._tensor
        for kinds, content in (
            ((list, collections.deque), self._list),
            ((dict, types.MappingProxyType), self._dict),
            ((types.FunctionType,), self._function),
            ((types.ModuleType,), self._module),
            ((property,), self._property),
            ((staticmethod, classmethod), self._wrapped),
            ((functools._lru_cache_wrapper,), self._wrapped),
            ((functools.partial,), self._partial),
            ((weakref.ref,), self._weak),
            ((types.CodeType,), lambda code, _: self._put("code", code_digest(code))),
        ):
            if type(value) in kinds:
                return content
        return self._object

    def _items(self, mark: str, items, where: str) -> None:
        self._put(mark, len(items))
        for place, item in enumerate(items):
            self._value(item, f"{where}[{place}]")

    def _list(self, value, where: str) -> None:
        self.place(value, where, "items")
        self._items(type(value).__name__, value, where)

    def _dict(self, value, where: str) -> None:
        self.place(value, where, "items")
        self._put("dict", len(value))
        for key, item in list(value.items()):
            self._value(key, f"a key of {where}")
            self._value(item, f"{where}[{key!r}]" if isinstance(key, (str, int)) else where)

    def _set(self, value, where: str) -> None:
        """In an order that is the same in every process."""
        self.place(value, where, "items")
        named = []
        for item in value:
            if isinstance(item, (type, types.FunctionType)):
                named.append((f"{item.__module__}.{item.__qualname__}", item))
            elif type(item) in _ATOMS or type(item) in (float, tuple):
                named.append((f"{type(item).__name__} {item!r}", item))
            else:
                raise Unhashable(where, f"a set of {type(item).__name__}")
        self._items("set", [item for _, item in sorted(named, key=lambda pair: pair[0])], where)

    def _property(self, value, where: str) -> None:
        self._items("property", (value.fget, value.fset, value.fdel), where)

    def _wrapped(self, value, where: str) -> None:
        self._items(type(value).__name__, (value.__wrapped__,), where)

    def _partial(self, value, where: str) -> None:
        self._items("partial", (value.func, value.args, value.keywords), where)

    def _weak(self, value, where: str) -> None:
        self._items("weak", (value(),), where)

    def _tensor(self, value: torch.Tensor, where: str) -> None:
        """With its values, where it has any."""
        if type(value) not in _TENSORS or value.layout != torch.strided or value.is_quantized:
            if not isinstance(value, torch._subclasses.FakeTensor):
                raise Unhashable(where, f"a tensor of {type(value).__name__}, {value.layout}")
        if value._backward_hooks:
            raise Unhashable(where, "a tensor with hooks that is no parameter of the model")
        self.place(value, where, "values")
        self._put("tensor", *form_of(value), type(value).__name__)
        self._attributes(vars(value), where)
        if isinstance(value, torch._subclasses.FakeTensor) or value.device.type == "meta":
            return
        plain = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
        size = plain.numel() * plain.element_size()
        if size:
            self._hasher.update((ctypes.c_char * size).from_address(plain.data_ptr()))

    def _builtin(self, value, where: str) -> None:
        """Made by no Python code; its name says all, but for what it is bound to."""
        owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
        module = getattr(value, "__module__", None) or getattr(owner, "__module__", None)
        if not isinstance(module, str | None):  # of a class that is no Python class
            module = type(owner).__module__
        self._put("builtin", module or "", value.__qualname__)
        if isinstance(owner, types.ModuleType):
            module = owner.__name__
        elif isinstance(owner, type):
            self._put(owner.__qualname__)
        elif owner is not None and type(owner).__name__ != "PyCapsule":
            self._value(owner, where)
            return
        self._compiled(module, where)

    def _compiled(self, module: str | None, where: str) -> None:
        """Code that cannot be looked at has to be that of a package."""
        if module and not is_installed_module(module):
            raise Unhashable(where, f"compiled code of {module}, which is no installed package")
        self._package(module or "")

    # ---- objects ----

    def _object(self, value, where: str) -> None:
        kind = type(value)
        if isinstance(value, enum.Enum):
            self._instance_class(kind, where)
            self._put("enum", value.name)
            return
        if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            self._operator(value, where)
            return
        if kind.__module__ == "typing" or isinstance(value, (re.Pattern, pathlib.PurePath)):
            self._put(kind.__name__, repr(value))
            return
        if kind.__module__ == "numpy" and hasattr(value, "tobytes") and value.dtype != object:
            self.place(value, where, "values")
            self._put("numpy", value.dtype.str, value.shape, value.tobytes())
            return
        if any(type(base).__name__ in ("pybind11_type", "nb_type_0") for base in kind.__mro__):
            raise Unhashable(where, f"a {kind.__name__}, which says nothing of itself")
        self._instance_class(kind, where)
        if any(map(_hides, kind.__mro__)):
            self._reduced(value, where)
            return
        for base, content in ((dict, dict.items), (list, list.__iter__), (tuple, tuple.__iter__)):
            if isinstance(value, base):
                self.place(value, where, "items")
                self._items("holds", list(content(value)), where)
        if isinstance(value, (set, frozenset)):
            self._set(value, where)
        if isinstance(value, (str, bytes, int, float, complex)):
            base = next(b for b in kind.__mro__ if b in (str, bytes, int, float, complex))
            self._value(base(value), where)
        self._attributes(getattr(value, "__dict__", {}), where)
        for base in kind.__mro__:
            for name, member in vars(base).items():
                if isinstance(member, types.MemberDescriptorType) and hasattr(value, name):
                    self._put(name)
                    self._value(member.__get__(value), f"{where}.{name}")

    def _attributes(self, found: dict, where: str) -> None:
        self.place(found, where)
        self._put("attributes", len(found))
        for name, item in list(found.items()):
            if name not in _ATTRIBUTES_ASIDE:
                self._put(name)
                self._value(item, f"{where}.{name}")

    def _reduced(self, value, where: str) -> None:
        """As pickle would write it."""
        try:
            parts = value.__reduce_ex__(4)
        except Exception as error:
            kind = type(value).__name__
            raise Unhashable(where, f"a {kind}, which cannot be compared") from error
        if isinstance(parts, str):
            self._compiled(getattr(value, "__module__", type(value).__module__), where)
            self._put("global", parts)
            return
        parts = [list(p) if isinstance(p, collections.abc.Iterator) else p for p in parts]
        self._items("reduced", parts, where)

    def _operator(self, value, where: str) -> None:
        packet = getattr(value, "overloadpacket", value)
        name = packet._qualified_op_name
        if name.partition("::")[0] not in _OPERATORS:
            raise Unhashable(where, f"the operator {name}, whose code is not known")
        self._put("operator", str(value))

    # ---- code ----

    def _instance_class(self, kind: type, where: str) -> None:
        """The class of an object that exists: how it is made does not matter."""
        self._later((id(kind), "instance"), self._class, kind, where)

    def _built_class(self, kind: type, where: str) -> None:
        self._class(kind, where, built=True)

    def _class(self, kind: type, where: str, built: bool = False) -> None:
        if not kind.__flags__ & _HEAP_TYPE:
            self._compiled(kind.__module__, where)
            self._put("class", kind.__module__, kind.__qualname__)
            return
        installed = is_named(kind)
        if installed:
            self._met.add(kind.__module__)
            self._package(kind.__module__)
            self._put("class", kind.__module__, kind.__qualname__)
        else:
            self._put("class", kind.__qualname__)
            if not is_installed_module(type(kind).__module__):
                self._value(type(kind), f"the metaclass of {kind.__qualname__}")
            for base in kind.__bases__:
                content = self._built_class if built else self._class
                key = id(base) if built else (id(base), "instance")
                self._later(key, content, base, base.__qualname__)
        self.place(kind, kind.__qualname__, "class")
        for name, member in list(vars(kind).items()):
            if name in _CLASS_ASIDE or (name == "__init__" and not built):
                continue
            place = f"{kind.__qualname__}.{name}"
            if name == "step" and issubclass(kind, torch.optim.Optimizer):
                member = _plain_step(member)
                if getattr(member, "__qualname__", place) != place:  # of a base
                    continue
                code = getattr(member, "__code__", None)
                if installed and code and is_installed_file(code.co_filename):
                    self._put(name, code_digest(member.__code__))
                    continue
            if not installed:
                self._put(name)
                self._value(member, place)
            else:
                self._installed_member(name, member, place)
        if installed:
            # What its methods are was written; what they call stands behind its version.
            for base in kind.__bases__:
                self._instance_class(base, where)

    def _installed_member(self, name: str, member, where: str) -> None:
        """A package's own methods are named by it; what a program has put in their place is not."""
        inner = getattr(member, "__func__", member)
        parts = (inner.fget, inner.fset, inner.fdel) if isinstance(inner, property) else (inner,)
        for part in parts:
            if isinstance(part, types.FunctionType):
                self._put(name)
                self._value(part, where)
            elif isinstance(part, (bool, int, float, str)):
                self._put(name)
                self._value(part, where)

    def _function(self, value: types.FunctionType, where: str) -> None:
        code = value.__code__
        self.place(value, where, "code")
        self._put("function", code_digest(code))
        if is_named(value):
            self._package(value.__module__)
            self._put(value.__module__, value.__qualname__)
            return
        self._value(value.__defaults__, f"a default of {where}")
        self._value(value.__kwdefaults__, f"a default of {where}")
        self._attributes(value.__dict__, where)
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            self._cell(name, cell, where)
        if is_installed_file(code.co_filename):
            self._package(value.__module__ or "")
            return
        for read in names_read(value):
            self._read(read, where)

    def _cell(self, name: str, cell, where: str) -> None:
        self.place(cell, f"{name} in {where}", "cell")
        try:
            value = cell.cell_contents
        except ValueError:
            self._put("empty")
            return
        if name == "__class__" and isinstance(value, type):  # for super()
            self._instance_class(value, where)
        else:
            self._value(value, f"{name} in {where}")

    def _read(self, read: Read, where: str) -> None:
        self._put("reads", read.name)
        for module in read.modules:
            if is_installed_module(module.__name__):
                self._package(module.__name__)
        if read.computed:
            raise Unhashable(where, "code that reaches a module by a name which it computes")
        where = f"{read.name} in {where}"
        if read.builtin and read.name in _OPAQUE:
            raise Unhashable(where, "a function that reaches what no name says")
        if any(read.value is thing for thing in _ENVIRONMENT):
            raise Unhashable(where, "the environment, which may be another next time")
        if read.missing or read.builtin:
            self._put("builtin" if read.builtin else "missing")
        elif read.package:
            self._package(read.package)
            made = isinstance(read.value, (types.FunctionType, type))
            if made and not is_installed_module(read.value.__module__ or ""):
                self._value(read.value, where)
        else:
            self._value(read.value, where)

    def _module(self, value: types.ModuleType, where: str) -> None:
        if is_installed_module(value.__name__):
            self._package(value.__name__)
            self._put("module", value.__name__)
            return
        names = {n: v for n, v in vars(value).items() if not (n[:2] == n[-2:] == "__")}
        self.place(vars(value), value.__name__)
        self._attributes(names, value.__name__)

    def _package(self, module: str) -> None:
        root = module.partition(".")[0]
        if root:
            self._packages.add(root)


def form_of(value: torch.Tensor) -> tuple:
    """All of a tensor but its values."""
    return (
        value.dtype, tuple(value.shape), value.stride() if value.layout == torch.strided else "",
        value.requires_grad, value.device.type,
    )  # fmt: skip


def _plain_step(step):
    """An optimizer's step() as it was written: the first object of a class, or of one derived from
    it, wraps it for PyTorch's profiler."""
    while getattr(step, "hooked", False) is True:
        step = step.__wrapped__
    return step


def _hides(base: type) -> bool:
    """Whether objects of a class hold what Python cannot see."""
    if base in _PLAIN_BASES:
        return False
    if not base.__flags__ & _HEAP_TYPE:
        return True
    known = [m for n, m in vars(base).items()
             if n in ("__dict__", "__weakref__") or isinstance(m, types.MemberDescriptorType)]  # fmt: skip
    return base.__basicsize__ > base.__base__.__basicsize__ + 8 * len(known)
