"""The verbs of `heterog` as functions: they plan, simulate, compare, explain and verify in this
process.

A verb is the same code here and in the program: the same options in the same ranges, the same
results to the bit, the same line where something is refused. Arguments that are None are left to
the verb's default, which `heterog VERB --help` names.
"""

import os
import tempfile
from collections.abc import Sequence
from typing import Any, TypeAlias

from heterog.base.cache_files import folder_of_process
from heterog.base.errors import NothingFits, RunFailed
from heterog.base.given import Devices, FilePath, Profiles
from heterog.base.reading import MOST_WRITTEN_BYTES, read_text
from heterog.base.run_verb import run_verb
from heterog.export.training_step import TrainingStep
from heterog.planning.problem import Problem, make_problem, options, path_of
from heterog.planning.results import (
    Comparison,
    Explanation,
    Plan,
    Shares,
    Simulation,
    Verification,
    made,
)

Graph: TypeAlias = FilePath | TrainingStep | dict[str, Any]


def plan(
    graph: Graph,
    cluster: Devices,
    batch: int,
    *,
    planner: str | None = None,
    engine: str | None = None,
    start: FilePath | None = None,
    budget: float | None = None,
    evaluations: int | None = None,
    policy: FilePath | None = None,
    accumulate: int | None = None,
    order_rounds: int | None = None,
    profiles: Profiles = (),
    collectives: str | None = None,
    compress: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
    out: FilePath | None = None,
    trace: FilePath | None = None,
) -> Plan:
    """Finds a plan for a training step on devices.

    graph         the path of a graph, the name of one of the zoo, a TrainingStep
                  (export_training_step), or the dict of a graph
    cluster       the path of a cluster file, or the name of a shipped one; "cpu:2"; a list of device
                  models, as ["T4", "P100"], all in one host; or a dict of what a cluster file holds
    batch         samples of one step, over all devices
    planner       one of `heterog planners`, with options as "NAME:option=value,option=value"; the
                  portfolio if None
    engine        plan what this engine can say: "ddp", "fsdp2", "torch-pipelining", "torchtitan" or
                  "megatron"; what the planner finds is then the result's `free`
    start         a Plan, or the path of a plan file, for other devices or another batch: carry it
                  over and improve it (docs/replanning.md)
    budget        go on for so many seconds
    evaluations   go on for so many simulated plans: the same plan every time
    policy        checkpoint of planner "policy"; the shipped one if None
    accumulate    accumulate gradients over so many micro-batches
    order_rounds  improve the order of what the planner found, in so many rounds
    profiles      measured costs (`heterog profile`), one file a type of device
    collectives   "per-device": all-reduces of disjoint devices may overlap; "serial": none may
    compress      compress gradients on their way, which changes the training (docs/compression.md):
                  "fp16", "bf16", either with ",feedback" behind it, or "powersgd:rank=R"
    seed          of everything random
    threads       that simulate plans; the result does not depend on it
    out           also writes the plan file here
    trace         also writes a Chrome trace of the simulated step here

    Raises NothingFits if no plan fits in memory; its `result` is the closest one.
    """
    problem = make_problem(graph, cluster, profiles, collectives)
    with tempfile.TemporaryDirectory(dir=folder_of_process()) as folder:
        file = path_of("out", out) if out is not None else os.path.join(folder, "plan.json")
        words = ["plan", *problem.arguments(), f"--out={file}"]
        words += options(
            batch=batch,
            planner=planner,
            **{"for": engine, "from": start},
            budget=budget,
            evaluations=evaluations,
            policy=policy,
            accumulate=accumulate,
            order_rounds=order_rounds,
            compress=compress,
            seed=seed,
            threads=threads,
            trace=trace,
        )
        try:
            found = run_verb(words)
        except NothingFits as error:
            error.result = error.result and _plan(problem, error.result, "")
            raise
        return _plan(problem, found, read_text(file, MOST_WRITTEN_BYTES))


def _plan(problem: Problem, found: dict, text: str) -> Plan:
    return made(Plan, found, problem=problem, text=text, simulation=made(Simulation, found))


def simulate(
    graph: Graph,
    cluster: Devices,
    plan: FilePath,
    *,
    order: str | None = None,
    accumulate: int | None = None,
    check: bool = False,
    profiles: Profiles = (),
    collectives: str | None = None,
    trace: FilePath | None = None,
    dump: FilePath | None = None,
) -> Simulation:
    """Predicts step time and memory of a plan.

    graph, cluster, profiles, collectives
                  as of plan()
    plan          a Plan, or the path of a plan file
    order         "rank", "rank-queued" or "fifo", in place of the plan's own
    accumulate    accumulate gradients over so many micro-batches
    check         prove the simulated step, too: RunFailed if it is no schedule of the plan
    trace         writes a Chrome trace of the step here
    dump          writes the compiled plan here: NAME.txt or NAME.dot

    A plan that does not fit in memory is a result, whose `feasible` is False.
    """
    problem = make_problem(graph, cluster, profiles, collectives)
    words = ["simulate", *problem.arguments(), f"--plan={path_of('plan', plan)}"]
    words += options(order=order, accumulate=accumulate, check=check, trace=trace, dump=dump)
    return made(Simulation, run_verb(words))


