"""Execute the tutorial and store its outputs: `python docs/run_tutorial.py`, less than a minute on one core.

It runs in an empty folder, so that nothing but the notebook's own text gets into its outputs.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

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
    return notebook


if __name__ == "__main__":
    nbformat.write(executed(nbformat.read(TUTORIAL, 4)), TUTORIAL)
