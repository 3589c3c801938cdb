"""How much of what a test can look at it looks at."""

import os
from collections.abc import Iterable

import pytest


def rounds(count: int) -> int:
    """All of its seeds where HETEROG_THOROUGH is set (scripts/test.sh --thorough); else a quarter, at least one."""
    return count if "HETEROG_THOROUGH" in os.environ else max(count // 4, 1)


def thorough(cases: Iterable, *, but: set) -> list:
    """The cases of a parametrized test, all but a few of which run where a test is to be thorough."""
    cases = list(cases)
    assert but <= set(cases)
    return [case if case in but else pytest.param(case, marks=pytest.mark.thorough) for case in cases]
