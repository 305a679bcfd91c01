"""Files are written whole, or the caller is told."""

import os
import resource

import pytest

from voxtui.settings.files import append_line, write_file


def test_the_data_reaches_the_disk_before_its_name(monkeypatch, tmp_path):
    """Otherwise a loss of power leaves an empty file in the place of the old one."""
    done, sync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda opened: (done.append(os.fstat(opened).st_size), sync(opened))
    )
    monkeypatch.setattr(os, "replace", lambda old, new: (done.append("named"), replace(old, new)))
    write_file(tmp_path / "file", b"data")
    assert done == [4, "named"]
    assert (tmp_path / "file").read_bytes() == b"data"


def test_a_line_that_is_written_in_part_is_an_error(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    append_line(tmp_path / "notes", b"- One.\n", b"# Notes\n")
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        with pytest.raises(OSError, match="No space left"):
            append_line(tmp_path / "notes", b"- Two that is long.\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    append_line(tmp_path / "notes", b"- Three.\n")
    assert (tmp_path / "notes").read_bytes() == b"# Notes\n- One.\n- Two\n- Three.\n"
