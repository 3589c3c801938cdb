"""What a runner says of its steps: as lines, or as curves of TensorBoard."""

from collections.abc import Callable
from typing import Any

from heterog.base.errors import HeterogError


class _Reports:
    """A function for `on_step` of Runner.run(): every so many steps it reports the figures of the
    step. Of several processes each one has it, and that of rank 0 reports."""

    only_looks = True  # the next step may be under way

    def __init__(self, runner: Any, every: int):
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise HeterogError(f"every: {every!r}; it is a number of steps, 1 or more")
        self._runner = runner
        self._every = every

    def __call__(self, number: int, loss: float) -> None:
        if number % self._every:
            return
        figures = figures_of(self._runner, loss)
        if self._runner.rank == 0:
            self._report(number, figures)

    def _report(self, number: int, figures: dict[str, float]) -> None:
        raise NotImplementedError


def figures_of(runner: Any, loss: float) -> dict[str, float]:
    """Of the last step: its loss, its seconds, the learning rate, and outputs of one element."""
    figures = {
        "loss": loss,
        "seconds": runner.last_step_seconds,
        "learning_rate": float(runner.optimizer.param_groups[0]["lr"]),
    }
    found = runner.outputs().items()
    return figures | {name: value.item() for name, value in found if value.numel() == 1}


class StepLines(_Reports):
    """Prints "step 20: loss 0.5123, 41.2 ms, accuracy 0.81", or gives the line to `say`, as a
    logger's info."""

    def __init__(self, runner: Any, every: int = 1, say: Callable[[str], Any] = print):
        super().__init__(runner, every)
        self._say = say

    def _report(self, number: int, figures: dict[str, float]) -> None:
        others = "".join(
            f", {name} {value:.4g}"
            for name, value in figures.items()
            if name not in ("loss", "seconds", "learning_rate")
        )
        self._say(f"step {number}: loss {figures['loss']:.4g}, {figures['seconds'] * 1e3:.1f} ms{others}")


class StepCurves(_Reports):
    """Gives each figure to `writer.add_scalar(name, value, number of the step)`, as the SummaryWriter
    of torch.utils.tensorboard has it; names begin with `prefix`."""

    def __init__(self, runner: Any, writer: Any, every: int = 1, prefix: str = "train/"):
        super().__init__(runner, every)
        if not callable(getattr(writer, "add_scalar", None)):
            raise HeterogError(
                f"writer: {type(writer).__name__} has no add_scalar(); a SummaryWriter of "
                "torch.utils.tensorboard has"
            )
        self._writer = writer
        self._prefix = prefix

    def _report(self, number: int, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(self._prefix + name, value, number)
