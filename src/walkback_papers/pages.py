"""Pages generated from stored results: write those that changed, or check that they are up to date."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from walkback.core.errors import EXIT_DONE, EXIT_WALKED_BACK
from walkback.core.files import drop_leftovers, friendly_os_errors, write_atomic


def update_pages(pages: Mapping[Path, str], *, check: bool) -> int:
    """Write the pages whose text changed, or with `check` only print which they are; returns the exit code."""
    stale = [page for page, text in pages.items() if _current_text(page) != text]
    for page, text in pages.items():
        if page not in stale:
            print(f"{page}: up to date")
        elif check:
            message = "is not what the stored results give; leave --check out to write it again."
            print(f"walkback: {page} {message}", file=sys.stderr)
        else:
            _write(page, text)
            print(f"{page}: written")
    return EXIT_WALKED_BACK if check and stale else EXIT_DONE


def _current_text(page: Path) -> str | None:
    """The page's text, or None without a file. Line ends are normalised: a checkout may have changed them."""
    if not page.is_file():
        return None
    with friendly_os_errors(page, "read"):
        return page.read_text(encoding="utf-8", errors="replace")


def _write(page: Path, text: str) -> None:
    with friendly_os_errors(page.parent, "create"):
        page.parent.mkdir(parents=True, exist_ok=True)
    drop_leftovers(page)
    write_atomic(page, text.encode())
