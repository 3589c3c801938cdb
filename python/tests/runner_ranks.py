"""One rank of a runner of processes, started by torchrun: PLANNER CACHE FOLDER DATA TRANSPORT
[OPTIMIZER]."""

import os
import signal
import sys
from pathlib import Path

import torch
from optimizer_cases import maker
from runner_cases import BATCH, CASES, batches

import heterog
from heterog.export import step

planner, cache, folder, data, transport, *optimizer = sys.argv[1:]
case = CASES["mlp"]
if optimizer:
    case.optimizer = maker(*optimizer)
if cache == "none":
    cache = False
exports = step._made


def made(job):
    with open(f"{folder}/exports", "a") as file:
        file.write("one\n")
    return exports(job)


step._made = made
settings = {"batch": BATCH, "planner": planner, "cache": cache, "double": True}
settings["transport"] = transport
settings["timeout"] = 600.0 if "raises" in data else 300.0
rank = int(os.environ["RANK"])
torch.manual_seed(11 + rank)  # rank 0's weights are everybody's
model = case.model()
optimizer = case.optimizer(list(model.parameters()))
if data == "loader raises":  # on rank 1, which catches it and leaves

    def loader():
        yield from batches(case, 2)
        if rank == 1:
            raise ValueError("of its own making")
        yield from batches(case, 2) * 500

    runner = heterog.get_runner(
        model, case.make_inputs, case.loss_fn, optimizer, "cpu:2", settings
    )
    try:
        runner.run(1000, loader())
    except ValueError as error:
        sys.exit(f"caught ValueError: {error}")
if data in ("raises", "is killed"):  # no `with`: the end of the process ends the run
    runner = heterog.get_runner(
        model, case.make_inputs, case.loss_fn, optimizer, "cpu:2", settings
    )
    runner.run(2)
    if rank == 1 and data == "raises":
        raise ValueError("of its own making")
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    runner.run(1000)
with heterog.get_runner(
    model, case.make_inputs, case.loss_fn, optimizer, "cpu:2", settings
) as runner:
    assert runner.rank == rank and runner.ranks == 2
    given = batches(case, 4)
    if data == "apart" and rank == 1:
        given.reverse()
    if data in ("sizes", "sizes apart"):  # the last of an epoch
        given = [given[0], tuple(x[:7] for x in given[1]), tuple(x[:2] for x in given[2]), given[3]]
    if data == "sizes apart" and rank == 1:
        given[1] = tuple(x[:6] for x in given[1])
    if data == "ahead":  # as on GPUs; one of rank 1's functions may change something, and rank 0 follows
        runner._on_gpus = True
        calls = []
        launch, finish = runner._native.launch, runner._native.finish
        runner._native.launch = lambda *given: calls.append("launch") or launch(*given)
        runner._native.finish = lambda: calls.append("finish") or finish()
        losses = runner.run(2, given[:2], on_step=heterog.StepLines(runner))
        assert calls == ["launch", "launch", "finish", "finish"]
        changes = [] if rank == 0 else [lambda number, loss: None]
        losses += runner.run(2, given[2:], on_step=changes)
        assert calls[4:] == ["launch", "finish"] * 2
    else:
        losses = [runner.step(batch) for batch in given]
    if data == "look":  # rank 0 alone would ask ranks that do not listen
        parameter = next(iter(model.parameters()))
        try:
            parameter.sum().item()
        except heterog.HeterogError as error:
            Path(f"{folder}/look{rank}").write_text(str(error))
        runner.sync_to_model()
        torch.save(parameter.detach().clone(), f"{folder}/looked{rank}.pt")
    runner.save(f"{folder}/at.safetensors")
    found = {
        "losses": losses,
        "state": runner.state_dict(),
        "optimizer": runner.optimizer_state_dict(),
    }
    torch.save(found, f"{folder}/rank{rank}.pt")
# Another one in the same processes.
with heterog.get_runner(
    model, case.make_inputs, case.loss_fn, optimizer, "cpu:2", settings
) as runner:
    runner.load(f"{folder}/at.safetensors")
    assert runner.steps_done == 4
    runner.run(1)
