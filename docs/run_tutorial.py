"""Execute the tutorial and store its outputs: `python docs/run_tutorial.py`, less than a minute on one core.

It runs in an empty folder, so that nothing but the notebook's own text gets into its outputs.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

LOCAL_LINK = re.compile(r'<a href="(?!https?:)[^"]*">([^<]*)</a>')
TUTORIAL = Path(__file__).parent / "tutorial.ipynb"


def executed(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with its outputs. A cell that fails raises."""
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=600, record_timing=False, resources={"metadata": {"path": folder}})
        client.execute()
    notebook.metadata.language_info = {"name": "python"}  # Not the version that happened to run it.
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
            for each in cell.outputs:
                if "text/html" in each.get("data", {}):
                    # Links to files of this run lead nowhere on the site.
                    each.data["text/html"] = LOCAL_LINK.sub(r"\1", each.data["text/html"])
    return notebook


if __name__ == "__main__":
    nbformat.write(executed(nbformat.read(TUTORIAL, 4)), TUTORIAL)
