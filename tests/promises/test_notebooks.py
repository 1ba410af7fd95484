"""The notebooks run from top to bottom, each in a kernel of its own, and show where readers go on."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.tiers import some

REPOSITORY = Path(__file__).parents[2]
NOTEBOOKS = sorted((REPOSITORY / "docs/notebooks").glob("*.ipynb"))
BY_DAY = [path for path in NOTEBOOKS if path.stem == "02_inputs"]
"""The first describes an experiment like docs/experiments.md, whose code tests/promises/test_docs.py runs, and trains
it by `run`, as tests/experiments/running do."""
SECONDS = 300


def cells(path: Path, kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", some(NOTEBOOKS, BY_DAY), ids=lambda path: path.stem)
def test_every_cell_runs_without_a_screen(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=where).execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_they_are_short_begin_with_a_title_and_are_kept_without_outputs(path: Path) -> None:
    kept = json.loads(path.read_text())
    assert len(kept["cells"]) <= 20
    assert cells(path, "markdown")[0].startswith("# ")
    assert not any(cell.get("outputs") for cell in kept["cells"])


def test_links_between_them_lead_somewhere() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        for target in re.findall(r"\]\((\w+\.ipynb)\)", "\n".join(cells(path, "markdown"))):
            assert path.with_name(target).is_file()
