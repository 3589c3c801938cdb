"""Fixtures of the tests of heterog.get_runner, and what all tests count on."""

import signal
import tracemalloc
import zlib

import pytest


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """Ctrl-C ends what tests start, also where a shell started them in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def make(cache):
    """Runners of a case, closed at the end."""
    # Not above: other tests need neither the library nor these modules.
    from runner_cases import BATCH, CASES, DEVICES, build
    from runner_support import UNEVEN, with_shares

    import heterog

    made = []

    def make(name, planner="ev-ar", devices=DEVICES, **config):
        case = CASES[name]
        if planner in UNEVEN:
            config["plan"] = with_shares(make(name, UNEVEN[planner], devices, **config).plan_path)
        model, optimizer = build(case)
        settings = {
            "batch": BATCH, "planner": planner, "cache": cache, "double": True, "threads": 1,
            "any_device": True,
        }  # fmt: skip
        runner = heterog.get_runner(
            model,
            case.make_inputs,
            case.loss_fn,
            optimizer,
            devices,
            settings | case.config | config,
        )
        made.append(runner)
        return runner

    yield make
    for runner in made:
        runner.close()


@pytest.fixture
def memory():
    """The most bytes that Python has had at a time since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.fixture
def bomb() -> bytes:
    """65 kB that unfold to 64 MB; made in pieces."""
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
