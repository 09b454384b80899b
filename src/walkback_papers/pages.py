"""Pages that commands make from stored results: brought up to date, or only said to be."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from walkback.core.errors import EXIT_DONE, EXIT_WALKED_BACK
from walkback.core.files import drop_leftovers, friendly_os_errors, write_atomic


def update_pages(pages: Mapping[Path, str], *, check: bool) -> int:
    """Write the pages that read otherwise now, or with `check` only say which they are; the command's exit code."""
    stale = [page for page, text in pages.items() if _standing(page) != text]
    for page, text in pages.items():
        if page not in stale:
            print(f"{page}: up to date")
        elif check:
            said = "is not what the stored results give; leave --check out to write it again."
            print(f"walkback: {page} {said}", file=sys.stderr)
        else:
            _write(page, text)
            print(f"{page}: written")
    return EXIT_WALKED_BACK if check and stale else EXIT_DONE


def _standing(page: Path) -> str | None:
    """What stands there now, its lines ended in any way: a checkout may end them in its own."""
    if not page.is_file():
        return None
    with friendly_os_errors(page, "read"):
        return page.read_text(encoding="utf-8", errors="replace")


def _write(page: Path, text: str) -> None:
    with friendly_os_errors(page.parent, "create"):
        page.parent.mkdir(parents=True, exist_ok=True)
    drop_leftovers(page)
    write_atomic(page, text.encode())
