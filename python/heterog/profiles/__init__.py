"""Profiles that other planners were given, as graphs with costs."""
