"""What is kept in a cache is compared before it is used, and made anew where it is not what it was."""

import hashlib
import os
import stat
from types import SimpleNamespace

import pytest
from discover_support import GRAPH
from program import find_program

from heterog.base import cache_files
from heterog.base.cache_files import digest_of, kept, locked, make_cache_folder
from heterog.base.errors import HeterogError
from heterog.export import cache as export_cache
from heterog.export.graph.writer import pack_graph, read_graph
from heterog.run.config import RunnerConfig
from heterog.run.prepare import make_files


def mode(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_folder_that_is_made_is_the_users_alone(tmp_path):
    old = os.umask(0)
    try:
        assert mode(make_cache_folder(tmp_path / "a/b")) == 0o700
        (tmp_path / "c").mkdir(mode=0o755)
        assert mode(make_cache_folder(tmp_path / "c")) == 0o755  # one that is given stays
    finally:
        os.umask(old)
    with pytest.raises(HeterogError, match="cannot be made: "):
        make_cache_folder("a\0b")


@pytest.mark.parametrize("stands", ["nothing", "the same", "less", "more", "another", "a link", "dangling", "a pipe"])
def test_an_entry_is_a_plain_file_with_these_bytes(stands, tmp_path):
    path, victim = tmp_path / "entry", tmp_path / "victim"
    victim.write_bytes(b"mine")
    if stands in ("the same", "less", "more", "another"):
        path.write_bytes({"the same": b"bytes", "less": b"byte", "more": b"bytes!", "another": b"bytEs"}[stands])
    elif stands == "a pipe":
        os.mkfifo(path)
    elif stands != "nothing":
        path.symlink_to(victim if stands == "a link" else tmp_path / "nowhere")
    before = os.lstat(path).st_ino if stands == "the same" else None
    assert kept(path, b"bytes") == str(path)
    assert path.read_bytes() == b"bytes" and stat.S_ISREG(os.lstat(path).st_mode)
    assert before in (None, os.lstat(path).st_ino)  # what is there already is not written again
    assert victim.read_bytes() == b"mine" and not (tmp_path / "nowhere").exists()
    assert sorted(os.listdir(tmp_path)) == ["entry", "victim"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_somebody_else_wrote_is_not_taken(tmp_path):
    path = tmp_path / "entry"
    path.write_bytes(b"bytes")
    assert digest_of(path) == hashlib.sha256(b"bytes").hexdigest()
    os.chown(path, 12345, 12345)
    assert digest_of(path) is None
    os.chown(tmp_path, 12345, 12345)  # the folder's owner could do anything anyway
    assert digest_of(path) is not None


def test_a_lock_is_no_link(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(cache_files, "say_once", said.append)
    with locked(tmp_path / "a.lock"):
        assert mode(tmp_path / "a.lock") == 0o600
    (tmp_path / "b.lock").symlink_to(tmp_path / "nowhere")
    done = False
    with locked(tmp_path / "b.lock"):
        done = True
    assert done and not (tmp_path / "nowhere").exists()
    assert len(said) == 1 and "b.lock: cannot be locked" in said[0]


# ---- what get_runner keeps ----


@pytest.fixture(scope="module")
def step():
    return SimpleNamespace(graph=read_graph(GRAPH), constants={})


def files(step, cache):
    try:
        find_program()
    except HeterogError as missing:
        pytest.skip(str(missing))
    return make_files([step], "cpu:2", RunnerConfig(batch=8, cache=str(cache), planner="ev-ar"))


def contents(cache) -> dict[str, bytes]:
    found = [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(path.relative_to(cache)): path.read_bytes() for path in found}


def test_a_graph_that_was_altered_is_not_trained_on(step, tmp_path):
    made = files(step, tmp_path)
    whole = contents(tmp_path)
    other = dict(step.graph)
    other["ops"] = [op | {"args": [0.5 if arg == 1 else arg for arg in op["args"]]} for op in other["ops"]]
    (graph,) = made.graphs
    with open(graph, "wb") as file:
        file.write(pack_graph(other))  # one that can be read
    assert files(step, tmp_path) == made
    assert contents(tmp_path) == whole


@pytest.mark.parametrize("damage", ["a byte", "cut", "empty", "a link"])
def test_every_entry_that_was_damaged_is_made_anew(step, damage, tmp_path):
    cache = tmp_path / "cache"
    made = files(step, cache)
    whole = contents(cache)
    assert len(whole) == 6  # graph, plan and its digest, cluster and its two data bases
    for name, data in whole.items():
        path = cache / name
        path.unlink()
        if damage == "a link":
            path.symlink_to(tmp_path / "nowhere")
        else:
            path.write_bytes({"a byte": bytes([data[0] ^ 1]) + data[1:], "cut": data[:-1], "empty": b""}[damage])
    assert files(step, cache) == made
    assert contents(cache) == whole and not (tmp_path / "nowhere").exists()
    assert not any(path.is_symlink() for path in cache.rglob("*"))


def test_a_cluster_is_written_through_no_link(step, tmp_path):
    cache, victim = tmp_path / "cache", tmp_path / "victim"
    made = files(step, cache)
    folder = os.path.dirname(made.cluster)
    victim.mkdir()
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)
    os.symlink(victim, folder)
    assert files(step, cache) == made
    assert os.listdir(victim) == [] and not os.path.islink(folder)


# ---- exported steps ----


def test_an_export_unfolds_within_bounds(tmp_path, bomb, memory):
    """Of 64 MB of zeros, whose digest is right."""
    path = tmp_path / "export-x.bin"
    digest = hashlib.sha256(bomb).hexdigest()
    path.write_bytes(f"heterog-export 2 {digest} {len(bomb):012d}\n".encode() + bomb)
    assert export_cache._read(path, "x") is None
    assert memory() < 32 << 20


def test_a_size_that_is_not_there_takes_no_memory(tmp_path, memory):
    path = tmp_path / "export-x.bin"
    with open(path, "wb") as file:
        file.write(f"heterog-export 2 {'0' * 64} {10**12 - 1}\n".encode())
        file.truncate(900 << 20)
    assert export_cache._read(path, "x") is None
    assert memory() < 4 << 20
