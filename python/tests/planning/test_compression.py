"""Compressed gradients from end to end: what is planned, what files say, what verify makes of it."""

import json

import pytest
import runner_support  # noqa: F401  skips where nothing is built
from program import ROOT, error_of_program, run_program, started

import heterog

TINY = str(ROOT / "models/bert_large24-tiny.json.gz")
LENET = str(ROOT / "models/lenet5-tiny.json.gz")
TWO = str(ROOT / "configs/clusters/local-2cpu.json")
SLOW = str(ROOT / "configs/clusters/autosync-b7.json")


def refused(words: list[str], code: int) -> str:
    done = started(words)
    assert done.returncode == code
    return error_of_program(done)


def bytes_on_links(simulation) -> int:
    return sum(link.bytes for link in simulation.links)


@pytest.mark.parametrize("planner", ["ev-ar", "ev-ps", "horovod:state=sharded"])
def test_a_plan_moves_fewer_bytes_and_says_so(planner, tmp_path):
    plain = heterog.plan(TINY, SLOW, 64, planner=planner)
    half = heterog.plan(TINY, SLOW, 64, planner=planner, compress="bf16")
    assert plain.simulation.compression is None and "compression" not in json.loads(plain.text)
    assert half.simulation.compression == json.loads(half.text)["compression"] == "bf16"
    assert bytes_on_links(half.simulation) < bytes_on_links(plain.simulation)
    half.save(tmp_path / "plan.json")
    # Whoever reads the file does as it says.
    again = heterog.simulate(TINY, SLOW, tmp_path / "plan.json", check=True)
    assert again.checked and again.step_seconds == half.step_seconds
    assert again.links == half.simulation.links


def test_all_reduced_bytes_are_halved():
    plain = heterog.plan(LENET, SLOW, 64, planner="ev-ar")
    half = heterog.plan(LENET, SLOW, 64, planner="ev-ar", compress="fp16,feedback")
    low = heterog.plan(LENET, SLOW, 64, planner="ev-ar", compress="powersgd:rank=1")
    # All gradients are float32; collectives hold links for whole nanoseconds.
    ratio = bytes_on_links(half.simulation) / bytes_on_links(plain.simulation)
    assert ratio == pytest.approx(0.5, rel=0.01)
    assert bytes_on_links(low.simulation) < bytes_on_links(half.simulation)
    device = half.simulation.devices[0].memory
    assert device.optimizer_state_bytes > plain.simulation.devices[0].memory.optimizer_state_bytes


@pytest.mark.parametrize(
    "compress,planner,least,most",
    [
        ("fp16", "ev-ar", 1e-6, 1e-2),
        ("bf16,feedback", "ev-ps", 1e-5, 5e-2),
        ("bf16", "horovod:state=sharded", 1e-5, 5e-2),
        ("powersgd:rank=1", "ev-ar", 1e-3, 10),
    ],
)
def test_verify_takes_it_if_told_to(compress, planner, least, most):
    plan = heterog.plan(LENET, TWO, 8, planner=planner, compress=compress)
    with pytest.raises(heterog.RunFailed) as failed:
        heterog.verify(LENET, TWO, plan, steps=1)
    assert f"it compresses gradients by {plan.simulation.compression}" in str(failed.value)
    assert "--lossy accepts that" in str(failed.value)
    assert not failed.value.result.passed
    lossy = heterog.verify(LENET, TWO, plan, steps=1, lossy=True)
    assert lossy.passed and lossy.compression == plan.simulation.compression
    assert least < max(worst.relative for worst in lossy.worst if worst.kind == "gradient") < most
    with pytest.raises(heterog.RunFailed):
        heterog.verify(LENET, TWO, plan, steps=1, lossy=True, tolerance=least / 1e3)


def test_lossy_excuses_compression_alone():
    words = ["verify", "--graph", LENET, "--cluster", TWO, "--batch", "8", "--planner", "ev-ar"]
    assert run_program([*words, "--lossy", "--steps", "1"])["passed"]
    broken = refused([*words, "--lossy", "--break", "drop-contribution"], 4)
    assert "does not train as one device" in broken and "--lossy" not in broken


@pytest.mark.parametrize("transport", ["tcp", "gloo"])
@pytest.mark.parametrize("compress", ["fp16", "bf16", "powersgd:rank=2"])
def test_processes_sum_as_threads_do(transport, compress):
    words = ["verify", "--graph", LENET, "--cluster", TWO, "--batch", "8", "--planner", "ev-ar"]
    words += ["--compress", compress, "--steps", "2", "--lossy"]
    threads = run_program(words)
    processes = run_program([*words, "--processes", "--transport", transport])
    found = [{worst["kind"]: worst["relative"] for worst in one["worst"]} for one in (threads, processes)]
    # Two addends: their sum is rounded once, whoever makes it.
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(heterog.InputError, match=r'--compress: "fp61" given \(did you mean fp16\?\)'):
        heterog.plan(LENET, TWO, 8, compress="fp61")
    with pytest.raises(heterog.InputError, match=r'--compress: rank: "0" given; it is an integer from 1'):
        heterog.plan(LENET, TWO, 8, compress="powersgd:rank=0")
    with pytest.raises(heterog.InputError, match="--compress: of rank 1000 no gradient of lenet5-tiny"):
        heterog.plan(LENET, TWO, 8, compress="powersgd:rank=1000")
    with pytest.raises(heterog.InputError, match="nothing is lost that could be fed back"):
        heterog.plan(LENET, TWO, 8, compress="none,feedback")
    with pytest.raises(heterog.InputError, match="--compress: given beside --for"):
        heterog.plan(LENET, TWO, 8, engine="ddp", compress="fp16")


def test_a_plan_is_not_made_for_another_compression(tmp_path):
    plan = heterog.plan(LENET, TWO, 8, planner="ev-ar", compress="fp16")
    plan.save(tmp_path / "plan.json")
    words = ["verify", "--graph", LENET, "--cluster", TWO, "--plan", str(tmp_path / "plan.json")]
    assert "--compress: bf16 given, " in refused([*words, "--compress", "bf16"], 2)
    words = ["hand-over", *words[1:], "--to", "ddp", "--out", str(tmp_path / "handed")]
    assert "compression: fp16, which is not handed over" in refused(words, 2)
