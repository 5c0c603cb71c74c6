import pytest

from sweep.errors import ConfigError
from sweep.tasks.content import build_once


def writes(text):
    def build(folder):
        (folder / "content.txt").write_text(text)

    return build


def must_not_build(folder):
    raise AssertionError(f"{folder} was built although it was there")


def test_the_second_request_finds_what_the_first_one_built(tmp_path):
    first = build_once(tmp_path, "thing", {"size": 1}, writes("one"))
    assert build_once(tmp_path, "thing", {"size": 1}, must_not_build) == first
    assert (first / "content.txt").read_text() == "one"


def test_another_recipe_gets_another_folder_and_leaves_the_first_alone(tmp_path):
    first = build_once(tmp_path, "thing", {"size": 1}, writes("one"))
    second = build_once(tmp_path, "thing", {"size": 2}, writes("two"))
    assert first != second
    assert (first / "content.txt").read_text() == "one"
    assert (second / "content.txt").read_text() == "two"


def test_a_build_that_fails_halfway_leaves_nothing_behind_and_can_be_repeated(tmp_path):
    def fails_halfway(folder):
        (folder / "content.txt").write_text("half")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        build_once(tmp_path, "thing", {}, fails_halfway)
    assert list(tmp_path.iterdir()) == []
    assert (build_once(tmp_path, "thing", {}, writes("whole")) / "content.txt").read_text() == "whole"


def test_of_two_processes_that_build_at_once_the_first_to_finish_wins(tmp_path):
    def is_overtaken(folder):
        build_once(tmp_path, "thing", {}, writes("other process"))
        (folder / "content.txt").write_text("too late")

    made = build_once(tmp_path, "thing", {}, is_overtaken)
    assert (made / "content.txt").read_text() == "other process"
    assert list(tmp_path.iterdir()) == [made]


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write .*file/thing-.*choose a writable folder"):
        build_once(tmp_path / "file", "thing", {}, writes("one"))
