"""Generators of random numbers that are not PyTorch's."""

import random
import sys


def is_generator(value) -> bool:
    if isinstance(value, random.Random):
        return True
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    kinds = (numpy.random.Generator, numpy.random.RandomState, numpy.random.BitGenerator)
    return isinstance(value, kinds)


def generators_of_process() -> dict:
    """By what they are called."""
    found = {"Python's random": random._inst}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        found["numpy.random"] = numpy.random.mtrand._rand
    return found
