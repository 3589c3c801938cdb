"""What belongs to an installed package, whose version stands for its code."""

import collections.abc
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import site
import sys
import sysconfig
import types
import warnings

from heterog.base.own_files import PACKAGE

_OWN = __name__.partition(".")[0]
# Where pip and Debian put packages, also of an environment that Python was not told of (`python -S`).
_PACKAGES = [f"{os.sep}{name}-packages{os.sep}" for name in ("site", "dist")]
_missing = object()


@functools.cache
def _folders() -> tuple[str, ...]:
    paths = [sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [*site.getsitepackages(), site.getusersitepackages()]
    found = {os.path.realpath(path) for path in paths if path}
    return tuple(path + os.sep for path in sorted(found))


@functools.cache
def is_installed_file(path: str) -> bool:
    """Of the standard library, of a folder that packages are installed into, or of this package."""
    if path.startswith("<frozen"):
        return True
    if not os.path.isabs(path):
        return False
    own = f"{PACKAGE.resolve()}{os.sep}"
    real = os.path.realpath(path)
    return real.startswith((*_folders(), own)) or any(name in real for name in _PACKAGES)


def is_installed_module(name: str) -> bool:
    """By its dotted name; it need not have been imported."""
    if not isinstance(name, str):  # of a class whose `__module__` is a descriptor of its objects
        return False
    root = name.partition(".")[0]
    if root == "__main__":
        return False
    if root in sys.stdlib_module_names or root == _OWN:
        return True
    module = sys.modules.get(root)
    if module is None:
        return _spec_is_installed(root)
    place = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), None)
    return place is not None and is_installed_file(place)


def _spec_is_installed(root: str) -> bool:
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    place = spec.origin or next(iter(spec.submodule_search_locations or []), None)
    return place is not None and (place == "built-in" or is_installed_file(place))


def is_named(thing) -> bool:
    """Whether a function or class is what an installed package calls by its name: not one that a
    program has made or put there."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if not isinstance(module, str) or not is_installed_module(module):
        return False
    code = getattr(thing, "__code__", None)
    if isinstance(code, types.CodeType) and not is_installed_file(code.co_filename):
        return False
    found = sys.modules.get(module, _missing)
    for part in name.split("."):
        # vars: a class method is another object each time that it is asked for.
        space = getattr(found, "__dict__", {})
        found = space.get(part, _missing)
        found = getattr(found, "__func__", found)
    if isinstance(found, property):
        return thing in (found.fget, found.fset, found.fdel)
    return found is thing or getattr(found, "func", None) is thing


def foreign(module: str) -> list[tuple[str, object]]:
    """Functions and classes in a package's module, or in a table of it, that are a program's own."""
    root = module.partition(".")[0]
    found = []
    if root in sys.stdlib_module_names or root == _OWN or not is_installed_module(module):
        return found
    with warnings.catch_warnings(action="ignore"):  # of what is deprecated, as soon as it is looked at
        for name, value in list(vars(sys.modules.get(module, types)).items()):
            if _is_foreign(value):
                found.append((name, value))
            elif isinstance(value, collections.abc.Mapping) and not name.startswith("__"):
                found += [(f"{name}[{key!r}]", v) for key, v in _entries(value) if _is_foreign(v)]
    return found


def _entries(table: collections.abc.Mapping) -> list[tuple[object, object]]:
    """Of one that loads its entries as they are asked for (transformers' classes by configuration), those
    that lie there: loading takes long, and fails where the package's parts are of different releases."""
    if not isinstance(table, dict) or type(table).items in (dict.items, collections.OrderedDict.items):
        return list(table.items())
    parts = [table, *(part for part in getattr(table, "__dict__", {}).values() if type(part) is dict)]
    return [entry for part in parts for entry in dict.items(part)]


def _is_foreign(value) -> bool:
    if isinstance(value, types.FunctionType):
        path = value.__code__.co_filename
        if os.path.isabs(path) and not is_installed_file(path):
            return True
    elif not isinstance(value, type):
        return False
    return isinstance(value.__module__, str) and not is_installed_module(value.__module__)


@functools.cache
def _own_sources() -> str:
    """This package's version is the same for many a source."""
    hasher = hashlib.sha256()
    folder = PACKAGE.resolve()
    for path in sorted(folder.rglob("*.py")):
        hasher.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return hasher.hexdigest()


def version_of(name: str) -> str:
    """Of the package that a module belongs to; of the standard library, Python's."""
    root = name.partition(".")[0]
    if root == _OWN:
        return _own_sources()
    if root in sys.stdlib_module_names:
        return sys.version
    version = getattr(sys.modules.get(root), "__version__", None)
    return str(version) if version is not None else _recorded_version(root)


@functools.cache
def _recorded_version(root: str) -> str:
    try:
        return importlib.metadata.version(root)
    except importlib.metadata.PackageNotFoundError:
        # Not the name of a distribution: the state of its first file has to do.
        spec = importlib.util.find_spec(root)
        if spec is None or not spec.origin or not os.path.isfile(spec.origin):
            return "?"
        state = os.stat(spec.origin)
        return f"{state.st_size} {state.st_mtime_ns}"
