"""Questions that a model asks about its data only to stop where they are wrong.

`assert lengths.max().item() <= limit` or `if labels.max() >= classes: raise` read values of tensors,
but no step that goes on runs other operators by them. All ways to answer are tried: each has to be
refused by the model itself, or to run the same as the others.
"""

import os
import traceback
from dataclasses import dataclass, field

import torch

from heterog.base.own_files import PACKAGE

# Of one step. Each whose other answer is refused costs a trace; where both go on, what follows is
# traced for each.
MOST_QUESTIONS = 16


class DataDependentQuestion(Exception):
    """Python asked about data, and no answers were given."""


class DataDependentNumber(Exception):
    """Python computes with a number that is read from data."""


@dataclass
class Answers:
    """What questions come to, in the order in which they are asked; True beyond that. None: a
    question is an error."""

    given: list[bool] | None = None
    asked: list[bool] = field(default_factory=list)

    def next(self) -> bool:
        if self.given is None or len(self.asked) == MOST_QUESTIONS:
            raise DataDependentQuestion
        number = len(self.asked)
        self.asked.append(self.given[number] if number < len(self.given) else True)
        return self.asked[-1]


class AskedNumber:
    """What .item() gives of data: it can be compared, and is a question then."""

    def __init__(self, answers: Answers):
        self._answers = answers

    def __bool__(self):
        return self._answers.next()

    def _compare(self, _other):
        return self._answers.next()

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _compare
    __hash__ = None

    def __repr__(self):  # in what an assertion says
        return "a number read from data"

    def _compute(self, *_others):
        raise DataDependentNumber

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _compute
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _compute
    __pow__ = __rpow__ = __neg__ = __abs__ = __round__ = _compute
    __int__ = __float__ = __index__ = __complex__ = _compute


def settle(trace, same):
    """The trace that all answers to the questions about data lead to, whatever they are asked after.

    `trace(answers)` makes one, or raises; `same` compares two. Raises what it raises where it is not
    the model that takes an answer for wrong, or where it takes none for right;
    DataDependentQuestion where answers matter.
    """
    found = refusal = None
    left: list[list[bool]] = [[]]
    for _ in range(MOST_QUESTIONS + 1):
        answers = Answers(left.pop())
        first = len(answers.given)
        try:
            made = trace(answers)
        except Exception as error:
            if not _is_models_own(error):
                raise
            made, refusal = None, error
        # What was answered with True by default has another answer.
        left += [[*answers.asked[:n], False] for n in range(first, len(answers.asked))]
        if made and found and not same(made, found):
            raise DataDependentQuestion
        found = found or made
        if not left:
            break
    if left:
        raise DataDependentQuestion
    if found is None:
        raise refusal
    return found


def _is_models_own(error: Exception) -> bool:
    """Whether the code of a model raised it, and neither PyTorch nor the exporter."""
    cause = error.__cause__ or error
    frames = traceback.extract_tb(cause.__traceback__)
    torchs = os.path.dirname(os.path.abspath(torch.__file__))
    return bool(frames) and not frames[-1].filename.startswith((f"{PACKAGE}{os.sep}", torchs + os.sep))
