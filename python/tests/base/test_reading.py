"""Files and texts of others: what is read, within which bounds, and that nothing else reads any."""

import ast
import gzip
import os
import threading
import zlib
from pathlib import Path

import pytest

import heterog
from heterog.base.errors import InputError
from heterog.base.reading import (
    MOST_VALUES, inflated, parse_json, parse_xml, read_bytes, read_json, read_text,
)  # fmt: skip

PACKAGE = Path(heterog.__file__).parent


def refusal(call, *arguments, **options) -> str:
    with pytest.raises(InputError) as refused:
        call(*arguments, **options)
    text = str(refused.value)
    assert text.isprintable() and len(text) < 1500
    return text


# ---- files ----


def test_a_file_is_read_whole(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"\xc3\xa9\n")
    assert read_bytes(path) == b"\xc3\xa9\n" and read_text(path) == "é\n" == read_text(str(path))


def test_what_is_no_file_is_refused(tmp_path):
    assert refusal(read_bytes, tmp_path) == f"{tmp_path}: is a folder, expected a file"
    assert refusal(read_bytes, tmp_path / "b") == f"{tmp_path}/b: No such file or directory"
    assert "embedded null byte" in refusal(read_bytes, "a\0b")
    assert refusal(read_bytes, "/dev/zero", 1000) == "/dev/zero: holds more than 1000 bytes, the most that is read of such a file"
    (tmp_path / "a\x1b[31m\nb").write_text("{")
    assert refusal(read_json, tmp_path / "a\x1b[31m\nb").startswith(f"{tmp_path}/a?[31m?b: no JSON: ")


def test_a_file_that_says_it_is_large_takes_no_memory(tmp_path, memory):
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    assert "holds more than" in refusal(read_bytes, tmp_path / "sparse")
    assert memory() < 1 << 20


def test_a_pipe_is_read(tmp_path):
    """As a shell hands over `<(nvidia-smi topo -m)`."""
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text("said"))
    writer.start()
    assert read_text(tmp_path / "pipe") == "said"
    writer.join()


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "a").write_bytes(b"ab\xff")
    assert refusal(read_text, tmp_path / "a") == f"{tmp_path}/a: is no text in UTF-8 (byte 2)"
    assert read_text(tmp_path / "a", undecodable="replace") == "ab�"


# ---- JSON ----


def test_json_is_what_it_is():
    text = r'{"a": [1, -2.5e3, true, null, "é\n\"[{\\"], "b": {"c": {}}, "big": 18446744073709551616}'
    assert parse_json(text, "f") == {
        "a": [1, -2500.0, True, None, 'é\n"[{\\'], "b": {"c": {}}, "big": 2.0**64,
    }  # fmt: skip
    assert parse_json(b"18446744073709551615", "f") == 2**64 - 1
    assert parse_json("-9223372036854775808", "f") == -(2**63)
    assert isinstance(parse_json("-9223372036854775808", "f"), int)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f: no JSON: Expecting value"),
        ("{", "f: no JSON: Expecting property name"),
        ("[1] 2", "f: no JSON: Extra data"),
        ("[" * 100_000, "f: nested more than 100 levels deep"),
        ("[" * 101 + "]" * 101, "f: nested more than 100 levels deep"),
        ('{"a":' * 101 + "1" + "}" * 101, "f: nested more than 100 levels deep"),
        ("1" + "0" * 5000, "f: no JSON: the number '1000"),
        ("1" + "0" * 400, "f: no JSON: the number '1000"),
        ("[1e999]", "f: no JSON: the number '1e999' is out of range"),
        ("NaN", "f: no JSON: NaN is no number of JSON"),
        ("[-Infinity]", "f: no JSON: -Infinity is no number of JSON"),
        ('{"a": 1, "b": 2, "a": 1}', "f: no JSON: the key 'a' occurs twice in one object"),
        (r'["\ud800"]', "f: is no text in UTF-8 ("),
        (b'["\xff"]', "f: is no text in UTF-8 ("),
        ("\ufeff{}", "f: no JSON: Unexpected UTF-8 BOM"),
        ("// a\n{}", "f: no JSON: Expecting value"),
        ('"' + '\\"' * 100_000, "f: no JSON: Unterminated string"),
        ("]" * 100_000, "f: no JSON: Expecting value"),
        ("[" + "1," * MOST_VALUES + "1]", f"f: holds more than {MOST_VALUES} values"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_json_within_bounds(text, said):
    assert refusal(parse_json, text, "f").startswith(said)


def test_a_hundred_levels_are_read():
    parse_json("[" * 100 + "]" * 100, "f")
    parse_json('"' + "[" * 1000 + '"', "f")
    assert refusal(parse_json, "[[]]", "f", 1) == "f: nested more than 1 levels deep"


def test_surrogates_in_pairs_are_characters():
    assert parse_json(r'"\ud83d\ude42"', "f") == "🙂"


def test_comments_where_they_are_allowed():
    text = '// "a\n{"b": "// no /* comment", /* {"c": \n * / */ "d": 1} // e'
    assert parse_json(text, "f", comments=True) == {"b": "// no /* comment", "d": 1}
    # What is wrong is said to be where the file has it.
    assert "line 2 column 3" in refusal(parse_json, "// one\n [}", "f", comments=True)


def test_what_python_wrote_comes_back():
    text = f"[NaN, -Infinity, {2**127}]"
    found = parse_json(text, "f", python=True)
    assert found[0] != found[0] and found[1:] == [-float("inf"), 2**127]
    assert "no JSON" in refusal(parse_json, "9" * 5000, "f", python=True)


# ---- XML ----


def xml(text: str):
    return parse_xml(text, "f", "a", "`b` prints")


def test_xml_is_a_tree_of_its_root():
    assert xml('$ b\n<a x="1"><c>d</c></a>\n').findtext("c") == "d"
    assert xml('<?xml version="1.0"?><!DOCTYPE a SYSTEM "a.dtd"><a/>').tag == "a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f: no XML: no element found"),
        ("<a>", "f: no XML: "),
        ("<b/>", "f: <b> is not <a>; give what `b` prints"),
        ("<a>" * 5000, "f: no XML: more than 100 levels"),
        ("<a>" + "<b/>" * 200_000 + "</a>", "f: no XML: more than 100 levels or 131072 elements"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "f: it defines entities, which"),
        ("<a>\0</a>", "f: no XML: "),
        ("<a>\ud800</a>", "f: no XML: "),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_what_is_no_xml_within_bounds(text, said):
    assert refusal(xml, text).startswith(said)