def explain(
    graph: Graph,
    cluster: Devices,
    plan: FilePath,
    *,
    order: str | None = None,
    profiles: Profiles = (),
    collectives: str | None = None,
) -> Explanation:
    """Says why a plan's step takes as long as it does (docs/explain.md).

    The arguments are those of simulate().
    """
    problem = make_problem(graph, cluster, profiles, collectives)
    words = ["explain", *problem.arguments(), f"--plan={path_of('plan', plan)}"]
    return made(Explanation, run_verb(words + options(order=order)))


def compare(
    graph: Graph,
    cluster: Devices,
    batch: int,
    *,
    planners: Sequence[str] = (),
    policy: FilePath | None = None,
    budget: float | None = None,
    evaluations: int | None = None,
    profiles: Profiles = (),
    collectives: str | None = None,
    compress: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> Comparison:
    """Sets planners side by side on one problem.

    planners      those to compare with the baselines; all of them if none is named
    budget, evaluations
                  of each planner

    The other arguments are those of plan().
    """
    problem = make_problem(graph, cluster, profiles, collectives)
    words = ["compare", *problem.arguments()]
    for planner in [planners] if isinstance(planners, str) else planners:
        words += options(planner=planner)
    words += options(
        batch=batch,
        policy=policy,
        budget=budget,
        evaluations=evaluations,
        compress=compress,
        seed=seed,
        threads=threads,
    )
    return made(Comparison, run_verb(words))


def shares(
    graph: Graph,
    cluster: Devices,
    batch: int,
    *,
    planner: str | None = None,
    budget: float | None = None,
    evaluations: int | None = None,
    profiles: Profiles = (),
    collectives: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
    out: FilePath | None = None,
) -> Shares:
    """How many samples each rank of plain data parallelism should take (docs/shares.md).

    planner       "search" (the best that is found), "ev-ar" (even) or "cp-ar" (in proportion to
                  speed)
    out           also writes the file of shares here

    The other arguments are those of plan(). Raises NothingFits if no shares fit in memory; its
    `result` is the closest.
    """
    problem = make_problem(graph, cluster, profiles, collectives)
    with tempfile.TemporaryDirectory(dir=folder_of_process()) as folder:
        file = path_of("out", out) if out is not None else os.path.join(folder, "shares.json")
        words = ["shares", *problem.arguments(), f"--out={file}"]
        words += options(
            batch=batch,
            planner=planner,
            budget=budget,
            evaluations=evaluations,
            seed=seed,
            threads=threads,
        )
        try:
            found = run_verb(words)
        except NothingFits as error:
            error.result = error.result and made(Shares, error.result, text="")
            raise
        return made(Shares, found, text=read_text(file, MOST_WRITTEN_BYTES))


def verify(
    graph: Graph,
    cluster: Devices,
    plan: FilePath | None = None,
    *,
    planner: str | None = None,
    batch: int | None = None,
    at_batch: int | None = None,
    accumulate: int | None = None,
    steps: int | None = None,
    dtype: str | None = None,
    devices: str | None = None,
    tolerance: float | None = None,
    lossy: bool = False,
    compress: str | None = None,
    profiles: Profiles = (),
    collectives: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> Verification:
    """Proves that a plan trains as one device does (docs/verifying.md), on random data.

    plan          a Plan, or the path of a plan file; or
    planner       whose plan it is, for `batch` samples
    at_batch      runs the plan at this number of samples; that it was made for if None
    accumulate    accumulate gradients over so many micro-batches
    steps         to train
    dtype         "float64", or "float32": the graph's own types
    devices       "cpu": all ranks on the CPU; "plan": each on the kind of device that the plan names
    tolerance     the largest relative difference; 1e-10 in float64 and 1e-4 in float32 if None
    lossy         of a plan that compresses gradients: accept that it differs, with `tolerance` up to
                  that
    compress      with `planner`: as of plan()

    The other arguments are those of plan(). Ranks are threads of this process. Raises RunFailed if
    anything differs by more; its `result` says what.
    """
    problem = make_problem(graph, cluster, profiles, collectives)
    words = ["verify", *problem.arguments()]
    words += options(
        plan=None if plan is None else path_of("plan", plan),
        planner=planner,
        batch=batch,
        at_batch=at_batch,
        accumulate=accumulate,
        steps=steps,
        dtype=dtype,
        devices=devices,
        tolerance=tolerance,
        lossy=lossy,
        compress=compress,
        seed=seed,
        threads=threads,
    )
    try:
        return made(Verification, run_verb(words))
    except RunFailed as error:
        error.result = error.result and made(Verification, error.result)
        raise
