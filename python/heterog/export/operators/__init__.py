"""Operators of PyTorch that a step is traced with in another form."""
