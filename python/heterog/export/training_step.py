"""What an export gives. Whoever plans it need not load the exporter."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from heterog.base.given import FilePath
from heterog.export.graph.writer import write_constants, write_graph

if TYPE_CHECKING:
    from heterog.export.optimizer.settings import Update
    from heterog.export.state.python_state import Kept


@dataclass(frozen=True)
class TrainingStep:
    """An exported step. `graph` is the plain dictionary of docs/formats.md."""

    graph: dict
    checked: str = ""  # what was compared with PyTorch, or why nothing was
    # What the model makes of numbers while it runs, by the names of the buffers that hold it.
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    # Parameters that the loss does not depend on: as in PyTorch, the optimizer passes them over.
    untrained: list[str] = field(default_factory=list)
    update: "Update | None" = None  # what was found out about the optimizer
    python: "Kept | None" = None  # what a step leaves in Python's own state; None: nothing

    def save(self, path: FilePath) -> None:
        """Writes `.json.gz`; the same graph gives the same bytes. Constants that are too large for
        it go into a file beside it (`heterog.writer.read_constants`)."""
        write_constants(self.graph, self.constants, path)
        write_graph(self.graph, path)
