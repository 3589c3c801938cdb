"""Runners: a planned step on data, and the model and the optimizer of a program beside it."""
