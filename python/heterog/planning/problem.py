"""What is planned: a training step and devices, as files that the library reads."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

from heterog.base.cache_files import folder_of_process, kept, make_cache_folder
from heterog.base.errors import InputError
from heterog.export.graph.writer import pack_graph, write_constants
from heterog.export.training_step import TrainingStep
from heterog.planning.devices import cluster_file, is_path


@dataclass(frozen=True)
class Problem:
    """Files, and how they are costed: all that plans of one batch have in common."""

    graph: str
    cluster: str
    profiles: tuple[str, ...] = ()
    collectives: str | None = None

    def arguments(self) -> list[str]:
        given = [f"--graph={self.graph}", f"--cluster={self.cluster}"]
        given += [f"--profile={path}" for path in self.profiles]
        return given + options(collectives=self.collectives)


def make_problem(graph, cluster, profiles=(), collectives: str | None = None) -> Problem:
    """Files that exist are named as they are; everything else is written into a folder that goes
    with the process."""
    if isinstance(profiles, (str, os.PathLike)):
        profiles = [profiles]
    if not isinstance(profiles, Iterable):
        raise InputError(f"profiles: {profiles!r}; it is a path or a list of paths")
    return Problem(
        _graph_file(graph),
        _cluster_file(cluster),
        tuple(path_of("profiles", path) for path in profiles),
        collectives,
    )


def options(**values) -> list[str]:
    """`at_batch=8` as `--at-batch=8`; None: not given."""
    words = []
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words.append(f"{option}={_word(name, value)}")
    return words


def path_of(name: str, value) -> str:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise InputError(f"{name}: {value!r}; it is a path")
    return os.fsdecode(value)


def text_file(name: str, text: str) -> str:
    """A file of the process with this text, by what it holds: NAME-HASH.json."""
    data = text.encode()
    return _kept(f"{name}-{hashlib.sha256(data).hexdigest()[:16]}.json", data)


def _word(name: str, value) -> str:
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{name}: {value!r}; it is a word or a number")


def _cluster_file(cluster) -> str:
    if is_path(cluster):
        return path_of("cluster", cluster)
    try:
        return cluster_file(cluster, folder_of_process(), ranks=False)
    except InputError as error:
        raise InputError(str(error).replace("device_info:", "cluster:", 1)) from error


def _graph_file(graph) -> str:
    if isinstance(graph, (str, os.PathLike)):
        return path_of("graph", graph)
    if isinstance(graph, TrainingStep):
        path = _packed(graph.graph)
        write_constants(graph.graph, graph.constants, path)
        return path
    if isinstance(graph, dict):
        return _packed(graph)
    raise InputError(
        f"graph: {type(graph).__name__} given; it is the path of a graph, a TrainingStep "
        "(export_training_step), or the dict of one"
    )


def _packed(graph: dict) -> str:
    try:
        packed = pack_graph(graph)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"graph: the dict is no graph of docs/formats.md ({what})") from error
    return _kept(f"graph-{hashlib.sha256(packed).hexdigest()[:16]}.json.gz", packed)


def _kept(name: str, data: bytes) -> str:
    return kept(make_cache_folder(folder_of_process()) / name, data)
