"""The notebooks run from the first cell to the last, on a simulated market and on a real one."""

import json
from pathlib import Path

import pytest

from tests.support.marketdata import capture
from tools.notebook import code_cells, run

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
by_name = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def figures_of(notebook, tmp, monkeypatch):
    """Return {cell: figures} after running all cells in a directory of the test."""
    monkeypatch.chdir(tmp)
    monkeypatch.setattr("tempfile.tempdir", str(tmp))
    shown = {}
    run(notebook, lambda cell, figure: shown.setdefault(cell, []).append(figure))
    return shown


def test_there_is_a_notebook():
    assert NOTEBOOKS


@by_name
def test_it_runs_and_every_plot_has_a_title_and_axis_labels(notebook, tmp, monkeypatch):
    monkeypatch.delenv("CAPTURE", raising=False)
    shown = figures_of(notebook, tmp, monkeypatch)
    assert list(shown) == [cell for cell, source in code_cells(notebook) if "plt.show()" in source]
    for [figure] in shown.values():
        axes = [axis for axis in figure.axes if axis.get_label() != "<colorbar>"]
        assert axes[0].get_title(loc="left")
        assert axes[-1].get_xlabel()
        assert all(axis.get_ylabel() or not len(axis.get_yticks()) for axis in axes)


def test_it_runs_on_a_real_capture(tmp, monkeypatch):
    monkeypatch.setenv("CAPTURE", str(capture("binance/spot_btcusdt_20240808.gz")))
    assert figures_of(ROOT / "docs/notebooks/capture-to-features.ipynb", tmp, monkeypatch)


@by_name
def test_it_is_stored_without_outputs(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert [c["id"] for c in cells if c.get("outputs") or c.get("execution_count")] == []
