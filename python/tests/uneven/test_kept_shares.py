"""The file of what auto_shares measured: read as it was written, and refused where it makes no sense."""

import dataclasses
import json

import pytest

from heterog import InputError, RunFailed
from heterog.uneven.fair_shares import StepTime
from heterog.uneven.kept_shares import Training, read_kept, write_kept
from heterog.uneven.shares_found import Found

ONE = Training(16, 1, 64, ("card", "cpu"), 1)
ACCUMULATED = Training(16, 8, 64, ("card", "cpu"), 2)


def found(micro) -> Found:
    times = [StepTime(0.1, 0.2, 14, micro), StepTime(0.0, 0.6, None, micro)]
    return Found([12, 4], [8, 8], ["card", "cpu"], times, 2.5, 1.7, 1.6, 64, 0.01, micro and 1)


def test_of_a_sharded_model_all_ranks_have_as_many_passes(tmp_path):
    training = Training(16, 8, 64, ("card", "cpu"), 2, together=True)
    times = [StepTime(0.1, 0.2, 14, None, 8), StepTime(0.0, 0.6, None, None, 8)]
    given = dataclasses.replace(found(None), times=times, together=True)
    write_kept(tmp_path / "kept.json", given, training)
    assert read_kept(tmp_path / "kept.json", training) == given


@pytest.mark.parametrize(("micro", "training"), [(None, ONE), (2, ACCUMULATED)])
def test_what_is_written_is_read(tmp_path, micro, training):
    assert read_kept(tmp_path / "kept.json", training) is None
    write_kept(tmp_path / "kept.json", found(micro), training)
    assert read_kept(tmp_path / "kept.json", training) == found(micro)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "heterog-shares"}, "format: expected 'heterog-measured-shares'"),
        ({"version": 2}, "version: expected 1, found 2"),
        ({"batch": 32}, "batch: measured with 32, this training has 16"),
        ({"accumulate": 4}, "accumulate: measured with 4, this training has 1"),
        ({"together": True}, "together: measured with true, this training has false"),
        ({"gradient_bytes": 65}, "gradient_bytes: measured with 65"),
        ({"gradient_bytes": "64"}, "gradient_bytes: expected a whole number"),
        ({"even_seconds": 0}, "even_seconds: expected more than 0"),
        ({"step_seconds": -1}, "step_seconds: expected a number of at least 0"),
        ({"ranks": []}, "ranks: measured with 0, this training has 2"),
        ({"ranks": {}}, "ranks: expected a list"),
    ],
)
def test_other_fields_are_refused(tmp_path, change, said):
    _refused(tmp_path, lambda fields: fields.update(change), said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"device": "gpu"}, r"ranks\[1\].device: measured with 'gpu', this training has 'cpu'"),
        ({"samples": 0}, r"ranks\[1\].samples: expected a whole number from 1"),
        ({"samples": 5}, "the samples of all ranks are 17, expected 16"),
        ({"even_samples": 7}, "the even_samples of all ranks are 15"),
        ({"micro": 2}, r"ranks\[1\].micro: expected null, of no accumulation, found 2"),
        ({"most": 3}, r"ranks\[1\].most: expected at least 4"),
        ({"sample_seconds": 0}, r"ranks\[1\].sample_seconds: expected more than 0"),
        ({"pass_seconds": None}, r"ranks\[1\].pass_seconds: expected a number of at least 0, found null"),
    ],
)
def test_other_ranks_are_refused(tmp_path, change, said):
    _refused(tmp_path, lambda fields: fields["ranks"][1].update(change), said)


def _refused(folder, change, said) -> None:
    path = folder / "kept.json"
    write_kept(path, found(None), ONE)
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))
    with pytest.raises(InputError, match=said):
        read_kept(path, ONE)


def test_a_missing_field_is_named(tmp_path):
    _refused(tmp_path, lambda fields: fields.pop("batch"), 'the field "batch" is missing')
    _refused(tmp_path, lambda fields: fields["ranks"][1].pop("most"), 'the field "most" is missing')


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(RunFailed, match="cannot be written"):
        write_kept(tmp_path / "none" / "kept.json", found(None), ONE)
