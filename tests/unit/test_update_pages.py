"""Updating generated pages: what is written, what is printed, and the exit code."""

from __future__ import annotations

import pytest

from walkback.core.errors import InputError
from walkback_papers.pages import update_pages


@pytest.fixture
def pages(tmp_path):
    """One page that is up to date, one that is not, and one that does not exist."""
    wanted = {tmp_path / name: f"{name} ± ×\n" for name in ("fresh.md", "stale.md", "new/page.md")}
    fresh, stale, _ = wanted
    fresh.write_text(wanted[fresh])
    stale.write_text("old")
    return wanted


def test_only_changed_pages_are_written(pages, capsys):
    fresh, stale, new = pages
    time = fresh.stat().st_mtime_ns
    leftover = stale.with_name(f".{stale.name}.1.tmp")
    leftover.write_text("half")
    assert update_pages(pages, check=False) == 0
    assert [page.read_text() for page in pages] == list(pages.values())
    assert fresh.stat().st_mtime_ns == time
    assert not leftover.exists()
    assert capsys.readouterr().out == f"{fresh}: up to date\n{stale}: written\n{new}: written\n"
    assert update_pages(pages, check=True) == 0


def test_check_names_the_changed_pages_and_writes_nothing(pages, capsys):
    fresh, stale, new = pages
    assert update_pages(pages, check=True) == 1
    printed = capsys.readouterr()
    assert printed.out == f"{fresh}: up to date\n"
    assert [line.split()[:2] for line in printed.err.splitlines()] == [
        ["walkback:", str(page)] for page in (stale, new)
    ]
    assert stale.read_text() == "old"
    assert not new.parent.exists()


@pytest.mark.parametrize(("there", "code"), [(b"a\r\nb\r\n", 0), (b"a\nb", 1), (b"a\nb\n\xff", 1)])
def test_only_line_ends_may_differ(tmp_path, there, code):
    """A checkout may change line ends; a file that is not UTF-8 text counts as changed."""
    page = tmp_path / "page.md"
    page.write_bytes(there)
    assert update_pages({page: "a\nb\n"}, check=True) == code


def test_an_unwritable_folder_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="Could not create"):
        update_pages({tmp_path / "file" / "page.md": "new"}, check=False)
