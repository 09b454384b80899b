"""Pages that commands bring up to date: what is written, what is said, and the exit code."""

from __future__ import annotations

import pytest

from walkback.core.errors import InputError
from walkback_papers.pages import update_pages


@pytest.fixture
def pages(tmp_path):
    """One that is as it should be, one that is not, and one that is not there."""
    wanted = {tmp_path / name: f"{name} ± ×\n" for name in ("fresh.md", "stale.md", "new/page.md")}
    fresh, stale, _ = wanted
    fresh.write_text(wanted[fresh])
    stale.write_text("old")
    return wanted


def test_what_differs_is_written_and_nothing_else(pages, capsys):
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


def test_a_check_names_what_differs_and_writes_nothing(pages, capsys):
    fresh, stale, new = pages
    assert update_pages(pages, check=True) == 1
    said = capsys.readouterr()
    assert said.out == f"{fresh}: up to date\n"
    assert [line.split()[:2] for line in said.err.splitlines()] == [["walkback:", str(page)] for page in (stale, new)]
    assert stale.read_text() == "old"
    assert not new.parent.exists()


@pytest.mark.parametrize(("there", "code"), [(b"a\r\nb\r\n", 0), (b"a\nb", 1), (b"a\nb\n\xff", 1)])
def test_only_the_ends_of_lines_may_differ(tmp_path, there, code):
    """They may be those of the checkout; and what is no text at all differs."""
    page = tmp_path / "page.md"
    page.write_bytes(there)
    assert update_pages({page: "a\nb\n"}, check=True) == code


def test_where_nothing_can_be_written_a_sentence_says_so(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="Could not create"):
        update_pages({tmp_path / "file" / "page.md": "new"}, check=False)
