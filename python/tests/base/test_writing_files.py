"""Files that are replaced: whole, with the mode of the old one, never through somebody's link."""

import os
import stat

import pytest

from heterog.base.files import put_in_place, replace_file
from heterog.export.graph.writer import write_graph


@pytest.mark.parametrize("write", [replace_file, put_in_place])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_a_replaced_file_leaves_its_mode(tmp_path, write, mode):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    write(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert os.listdir(tmp_path) == ["file"]


def test_a_new_file_has_the_mode_of_any_other(tmp_path):
    (tmp_path / "usual").write_bytes(b"")
    put_in_place(str(tmp_path / "file"), b"new")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_links_in_place_of_temporary_files_are_not_written_through(tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    path = tmp_path / "graph.json.gz"
    for name in [f"{path}.{os.getpid()}.tmp"] + [f"{path}.{os.getpid()}-{i}.tmp" for i in range(5)]:
        os.symlink(tmp_path / "precious", name)
    write_graph({"name": "new"}, path)
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert path.stat().st_size > 0 and not path.is_symlink()


def test_a_link_is_kept_and_its_target_replaced(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    os.symlink(tmp_path / "target", tmp_path / "link")
    put_in_place(str(tmp_path / "link"), b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_a_device_is_written_in_place(tmp_path):
    put_in_place("/dev/null", b"x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_nothing_is_left_where_writing_fails(tmp_path):
    with pytest.raises(OSError):
        put_in_place(str(tmp_path / "none" / "file"), b"x")
    with pytest.raises(OSError):
        put_in_place(str(tmp_path), b"x")
    assert os.listdir(tmp_path) == []
