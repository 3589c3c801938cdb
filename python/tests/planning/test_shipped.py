"""Graphs and clusters that come with heterog, by name, from any folder."""

import json

import pytest
from heterog.planning.devices import cluster_file

import heterog


def test_plans_for_a_model_and_a_cluster_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = heterog.plan("lenet5-tiny", "office-mixed", batch=16, planner="ev-ar")
    assert len(plan.rows()) == 7
    path = "configs/clusters/office-mixed.json"
    again = heterog.plan("models/lenet5-tiny.json.gz", path, batch=16, planner="ev-ar")
    assert again.text == plan.text


def test_what_is_here_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = {"format": "heterog-cluster", "version": 1, "name": "mine", "machines": [
        {"name": "m", "devices": [{"model": "T4", "count": 2}], "fabric": {"kind": "switch", "link": "pcie3"}}]}  # fmt: skip
    (tmp_path / "office-mixed").write_text(json.dumps(one))
    assert len(heterog.plan("lenet5-tiny", "office-mixed", batch=16, planner="ev-ar").rows()) == 2
    with open(cluster_file("office-mixed", tmp_path / "cache")) as file:
        assert json.load(file) == one


def test_a_runner_takes_a_cluster_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open(cluster_file("local-2cpu", tmp_path / "cache")) as file:
        assert '"local-2cpu"' in file.read()


def test_a_name_of_nothing_is_refused_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(heterog.InputError, match="^vgg18: cannot open"):
        heterog.plan("vgg18", "office-mixed", batch=16)
    with pytest.raises(heterog.InputError, match="^heterog-9gpu: cannot open"):
        heterog.plan("vgg19", "heterog-9gpu", batch=16)
    with pytest.raises(heterog.InputError, match="heterog-9gpu: no such file"):
        cluster_file("heterog-9gpu", tmp_path)
