"""heterog.time_ddp: what a plain script's steps take, by a made-up clock that passes put on."""

import json
from pathlib import Path

import pytest
from ranks_of_tests import run_script

from heterog.profiles.timings import Step, read_timings

TESTS = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("kind", ["loss", "update"])
def test_what_each_rank_took_is_written(tmp_path, kind):
    file = tmp_path / "timings.json"
    done = run_script(TESTS / "slowed.py", 2, tmp_path, str(TESTS / "timed_steps.py"), str(file), kind)
    assert done.code == 0, done.said
    # Rank 0 takes a second a sample, rank 1 two and a half; a step waits for the slower.
    timings = read_timings(file)
    assert [rank.seconds for rank in timings.ranks] == [{8: 8.0, 4: 4.0}, {6: 15.0}]
    assert timings.steps == (Step((8, 6), 15.0),)
    assert timings.gradient_bytes == 4 * (3 * 5 + 5 + 5 + 5 + 5 * 2 + 2)
    assert timings.update == (kind == "update")
    assert json.loads(file.read_text())["all_reduce_seconds"] == 0  # nothing puts the clock on
    assert "8000.0 ms for 8 samples, 4000.0 ms for 4 samples; rank 1" in done.said
    assert done.said.count("untouched: True") == 2
    assert ("lines: 1" in done.said, "lines: 0" in done.said) == (True, True)
    for said in (
        "none: batches: expected batches by their numbers of samples, as {48: batch}",
        "list: batches: expected batches by their numbers of samples",
        "size: batches: '8'; expected a number of samples, 1 or more",
        "model: model: Sequential; wrap the model in DistributedDataParallel",
        f"nowhere: {file}/nowhere cannot be written: Not a directory",
    ):
        assert done.said.count(said) == 2, said
