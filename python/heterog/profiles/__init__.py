"""Profiles of other planners, as graphs with costs; timings of plain scripts, as costs of a graph."""
