"""Steps of a runner on the way: launched, and not yet waited for.

    step()  →  launch, finish
    run()   →  launch 1, launch 2, finish 1, launch 3, finish 2, …   where ranks are on GPUs

So a GPU has the next step's work and its inputs before the loss of the last one has come back.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from heterog.base.errors import HeterogError, LossNotFinite
from heterog.base.native import NativeRunner


class LaunchedStep:
    """A step, and what came of it once it was waited for."""

    def __init__(self, number: int, form: tuple[int, int]):
        self.number, self.form = number, form  # form: its graph and its number of samples
        self.loss = 0.0
        self.error: HeterogError | None = None

    @property
    def was_done(self) -> bool:
        """By all ranks, if not with a loss that is a finite number."""
        return self.error is None or isinstance(self.error, LossNotFinite)


class StepsOnTheirWay:
    """Those of one runner, two at most."""

    def __init__(self, lock: threading.RLock):
        """lock  of the runner"""
        self._lock = lock
        self._native: NativeRunner | None = None
        self._launched: deque[LaunchedStep] = deque()
        self._reports = False
        self.last: LaunchedStep | None = None  # that was finished, and done, of these workers
        self.last_seconds: float | None = None  # of the last step of any

    def begin_with(self, native: NativeRunner) -> None:
        """Other workers do the steps from now on."""
        self._native, self.last = native, None

    def launch(
        self,
        number: int,
        form: tuple[int, int],
        inputs: dict[int, torch.Tensor],
        own_rows: bool,
    ) -> LaunchedStep:
        self._native.launch(number, *form, inputs, own_rows)
        step = LaunchedStep(number, form)
        self._launched.append(step)
        return step

    def finish(self, left: int = 0) -> None:
        """Waits until no more than so many are on their way. What failed is kept with its step."""
        with self._lock:
            while len(self._launched) > left:
                step = self._launched.popleft()
                try:
                    step.loss, self.last_seconds = self._native.finish()
                except HeterogError as error:
                    step.error = error
                if step.was_done:
                    self.last = step

    def finish_for_a_look(self) -> None:
        """Before the program asks for the last step. What only reports a step means that one."""
        if not self._reports:
            self.finish()

    def report(self, step: LaunchedStep, called: list[Callable[[int, float], Any]]) -> None:
        self._reports = True
        try:
            for one in called:
                one(step.number, step.loss)
        finally:
            self._reports = False


def goes_ahead(called: list[Callable[[int, float], Any]]) -> bool:
    """Whether the next step may be launched before these are called: they look at a step and change
    nothing, as StepLines and StepCurves."""
    return all(getattr(one, "only_looks", False) for one in called)


def run_ahead(
    launch: Callable[[Any], LaunchedStep],
    on_their_way: StepsOnTheirWay,
    batches: Iterable[Any],
    called: list[Callable[[int, float], Any]],
) -> list[float]:
    """A step of each batch; their losses. A step that failed ends the run with its error, also where
    something else has failed since it was launched."""
    losses: list[float] = []
    unread: deque[LaunchedStep] = deque()

    def read(left: int) -> None:
        on_their_way.finish(left)
        while len(unread) > left:
            if unread[0].error is not None:
                raise unread[0].error
            step = unread.popleft()
            losses.append(step.loss)
            on_their_way.report(step, called)

    try:
        for batch in batches:
            unread.append(launch(batch))
            read(left=1)
        read(left=0)
    except BaseException:
        on_their_way.finish()
        for step in unread:
            if step.error is not None:
                raise step.error from None
        raise
    return losses
