"""How the ranks of a runner begin with this process, and end with it."""

import contextlib
import os
import sys

from heterog.base.native import NativeOptions, NativeRunner
from heterog.run.config import RunnerConfig
from heterog.run.prepare import RunFiles
from heterog.run.program_state import ProgramState

# What tells a process that it is one rank of several (torchrun, srun, mpirun).
_STARTERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def native_options(files: RunFiles, config: RunnerConfig) -> NativeOptions:
    rank_of = any(all(name in os.environ for name in names) for names in _STARTERS)
    return NativeOptions(
        graph=files.graphs[0],
        more_graphs=files.graphs[1:],
        cluster=files.cluster,
        plan=files.plan,
        collectives=config.collectives,
        profiles=config.profiles,
        threads=config.threads,
        seed=config.seed,
        slow=config.slow,
        one_rank=rank_of if config.processes is None else config.processes,
        any_device=config.any_device,
        tune_process=config.tune_process,
        timeout=config.timeout,
        transport=config.transport,
        terms=f"clip {config.clip_norm} double {config.double}",
    )


class Fate:
    """Whether the last thing that a runner did was to stop at an exception."""

    def __init__(self):
        self.stopped = False

    @contextlib.contextmanager
    def watched(self):
        try:
            yield
        except BaseException:
            self.stopped = True
            raise
        self.stopped = False


def end_with_process(
    native: NativeRunner, fate: Fate, program: ProgramState | None = None, alone: bool = False
) -> None:
    """A process that ends by an exception tells the others so, which would wait for it: also where
    its program has caught the exception and leaves by sys.exit(). `alone`: no others have workers."""
    if program is not None:
        program.end(alone, "the runner was not closed")
    native.close(finished=getattr(sys, "last_value", None) is None and not fate.stopped)
