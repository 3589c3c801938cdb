"""What reads exported graphs and their constants, by the name that docs/exporting.md gives it."""

from heterog.export.graph.writer import read_constants, read_graph

__all__ = ["read_constants", "read_graph"]
