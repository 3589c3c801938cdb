"""Stages of two devices under torch.distributed.pipelining: the training of one process."""

import json
from pathlib import Path

import engine_cases as cases
import pytest
import torch
from ranks_of_tests import found_by

from heterog.base.errors import InputError
from heterog.engines.handed_over import read_handed_over

shared = found_by(cases.of_replicas)


def check(ranks, whole):
    losses, gradients, parameters = whole
    for one in ranks:
        assert one["losses"] == pytest.approx(losses, rel=1e-12)
        for what, expected in (("gradients", gradients), ("parameters", parameters)):
            for key, value in one[what].items():
                assert (value - expected[key]).norm() <= 1e-12 * expected[key].norm(), (what, key)
    assert set().union(*(one["parameters"] for one in ranks)) == parameters.keys()


@pytest.mark.parametrize("name,schedule", cases.OF_REPLICAS)
def test_replicas_train_as_one_process(shared, name, schedule):
    ranks = [one[name, schedule] for one in shared(5)[1:]]
    check(ranks, cases.whole(name))
    # Replicas stay the same in all bits, and so does what both stages hold.
    for first, second in (ranks[:2], ranks[2:]):
        assert all(torch.equal(first["parameters"][key], second["parameters"][key]) for key in first["parameters"])
    if name == "gpt2":
        assert torch.equal(
            ranks[0]["parameters"]["transformer.wte.weight"], ranks[3]["parameters"]["lm_head.weight"]
        )


def test_labels_that_count_weigh_the_parts(shared):
    check([one["ignored"] for one in shared(5)[1:]], cases.whole("llama", ignore=True))


def test_gradients_of_before_are_added(shared):
    for one in shared(5)[1:]:
        assert max(one["twice"].values()) <= 1e-14


def test_what_does_not_fit_is_one_line(shared):
    for one in shared(5)[1:]:
        said = one["refused"]
        assert "3 stages of 2 devices each; start 6 processes, one a device, not 4" in said["ranks"]
        assert "count: 0 of the whole batch; expected a number above 0" in said["count"]


@pytest.mark.parametrize(
    "changed,said",
    [
        ({"samples": [2, 1]}, "samples: 3 together; expected the 2 of a micro-batch"),
        ({"samples": [2, 0]}, "samples[1]: expected a whole number from 1 to 2"),
        ({"stages": [{"devices": []}]}, "stages[0].devices: 0; expected 1, one for each of `samples`"),
        ({"version": 1}, "version: expected 2"),
        ({"gathers": []}, "unknown field 'gathers'; expected what this version's hand-over writes"),
    ],
)
def test_files_that_are_not_understood_are_refused(tmp_path, changed, said):
    path = Path(cases.handed_over(tmp_path, "llama", 2, "Schedule1F1B"))
    assert read_handed_over(path).samples == (2,)
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(InputError) as error:
        read_handed_over(path)
    assert said in str(error.value)
