"""What verbs find, as frozen objects: figures in seconds and bytes, by the names of --json."""

import html
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from heterog.base.errors import InputError
from heterog.base.files import replace_file
from heterog.planning.problem import Problem, path_of, text_file
from heterog.planning.report import report_page

T = typing.TypeVar("T")


def made(kind: type[T], found: Mapping[str, Any], **others: Any) -> T:
    """A dataclass from the object of JSON that has its fields; `others` that are not in it."""
    hints = typing.get_type_hints(kind)
    values = {}
    for entry in fields(kind):  # type: ignore[arg-type]
        if entry.name in others:
            values[entry.name] = others[entry.name]
        elif entry.name in found:
            values[entry.name] = _value(hints[entry.name], found[entry.name])
    return kind(**values)


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return tuple(_value(inner[0], entry) for entry in value)
    if isinstance(hint, types.UnionType):
        return _value(inner[0], value)
    if is_dataclass(hint) and isinstance(hint, type):
        return made(hint, value)
    return value


class Result:
    """What every result can be shown as."""

    def rows(self) -> list[dict[str, Any]]:
        """The table that it is, a dict a row."""
        raise NotImplementedError

    def to_frame(self):
        """The table as a pandas.DataFrame."""
        try:
            import pandas
        except ImportError as error:
            raise InputError(
                "to_frame: pandas is not installed; `pip install pandas`, or take rows()"
            ) from error
        return pandas.DataFrame(self.rows())

    def _repr_html_(self) -> str:
        return _table(self.rows())


@dataclass(frozen=True)
class MemoryPeak:
    """What a device holds when it holds the most; the amounts add up to its peak."""

    at_seconds: float
    task: str | None  # whose start makes the peak; None: what stays resident is all there is
    parameters_bytes: int
    optimizer_state_bytes: int
    buffers_bytes: int
    reserve_bytes: int
    gradients_bytes: int
    activations_bytes: int
    temporaries_bytes: int
    buckets_bytes: int
    workspace_bytes: int
    largest: tuple[dict, ...] = ()  # allocations: name, bytes, purpose, made_by, kept_until


@dataclass(frozen=True)
class DeviceUse:
    name: str
    busy_seconds: float
    peak_bytes: int
    capacity_bytes: int
    memory: MemoryPeak = field(repr=False)
    work_share: float  # of all computing, by the ops' mean times; adds up to 1


@dataclass(frozen=True)
class LinkUse:
    name: str
    busy_seconds: float
    bytes: int


@dataclass(frozen=True)
class Missing:
    """Why a step does not fit: the first device to run out."""

    device: str
    task: str | None  # None: parameters and optimizer state alone do not fit
    missing_bytes: int


@dataclass(frozen=True)
class Simulation(Result):
    """A simulated step."""

    step_seconds: float
    samples_per_second: float
    feasible: bool
    tasks: int
    computation_seconds: float  # the longest busy time of a device
    communication_seconds: float  # and of a link
    lower_bound_seconds: float  # no order of this plan is shorter
    any_plan_bound_seconds: float  # no plan of this problem is
    devices: tuple[DeviceUse, ...] = field(repr=False)
    links: tuple[LinkUse, ...] = field(repr=False)
    reason: Missing | None = None  # if it does not fit
    checked: bool = False  # simulate(check=True) has proved it
    compression: str | None = None  # of gradients, if they are

    def rows(self) -> list[dict[str, Any]]:
        """The devices."""
        return [
            {
                "device": device.name,
                "busy_seconds": device.busy_seconds,
                "of_step": device.busy_seconds / self.step_seconds if self.step_seconds else 0.0,
                "peak_bytes": device.peak_bytes,
                "capacity_bytes": device.capacity_bytes,
                "used": device.peak_bytes / device.capacity_bytes,
            }
            for device in self.devices
        ]


@dataclass(frozen=True)
class Baseline:
    """Plain data parallelism, or the best single device, beside a plan."""

    name: str
    step_seconds: float
    feasible: bool


@dataclass(frozen=True)
class AllDevices:
    """The best plain data parallelism on all devices, beside a plan that leaves some out: what is
    busy for longest is why."""

    planner: str
    step_seconds: float
    feasible: bool
    busiest: str  # a device or a link
    busiest_seconds: float


