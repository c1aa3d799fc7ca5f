"""Output files are whole or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kwsniff.errors import ConfigError
from kwsniff.output.atomic import output


def test_the_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    with output(str(target)) as stream:
        stream.write(b"one\n")
        assert not target.exists()
    assert target.read_bytes() == b"one\n"
    assert os.listdir(tmp_path) == ["out.jsonl"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, BrokenPipeError])
def test_the_old_file_stays_when_the_work_stops(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "out.jsonl"
    target.write_bytes(b"old\n")

    def work() -> None:
        with output(str(target)) as stream:
            stream.write(b"new\n")
            raise error

    with pytest.raises(error):
        work()
    assert target.read_bytes() == b"old\n"
    assert os.listdir(tmp_path) == ["out.jsonl"]


def test_permissions_are_those_of_the_old_file_or_the_usual_ones(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"")
    old.chmod(0o640)
    mask = os.umask(0o022)
    try:
        for target in (old, new):
            with output(str(target)) as stream:
                stream.write(b"x")
    finally:
        os.umask(mask)
    assert [stat.S_IMODE(target.stat().st_mode) for target in (old, new)] == [0o640, 0o644]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    with output(str(link)) as stream:
        stream.write(b"x")
    assert link.is_symlink()
    assert target.read_bytes() == b"x"


def test_a_device_is_written_to() -> None:
    with output("/dev/null") as stream:
        stream.write(b"x")
    assert not Path("/dev/null").is_file()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    target = tmp_path / "no" / "out"
    with pytest.raises(ConfigError, match=r"cannot write .*out: No such file"), output(str(target)):
        pass


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write"), output(str(tmp_path)):
        pass
