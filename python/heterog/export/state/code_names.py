"""What a function's code is, and which names outside of it it reads."""

import builtins
import dis
import hashlib
import importlib
import importlib.util
import sys
import types
from dataclasses import dataclass

from heterog.export.state.installed import is_installed_module

_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_MISSING = object()


@dataclass(frozen=True)
class Read:
    """One thing that a function reads by a name, with the modules on the way to it."""

    name: str  # "helpers.scale"
    value: object
    modules: tuple[types.ModuleType, ...]
    builtin: bool = False
    missing: bool = False
    package: str = ""  # the installed one that it is imported from, inside the function
    computed: bool = False  # a module whose name is known only when the code runs


def code_digest(code: types.CodeType) -> bytes:
    """Of all that decides what a code object does: neither where it stands, nor what it is called."""
    hasher = hashlib.sha256()
    parts = (
        code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
        getattr(code, "co_exceptiontable", b""),
    )  # fmt: skip
    hasher.update(repr(parts).encode())
    for constant in code.co_consts:
        hasher.update(_constant(constant))
    return hasher.digest()


def _constant(value) -> bytes:
    if isinstance(value, types.CodeType):
        return b"code" + code_digest(value)
    if isinstance(value, tuple):
        return b"(" + b",".join(_constant(item) for item in value) + b")"
    if isinstance(value, frozenset):  # its order changes from process to process
        return b"{" + b",".join(sorted(_constant(item) for item in value)) + b"}"
    return f"{type(value).__name__}:{value!r};".encode()


def names_read(function: types.FunctionType) -> list[Read]:
    """In the order of the code, that of functions inside it too."""
    found: dict[str, Read] = {}
    pending = [function.__code__]
    while pending:
        code = pending.pop()
        pending += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        instructions = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
        for place, instruction in enumerate(instructions):
            if instruction.opname in _GLOBALS:
                read = _global(function.__globals__, instructions[place:])
                if read.value is sys.modules or read.value is importlib.import_module:
                    after = place + 1 + read.name.count(".")
                    read = _by_its_name(function.__globals__, instructions[after:])
                found.setdefault(read.name, read)
            elif _reaches_modules(instructions, place):
                read = _by_its_name(function.__globals__, instructions[place + 1 :])
                found.setdefault(read.name, read)
            elif instruction.opname == "IMPORT_NAME":
                for read in _imported(function.__globals__, instructions, place):
                    found.setdefault(read.name, read)
    return list(found.values())


def _global(space: dict, instructions: list) -> Read:
    name = instructions[0].argval
    if name not in space:
        value = getattr(builtins, name, _MISSING)
        return Read(name, value, (), builtin=True, missing=value is _MISSING)
    return _along(name, space[name], instructions[1:])


def _along(name: str, value, instructions: list) -> Read:
    """Follows `module.module.thing` from the module `value` on."""
    modules = []
    for instruction in instructions:
        if not isinstance(value, types.ModuleType) or instruction.opname not in _ATTRIBUTES:
            break
        modules.append(value)
        name = f"{name}.{instruction.argval}"
        value = getattr(value, instruction.argval, _MISSING)
    return Read(name, value, tuple(modules), missing=value is _MISSING)


def _reaches_modules(instructions: list, place: int) -> bool:
    """Whether an instruction loads `sys.modules` or `importlib.import_module` of a module that was
    imported inside the function."""
    name, opname = instructions[place].argval, instructions[place].opname
    if opname == "IMPORT_FROM":
        return name == "import_module" or (
            name == "modules" and any(i.argval == "sys" for i in instructions[:place])
        )
    if opname not in _ATTRIBUTES or not instructions[place - 1].opname.startswith("LOAD_FAST"):
        return False
    return name == "import_module" or (name == "modules" and instructions[place - 1].argval == "sys")


def _by_its_name(space: dict, instructions: list) -> Read:
    """The module that is asked for by a text, and what is read of it; `instructions`: the next."""
    following = [i for i in instructions[:8] if i.opname != "PUSH_NULL"]
    first, then = following[0], following[1]
    asked = then.opname in ("BINARY_SUBSCR", "PRECALL", "CALL") or then.argrepr == "[]"
    path = first.argval if first.opname == "LOAD_CONST" and asked else None
    if first.opname in _GLOBALS and first.argval == "__name__" and asked:
        path = space.get("__name__")
    if not isinstance(path, str):
        return Read(f"a module at {first.offset}", _MISSING, (), computed=True)
    if is_installed_module(path):
        return Read(path, _MISSING, (), package=path)
    try:
        module = importlib.import_module(path)
    except ImportError:
        return Read(path, _MISSING, (), missing=True)
    after = [i for i in following[1:] if i is not then and i.opname not in ("PRECALL", "CALL")]
    return _along(path, module, after)


def _imported(space: dict, instructions: list, place: int) -> list[Read]:
    """What an import inside a function gives it."""
    level, names = instructions[place - 2].argval, instructions[place - 1].argval
    path = instructions[place].argval
    if level:
        path = importlib.util.resolve_name("." * level + path, space.get("__package__") or "")
    if is_installed_module(path):  # not imported for this: a function may never come to it
        space = vars(sys.modules[path]) if path in sys.modules else {}
        return [Read(f"{path}.{n}", space.get(n), (), package=path) for n in names or ("",)]
    try:
        module = importlib.import_module(path)
    except ImportError:
        return [Read(path, _MISSING, (), missing=True)]
    if not names:
        return [Read(path, module, ())]
    found = []
    for name in names:
        value = getattr(module, name, _MISSING)
        if value is _MISSING and hasattr(module, "__path__"):
            value = sys.modules.get(f"{path}.{name}", _MISSING)
        found.append(Read(f"{path}.{name}", value, (module,), missing=value is _MISSING))
    return found
