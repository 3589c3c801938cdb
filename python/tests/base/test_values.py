"""What others wrote: which values and names are taken, and what is said of the others."""

import json
import math

import pytest
from discover_support import ROOT

from heterog.base.errors import InputError
from heterog.base.values import (
    as_bool, as_int, as_list, as_number, as_object, as_string, check_format, host_name, is_file_name,
    is_host_name, number_in, shown, whole_in,
)  # fmt: skip

NAMES = json.loads((ROOT / "tests/data/names.json").read_text())


@pytest.mark.parametrize(("kind", "holds"), [("hosts", is_host_name), ("files", is_file_name)])
def test_names_are_those_of_the_table(kind, holds):
    """The table that the C++ readers are tested with, too (tests/base/names_test.cc)."""
    assert [name for name in NAMES[kind]["accepted"] if not holds(name)] == []
    assert [name for name in NAMES[kind]["refused"] if holds(name)] == []


def test_a_host_that_is_none_is_shown_in_one_line():
    assert host_name("root@gpu1", "--hosts") == "root@gpu1"
    with pytest.raises(InputError, match=r"^--hosts: '-oProxyCommand=x\\n' is no name of a host: \[USER@\]NAME"):
        host_name("-oProxyCommand=x\n", "--hosts")


def test_whole_numbers():
    assert as_int(7, "f", 0, 10) == 7
    assert as_int(16e9, "f", 0, 2**40) == 16 * 10**9  # as C++ reads it
    for value in (11, -1, 0.5, 1e300, math.nan, True, "7", None, [7], 10**400, 2.0**60):
        with pytest.raises(InputError, match="^f: expected a whole number from 0 to 10, found "):
            as_int(value, "f", 0, 10)


def test_numbers():
    assert as_number(1, "f") == 1.0
    for value in (math.inf, -math.inf, math.nan, 10**400, -(10**5000), True, "1", None, {}):
        with pytest.raises(InputError, match="^f: expected a number, found "):
            as_number(value, "f")
    with pytest.raises(InputError, match="^f: expected a number from 0 to 1, found 1.5$"):
        as_number(1.5, "f", 0, 1)


@pytest.mark.parametrize(
    ("check", "value", "said"),
    [
        (as_string, 3, "expected a string, found 3"),
        (as_bool, 1, "expected true or false, found 1"),
        (as_list, {}, "expected a list, found an object"),
        (as_object, [], "expected an object, found an empty list"),
        (as_object, [1], "expected an object, found a list"),
        pytest.param(as_string, 10**5000, "expected a string, found a number of over 40 digits", id="long"),
        (as_list, "\x1b[31m\n", r"expected a list, found '\x1b[31m\n'"),
    ],
)
def test_kinds(check, value, said):
    with pytest.raises(InputError) as refused:
        check(value, "f")
    assert str(refused.value) == f"f: {said}"


def test_numbers_in_texts_are_of_ascii_and_bounded():
    assert whole_in("0", 5) == 0 and whole_in("0005", 5) == 5
    assert [whole_in(text, 5) for text in ("6", "-1", "", " 1", "1\n", "٣", "²", "1.0", "9" * 5000)] == [None] * 9
    assert number_in("1.5e-3") == 1.5e-3 and number_in("-4096.000") == -4096 and number_in(".5") == 0.5
    for text in ("", "nan", "inf", "1e999", "1_000", "٣", "0x1", "1.5.0", "9" * 5000, " 1", "1\n"):
        assert number_in(text) is None


def test_formats():
    check_format({"format": "a", "version": 1}, "f", "a", 1)
    for fields, said in (
        ({"version": 1}, 'f: the field "format" is missing'),
        ({"format": "b", "version": 1}, "f: format: expected 'a', found 'b'"),
        ({"format": "a", "version": True}, "f: version: expected 1, found true"),
        ({"format": "a", "version": [2]}, "f: version: expected 1, found a list"),
    ):
        with pytest.raises(InputError) as refused:
            check_format(fields, "f", "a", 1)
        assert str(refused.value) == said


def test_what_is_shown_is_short():
    for value in ("a" * 5000, "\0" * 5000, 10**5000, -(10**5000), 1e300, {"a": 1}, ["b"] * 5000, b"x" * 5000):
        text = shown(value)
        assert len(text) <= 83 and text.isprintable()