@dataclass(frozen=True)
class EnoughDevices:
    """The same plan on fewer devices, whose step is at most a hundredth longer."""

    left_out: tuple[str, ...]
    step_seconds: float


@dataclass(frozen=True)
class FreePlan:
    """What a planner finds that may say anything, beside a plan for an engine; never longer."""

    step_seconds: float
    feasible: bool
    planner: str


@dataclass(frozen=True)
class Plan(Result):
    """A plan, with what was planned: `text` is the plan file.

    It stands wherever the path of a plan file may: `heterog.verify(graph, cluster, plan)`,
    `get_runner(…, config={"plan": plan})`.
    """

    problem: Problem = field(repr=False)
    text: str = field(repr=False)  # empty where nothing fits: such plans are not written
    simulation: Simulation
    planner: str  # which one found it
    order: str
    order_seconds: dict[str, float] = field(repr=False)  # the same decisions in each order that needs no priorities
    plan_seconds: float
    evaluations: int  # simulated plans
    baselines: tuple[Baseline, ...] = field(default=(), repr=False)  # of planners that look at them
    unused_devices: tuple[str, ...] = ()
    all_devices: AllDevices | None = field(default=None, repr=False)  # if some are unused
    enough_devices: EnoughDevices | None = field(default=None, repr=False)  # if fewer do as well
    free: FreePlan | None = None  # of a plan for an engine

    @property
    def step_seconds(self) -> float:
        return self.simulation.step_seconds

    @property
    def samples_per_second(self) -> float:
        return self.simulation.samples_per_second

    @property
    def feasible(self) -> bool:
        return self.simulation.feasible

    def rows(self) -> list[dict[str, Any]]:
        """The devices, as of the simulation."""
        return self.simulation.rows()

    def save(self, path) -> None:
        """Writes the plan file."""
        _save("plan", self.text, path)

    def __fspath__(self) -> str:
        return _file("plan", self.text)

    def page(self) -> str:
        """One HTML page that shows the plan beside the baselines: that of `heterog report`."""
        return report_page(self.problem, self)

    def _repr_html_(self) -> str:
        if not self.text:  # it does not fit, and there is nothing to draw
            return super()._repr_html_()
        # A page of its own inside the notebook's: neither sees the other's styles and scripts.
        page = html.escape(self.page(), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="800" style="border: 0"></iframe>'


@dataclass(frozen=True)
class PlannerRow:
    name: str
    baseline: bool
    step_seconds: float | None  # None: it gave no plan
    samples_per_second: float | None
    feasible: bool
    missing_bytes: int
    plan_seconds: float
    evaluations: int
    speedup: float | None  # over the best baseline that fits; None where either does not fit
    reason: str | None  # why it gave no plan


@dataclass(frozen=True)
class Comparison(Result):
    """Planners side by side on one problem."""

    planners: tuple[PlannerRow, ...]

    def rows(self) -> list[dict[str, Any]]:
        """The planners."""
        return [_flat(row) for row in self.planners]

    def best(self) -> PlannerRow | None:
        """The shortest step that fits."""
        fitting = (row for row in self.planners if row.feasible)
        return min(fitting, key=lambda row: row.step_seconds or 0, default=None)


@dataclass(frozen=True)
class DeviceShare:
    name: str
    type: str
    rank: int | None  # None: it takes no part
    samples: int
    share: float
    busy_seconds: float
    peak_bytes: int
    capacity_bytes: int


@dataclass(frozen=True)
class OtherShares:
    """Even shares, or shares in proportion to speed, beside those that were found."""

    step_seconds: float
    feasible: bool
    speedup: float | None  # of what was found over these


@dataclass(frozen=True)
class Shares(Result):
    """How many samples each rank of plain data parallelism takes; `text` is the file that
    UnevenBatchSampler reads, and the object may stand in its place."""

    text: str = field(repr=False)
    samples_per_rank: tuple[int, ...]
    step_seconds: float
    samples_per_second: float
    feasible: bool
    order: str
    bucket_bytes: int
    even: OtherShares
    proportional: OtherShares
    devices: tuple[DeviceShare, ...] = field(repr=False)
    batch: int
    planner: str
    plan_seconds: float
    evaluations: int
    micro_batches: int = 1  # in a step; `batch` and the samples are those of one
    all_devices: AllDevices | None = field(default=None, repr=False)  # if some are unused
    enough_devices: EnoughDevices | None = field(default=None, repr=False)  # if fewer do as well

    def rows(self) -> list[dict[str, Any]]:
        """The devices."""
        return [_flat(device) for device in self.devices]

    def save(self, path) -> None:
        """Writes the file that `heterog shares --out` does."""
        _save("shares", self.text, path)

    def __fspath__(self) -> str:
        return _file("shares", self.text)


@dataclass(frozen=True)
class Stretch:
    """A piece of the critical path, in words."""

    begin_seconds: float
    seconds: float
    what: str
    why: str


@dataclass(frozen=True)
class DeviceTime:
    """Where a device's step goes; the five times add up to it."""

    name: str
    computing_seconds: float
    moving_seconds: float
    queued_seconds: float
    waiting_seconds: float
    done_seconds: float
    waits_most_for: str | None


@dataclass(frozen=True)
class Upgrade:
    """What the step would take if this device or link were twice as fast."""

    name: str
    step_seconds: float
    saved_seconds: float


@dataclass(frozen=True)
class Explanation(Result):
    """Why a plan's step takes as long as it does; docs/formats.md has the keys of the dicts."""

    graph: str
    cluster: str
    batch: int
    planner: str
    order: str
    step_seconds: float
    samples_per_second: float
    lower_bound_seconds: float
    any_plan_bound_seconds: float
    bounds: dict[str, float] = field(repr=False)
    stretches: tuple[Stretch, ...] = field(repr=False)
    critical_path: tuple[dict, ...] = field(repr=False)
    by_kind: tuple[dict, ...] = field(repr=False)
    by_group: tuple[dict, ...] = field(repr=False)
    devices: tuple[DeviceTime, ...] = field(repr=False)
    busiest: tuple[dict, ...] = field(repr=False)
    twice_as_fast: tuple[Upgrade, ...] = field(repr=False)
    decisions: tuple[dict, ...] = field(default=(), repr=False)  # for how many operators each
    pipeline: dict | None = field(default=None, repr=False)
    unused_devices: tuple[str, ...] = ()
    all_devices: AllDevices | None = field(default=None, repr=False)  # if some are unused
    enough_devices: EnoughDevices | None = field(default=None, repr=False)  # if fewer do as well

    def rows(self) -> list[dict[str, Any]]:
        """The critical path, stretch by stretch."""
        return [_flat(stretch) for stretch in self.stretches]


@dataclass(frozen=True)
class Difference:
    kind: str  # "loss", "gradient", "parameter", "buffer", "optimizer state"
    relative: float | None  # None: not a finite number
    tensor: str
    device: str
    step: int


@dataclass(frozen=True)
class Verification(Result):
    """How far a plan's training is from that of one device: the worst of each kind."""

    passed: bool
    tolerance: float
    compared: int  # values
    worst: tuple[Difference, ...]
    batch_norms_per_slice: int
    random_by_counter: int
    compression: str | None = None  # of gradients, if the plan compresses them: then it may differ

    def rows(self) -> list[dict[str, Any]]:
        """The worst differences."""
        return [_flat(difference) for difference in self.worst]


def _flat(entry) -> dict[str, Any]:
    return {f.name: getattr(entry, f.name) for f in fields(entry)}


def _save(what: str, text: str, path) -> None:
    _expect_text(what, text)
    replace_file(path_of("path", path), text.encode())


def _file(what: str, text: str) -> str:
    _expect_text(what, text)
    return text_file(what, text)


def _expect_text(what: str, text: str) -> None:
    if not text:
        raise InputError(f"{what}: it does not fit in memory, and is no {what} to be run or kept")


def _table(rows: list[dict[str, Any]]) -> str:
    """Rows as HTML; numbers with five digits."""
    if not rows:
        return "<table></table>"
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row.values()) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.5g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
