"""Lets unit tests plant stored runs, and shares one folder of them between those that only read it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "studies"))


@pytest.fixture(scope="session")
def planted_runs(tmp_path_factory: pytest.TempPathFactory):
    from planted_methods import plant_methods

    return plant_methods(tmp_path_factory.mktemp("planted"))