# ---- what is compressed ----


def test_what_was_compressed_comes_back():
    data = bytes(range(256)) * 100
    assert inflated(zlib.compress(data), "f", len(data)) == data
    packed = gzip.compress(data)
    assert inflated(packed, "f", 10**6, gzip=True) == data
    assert inflated(packed + packed + bytes(9), "f", 10**6, gzip=True) == data + data


def test_it_unfolds_within_bounds(bomb, memory):
    """64 MB of zeros are 65 kB: no memory is taken for more of them than are allowed."""
    assert refusal(inflated, bomb, "f", 1 << 20) == "f: unfolds to more than 1048576 bytes"
    assert memory() < 4 << 20
    # However much is allowed, no file of ours unfolds to 200 times its size.
    assert "unfolds to more than" in refusal(inflated, bomb, "f", 1 << 30)
    assert memory() < 40 << 20


def test_what_is_damaged_is_refused():
    packed = zlib.compress(b"abc" * 100)
    assert refusal(inflated, packed[:-1], "f", 1000) == "f: ends early, as if cut off"
    assert refusal(inflated, b"", "f", 1000) == "f: ends early, as if cut off"
    assert refusal(inflated, packed + b"x", "f", 1000) == "f: damaged: 1 bytes follow its end"
    assert refusal(inflated, b"abc", "f", 1000).startswith("f: damaged: ")
    assert "follow its end" in refusal(inflated, gzip.compress(b"") * 100_000, "f", 1000, gzip=True)


# ---- nothing else reads ----

# Calls that read or parse what may be another's, by their last names.
READERS = {
    "open", "fdopen", "open_code", "read_text", "read_bytes", "mmap",
    "load", "loads", "raw_decode", "JSONDecoder", "load_file", "safe_open", "fromfile", "loadtxt", "genfromtxt",
    "fromstring", "XML", "XMLParser", "XMLPullParser", "iterparse", "parse", "ParserCreate", "parseString",
    "decompress", "decompressobj", "GzipFile", "ZipFile", "literal_eval", "eval", "exec", "reader", "DictReader",
}  # fmt: skip
# Functions of heterog.base.reading by their bare names, and what modules have as methods.
BARE = {"read_text", "read_bytes"}
METHODS = {"eval", "load"}
MODULES = {"json", "torch", "numpy", "np", "pickle", "marshal", "safetensors", "tomllib", "yaml", "joblib"}
# Where that is no file of others. What is named here and is not found is an error too.
OWN = {
    ("base/reading.py", ""): "the reader",
    ("base/cache_files.py", "open_entry"): "of a cache: its bytes are compared",
    ("base/cache_files.py", "locked"): "opens a lock, reads nothing",
    ("export/cache.py", "_unpack"): "tensors of an entry whose digest is right, by the library of the format",
    ("base/tensor_file.py", "read"): "tensors, by the library of the format",
    ("base/tensor_file.py", "_check"): "tensors: their bytes are counted, none is interpreted",
    ("base/files.py", "put_in_place"): "writes",
    ("base/files.py", "_open_beside"): "writes",
    ("base/files.py", "_sync_folder"): "a folder",
    ("export/graph/writer.py", "pack_graph"): "compresses",
    ("base/run_verb.py", "run_verb"): "what the library has just said",
    ("export/state/installed.py", "_own_sources"): "the sources of this package",
    ("uneven/shares_found.py", "device_name"): "of the system",
    ("uneven/zero_by_memory.py", "_host_memory"): "of the system",
    ("discover/collect.py", "read"): "of the system; it runs alone, on other machines",
    ("discover/hosts.py", "_output"): "hands on a script of this package",
}


def calls(tree: ast.AST, function: str = ""):
    """Each call, with the innermost function of a name that it stands in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call):
            bare, method = getattr(node.func, "id", ""), getattr(node.func, "attr", "")
            text = ast.unparse(node.func)
            of_module = method in READERS and text.partition(".")[0] in MODULES
            if of_module or bare in READERS - BARE or method in READERS - METHODS:
                yield function, node.lineno, text
        named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        yield from calls(node, node.name if named else function)


def test_nothing_else_reads_files_of_others():
    found, used = [], set()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        for function, line, text in calls(ast.parse(path.read_text())):
            places = {(name, function), (name, "")} & OWN.keys()
            used |= places
            if not places:
                found.append(f"{name}:{line} {function}: {text}")
    assert found == [], "read files by heterog.base.reading"
    assert OWN.keys() - used == set()
