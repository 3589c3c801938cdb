"""From a model and devices to files that can be run: the exported step, the cluster, the plan."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from heterog.base.cache_files import (
    digest_of, folder_of_process, is_kept, keep, kept, locked, make_cache_folder,
)  # fmt: skip
from heterog.base.errors import HeterogError
from heterog.base.files import replace_file
from heterog.base.native import find_library
from heterog.base.own_files import installed
from heterog.base.reading import MOST_WRITTEN_BYTES, file_digest, read_bytes
from heterog.base.run_verb import run_verb
from heterog.export.graph.writer import pack_graph, write_constants
from heterog.export.training_step import TrainingStep
from heterog.planning.devices import cluster_file
from heterog.run.config import RunnerConfig


@dataclass
class RunFiles:
    """Paths of what a run needs."""

    graphs: list[str]  # the first is planned, the others run the same plan
    cluster: str
    plan: str


def make_files(steps: list[TrainingStep], device_info, config: RunnerConfig) -> RunFiles:
    """Writes what was exported, and finds or makes the plan."""
    cache = make_cache_folder(config.folder)
    cluster = cluster_file(device_info, cache, ranks=config.processes is not False)
    graphs = [_graph_file(step, config.graph if i == 0 else None, cache) for i, step in enumerate(steps)]
    if config.plan is not None:
        if not os.path.isfile(config.plan):
            raise HeterogError(f"config: plan {config.plan}: no such file")
        return RunFiles(graphs, cluster, os.fspath(config.plan))
    return RunFiles(graphs, cluster, _plan_file(graphs[0], cluster, config, cache))


def _graph_file(step: TrainingStep, wanted, cache: Path) -> str:
    if wanted is not None:
        write_constants(step.graph, step.constants, wanted)
        replace_file(wanted, pack_graph(step.graph))
        return os.fspath(wanted)
    packed = pack_graph(step.graph)
    return kept(cache / f"graph-{hashlib.sha256(packed).hexdigest()[:16]}.json.gz", packed)


def _plan_file(graph: str, cluster: str, config: RunnerConfig, cache: Path) -> str:
    """Plans once for the same question, whatever the number of processes of this host that ask."""
    arguments = ["plan", "--graph", graph, "--cluster", cluster, "--batch", str(config.batch)]
    for name in ("planner", "budget", "evaluations", "policy", "collectives"):
        value = getattr(config, name)
        if value is not None:
            arguments += [f"--{name}", str(value)]
    if config.accumulate > 1:
        arguments += ["--accumulate", str(config.accumulate)]
    for profile in config.profiles:
        arguments += ["--profile", profile]
    arguments += ["--seed", str(config.seed)]
    path = cache / f"plan-{_question(arguments, graph, cluster, config)}.json"
    # Beside the plan, the digest of what was made: one that was damaged since is made anew.
    seal = path.with_suffix(".sha256")
    with locked(f"{path}.lock"):
        digest = digest_of(path)
        if digest is None or not is_kept(seal, digest.encode()):
            made = _made_plan(arguments)
            keep(seal, hashlib.sha256(made).hexdigest().encode())
            keep(path, made)
    return str(path)


def _made_plan(arguments: list[str]) -> bytes:
    with tempfile.TemporaryDirectory(dir=folder_of_process()) as folder:
        file = os.path.join(folder, "plan.json")
        run_verb([*arguments, "--out", file])
        return read_bytes(file, MOST_WRITTEN_BYTES)


def _question(arguments: list[str], graph: str, cluster: str, config: RunnerConfig) -> str:
    """All that a plan depends on: what is asked, the files, the data bases, the policy, the library."""
    hasher = hashlib.sha256()
    by_policy = (config.planner or "").split(":")[0] == "policy"
    policy = config.policy or (_shipped_policy() if by_policy else None)
    files = [graph, cluster, *config.profiles, *([os.fspath(policy)] if policy else [])]
    for argument in arguments:
        hasher.update(argument.encode() + b"\0" if argument not in files else b"file\0")
    # cluster_file puts its data bases beside it; they hold over the installed ones.
    for name in ("devices.json", "links.json"):
        files += [str(Path(cluster).parent / name), str(installed(name))]
    for file in files:
        if os.path.isfile(file):
            hasher.update(file_digest(file))
    library = os.stat(find_library())
    hasher.update(f"{library.st_size} {library.st_mtime_ns}".encode())
    return hasher.hexdigest()[:16]


def _shipped_policy() -> str | None:
    """What planner `policy` takes if it is given none."""
    name = Path("models/policies/zoo-small.ckpt")
    for start in (Path(find_library()).resolve().parent, Path.cwd()):
        for folder in (start, *start.parents):
            if (folder / name).is_file():
                return str(folder / name)
    return None
