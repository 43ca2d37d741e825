# SPDX-License-Identifier: BSD-3-Clause
"""The picture of ``python -m ucp bench --plot``."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from .pair import OPERATIONS

_LABELS = {
    "latency": ("Latency", "microseconds, half a round trip", 1.0),
    "bandwidth": ("Bandwidth", "MB/s, one way", 1e-6),
    "rate": ("Rate", "messages/s, one way", 1.0),
    "collective": ("Collective operations", "microseconds", 1.0),
}


def missing() -> str | None:
    """Why nothing can be drawn here; None: it can."""
    if importlib.util.find_spec("matplotlib") is None:
        return "--plot needs matplotlib: pip install matplotlib"
    return None


def refuses(path: str) -> str | None:
    """Why no picture can have this name; None: it can."""
    backends: Any = importlib.import_module("matplotlib.backend_bases")
    kinds = backends.FigureCanvasBase.get_supported_filetypes()
    if Path(path).suffix.lower().removeprefix(".") in kinds:
        return None
    return f"--plot {path}: the name has to end with .png or .svg"


def draw(report: dict[str, Any], path: str) -> None:
    """Draw the best values of a report: a panel for each kind of test."""
    importlib.import_module("matplotlib").use("Agg")  # no display is needed
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for result in report["results"]:
        test = result["test"]
        panel = "collective" if test in OPERATIONS else test
        points = panels.setdefault(panel, {}).setdefault(test, [])
        points.append((result["size"], result["best"] * _LABELS[panel][2]))
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(5 * len(panels), 4), squeeze=False
    )
    for axis, (panel, tests) in zip(axes[0], panels.items(), strict=True):
        for test, points in tests.items():
            sizes, values = zip(*points, strict=True)
            axis.plot(sizes, values, marker="o", label=test)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_title(_LABELS[panel][0])
        axis.set_xlabel("bytes")
        axis.set_ylabel(_LABELS[panel][1])
        axis.grid(True, which="major", alpha=0.3)
        if panel == "collective":
            axis.legend(fontsize="small")
    where = report["machine"]
    figure.suptitle(
        f"ucp {where['ucp']}, UCX {where['ucx']}, between {report['between']}, "
        f"{where['cpus']} CPUs, {where['arch']}",
        fontsize="medium",
    )
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
