"""Run a notebook without a kernel: its cells in order, in one namespace.

    python tools/notebook.py docs/notebooks/capture-to-features.ipynb --figures docs/assets

writes every figure that it shows as `NOTEBOOK-NAME.png`, where NAME is the id of the cell. The
notebook itself is not changed: it is committed without outputs, so that diffs are readable.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["code_cells", "run"]


def code_cells(notebook: Path) -> list[tuple[str, str]]:
    """(id, source) of the code cells, in order."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [(c["id"], "".join(c["source"])) for c in cells if c["cell_type"] == "code"]


def run(notebook: Path, on_figure: Callable[[str, Any], None]) -> dict[str, Any]:
    """Run a notebook; `on_figure(id, figure)` gets every figure that `plt.show()` shows in a cell.

    The `repr` of the last expression of each cell is computed, as a notebook does.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    namespace: dict[str, Any] = {"__name__": "__main__"}
    shown, style = plt.show, mpl.rcParams.copy()
    here = ""

    def show() -> None:
        for number in plt.get_fignums():
            figure = plt.figure(number)
            figure.canvas.draw()
            on_figure(here, figure)
            plt.close(figure)

    plt.close("all")  # figures that were open before do not belong to the notebook
    plt.show = show
    try:
        for here, source in code_cells(notebook):
            _run_cell(source, f"{notebook.name}[{here}]", namespace)
    finally:
        plt.close("all")
        plt.show = shown
        mpl.rcParams.update(style)
    return namespace


def _run_cell(source: str, name: str, namespace: dict[str, Any]) -> None:
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    if isinstance(last, ast.Expr):
        repr(eval(compile(ast.Expression(last.value), name, "eval"), namespace))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--figures", type=Path, required=True)
    options = parser.parse_args()

    def save(cell: str, figure: Any) -> None:
        path = options.figures / f"{options.notebook.stem}-{cell}.png"
        figure.savefig(path)
        print(path)

    run(options.notebook, save)


if __name__ == "__main__":
    main()
