# SPDX-License-Identifier: BSD-3-Clause
"""Everything on docs/performance.md, by one command: measures, and draws.

    python benchmarks/pictures.py [--quick] [--only latency,join] [--draw]
        [--mpi /venv/bin/python]

Each measurement is a program of this folder. Its result and the machine are written
to results/NAME.json; from these the pictures in docs/_static/performance are drawn,
and the tables and the machine on the page are written. --draw measures nothing.
All of it takes less than ten minutes, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import _harness
from _harness import Results, markdown, number, scaled

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PICTURES = HERE.parent / "docs/_static/performance"
PAGE = HERE.parent / "docs/performance.md"

PEERS = "ucp,ucxx-polling,ucxx-polling-mm,ucxx-blocking-mm,streams,perftest"
# Program, its options, and those of --quick instead.
PROGRAMS: dict[str, tuple[str, str, str]] = {
    "latency": (
        "latency.py",
        f"--only {PEERS} --sizes 8,1K,16K,256K,1M,16M --rounds 2 --seconds 0.2",
        f"--only {PEERS} --sizes 8,64K,1M --rounds 1 --seconds 0.05",
    ),
    "bandwidth": (
        "bandwidth.py",
        f"--only {PEERS} --sizes 64K,1M,16M --rounds 4 --seconds 0.3",
        f"--only {PEERS} --sizes 64K,1M --rounds 1 --seconds 0.05",
    ),
    "message_rate": (
        "message_rate.py",
        f"--only {PEERS} --rounds 3 --seconds 0.3",
        f"--only {PEERS} --rounds 1 --seconds 0.05",
    ),
    "collectives": (
        "collectives.py",
        "--ranks 2 --rounds 5 --sizes 8,64K,1M --kinds user --python",
        "--ranks 2 --rounds 2 --sizes 8,64K --kinds user --seconds 0.02",
    ),
    "ranks": (
        "ranks.py",
        "--ranks 2,4 --rounds 7 --seconds 0.05",
        "--ranks 2 --rounds 1 --seconds 0.02 --kinds send,bcast --sizes 8,64K",
    ),
    "join": ("join.py", "--rows 2000000 --rounds 4", "--rows 200000 --rounds 1"),
    "dask": ("dask.py", "--part comm --rounds 2 --seconds 0.3", "--part comm --quick"),
    "shuffle": ("shuffle.py", "--rounds 5 --mib 64", "--rounds 1 --mib 8"),
    "rings": ("rings.py", "--rounds 5", "--rounds 1"),
}


# ---- measuring -----------------------------------------------------------------


def compact(name: str, data: Any) -> Any:
    """The best and the middle of many samples."""
    parts = data if isinstance(data, list) else [data]
    if not all(isinstance(part, dict) and "samples" in part for part in parts):
        return data
    found = []
    for part in parts:
        part["samples"] = [_harness.Sample(**sample) for sample in part["samples"]]
        results = Results(**part)
        better = min if _harness.lower_is_better(results.unit) else max
        rows = {}
        for case in results.cases():
            chosen = max if case.endswith("/s") else better
            rows[case] = {
                contender: {
                    "best": chosen(values),
                    "median": results.median(case, contender),
                }
                for contender in results.contenders
                if (values := list(results.by_round(case, contender).values()))
            }
        found.append({"unit": results.unit, "base": results.base, "cases": rows})
    return found[0]


def measure(name: str, options: argparse.Namespace) -> None:
    program, whole, quick = PROGRAMS[name]
    words = (quick if options.quick else whole).split()
    has_mpi = name in ("collectives", "ranks") and options.mpi
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ucp-bench-") as folder:
        path = Path(folder) / "result.json"
        command = [sys.executable, str(HERE / program), *words]
        if has_mpi:
            command += ["--mpi", options.mpi]
        done = subprocess.run([*command, "--json", str(path)], timeout=900)
        if done.returncode != 0 or not path.exists():
            print(f"{name}: no result (exit status {done.returncode})")
            return
        data = json.loads(path.read_text())
    if has_mpi:
        words += ["--mpi", "python"]  # the path of this machine is not shown
    result = {
        "command": " ".join(["python", f"benchmarks/{program}", *words]),
        "machine": {**_harness.machine(), "processor": processor()},
        "data": compact(name, data),
    }
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(result, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)


def processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "unknown"
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else "unknown"


def own_rows(data: dict[str, Any]) -> dict[str, Any]:
    """Return the cases with each contender in rows of the transport that it uses.

    By default ucxx takes tcp on one host as well: in rows of shared memory stands what
    it did when it was told to use that.
    """
    cases = {}
    for case, row in data["cases"].items():
        row = dict(row)
        told = row.pop("ucxx-polling-mm", None)
        if case.startswith("shm "):
            row.pop("ucxx-polling", None)
            if told is not None:
                row["ucxx-polling"] = told
        cases[case] = row
    return {**data, "cases": cases}


# ---- drawing -------------------------------------------------------------------

INK, GROUND, GRID = "#24292e", "#fefefe", "#d8dee5"
# The scheme of the reader: what is drawn in these colours changes with it.
DARK = f"""
@media (prefers-color-scheme: dark) {{
  [style*="fill: {INK}"] {{ fill: #dfe3e8 !important; }}
  [style*="stroke: {INK}"] {{ stroke: #dfe3e8 !important; }}
  [style*="fill: {GROUND}"] {{ fill: #16191d !important; }}
  [style*="stroke: {GRID}"] {{ stroke: #333a42 !important; }}
}}
"""
COLOURS = {
    "ucp": "#2f7de1",
    "umx": "#2f7de1",
    "perftest": "#8a939e",
    "streams": "#e0912f",
    "tcp": "#e0912f",
    "ucxx-polling": "#3fa35b",
    "ucxx-blocking-mm": "#93c47d",
    "distributed-ucxx": "#3fa35b",
    "mpi4py": "#b05cc6",
    "ucp-mpiexec": "#5fb0e8",
    "sync": "#5fb0e8",
    "asyncio": "#9ecbf2",
}
LABELS = {
    "perftest": "ucx_perftest (C)",
    "streams": "asyncio streams",
    "ucxx-polling": "ucxx, polling",
    "ucxx-blocking-mm": "ucxx, blocking",
    "umx": "libumx (C)",
    "sync": "ucp.sync",
    "asyncio": "ucp, await",
    "tcp": "Dask's tcp",
    "ucp-mpiexec": "ucp, by mpiexec",
}


def figure(columns: int, height: float = 3.4) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "ucp",
            "font.family": "sans-serif",
            "font.size": 10,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "figure.facecolor": GROUND,
            "axes.facecolor": GROUND,
            "legend.facecolor": GROUND,
            "legend.edgecolor": GRID,
            "grid.color": GRID,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    from matplotlib import pyplot

    made, axes = pyplot.subplots(1, columns, figsize=(8, height), squeeze=False)
    return made, axes[0]


def save(made: Any, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = PICTURES / f"{name}.svg"
    made.tight_layout()
    made.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    svg = path.read_text()
    svg = re.sub(r"<!DOCTYPE.*?>\n?", "", svg, count=1, flags=re.DOTALL)
    svg = svg.replace("<defs>", f"<style>{DARK}</style>\n <defs>", 1)
    path.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")


def colour(name: str) -> str:
    return COLOURS.get(name, "#777777")


def nbytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([BKM])", text)
    assert match is not None, text
    return int(match[1]) << {"B": 0, "K": 10, "M": 20}[match[2]]


def by_size(name: str, label: str) -> Callable[[dict[str, Any]], None]:
    """Lines over the size of the message, a picture for each transport."""

    def draw(data: dict[str, Any]) -> None:
        data = own_rows(data)
        transports = list(dict.fromkeys(case.split()[0] for case in data["cases"]))
        made, all_axes = figure(len(transports))
        for axes, transport in zip(all_axes, transports, strict=True):
            lines: dict[str, list[tuple[int, float]]] = {}
            for case, row in data["cases"].items():
                if case.split()[0] == transport:
                    for contender, value in row.items():
                        best = scaled(value["best"], data["unit"])
                        point = (nbytes(case.split()[1]), best)
                        lines.setdefault(contender, []).append(point)
            for contender, points in lines.items():
                axes.plot(
                    *zip(*points, strict=True),
                    marker="o",
                    markersize=4,
                    linewidth=2.4 if contender == "ucp" else 1.4,
                    zorder=3 if contender == "ucp" else 2,
                    color=colour(contender),
                    label=LABELS.get(contender, contender),
                )
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            sizes = sorted({size for points in lines.values() for size, _ in points})
            axes.set_xticks(sizes, labels_apart(sizes))
            plain(axes)
            axes.set_title({"shm": "shared memory"}.get(transport, transport))
            axes.set_xlabel("bytes of a message")
        all_axes[0].set_ylabel(label)
        legend(made, all_axes[-1])
        save(made, name)

    return draw


def labels_apart(sizes: list[int]) -> list[str]:
    """Return a label for each of ``sizes``, empty where it would touch the last one."""
    labels = []
    last = 0
    for size in sizes:
        labels.append(human(size) if size >= 8 * last else "")
        if labels[-1]:
            last = size
    return labels


def plain(axes: Any) -> None:
    """Label a logarithmic axis of values with numbers instead of powers."""
    from matplotlib import ticker

    lowest, highest = axes.get_ylim()
    steps = (1.0,) if highest / lowest > 1e3 else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: f"{y:,g}"))
    axes.minorticks_off()
    axes.grid(axis="y")


def legend(made: Any, axes: Any) -> None:
    """Explain the colours of ``axes`` below the picture, where they cover nothing."""
    handles, labels = axes.get_legend_handles_labels()
    made.legend(
        handles,
        labels,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        ncols=min(len(labels), 5 if len(labels) != 6 else 3),
        fontsize=9,
        frameon=False,
    )


def human(size: int) -> str:
    for shift, unit in ((20, "M"), (10, "K")):
        if size >= 1 << shift:
            return f"{size >> shift}{unit}"
    return str(size)


def bars(
    name: str, values: dict[str, float], label: str, logarithmic: bool = False
) -> None:
    """One bar for each name, the best on top."""
    made, (axes,) = figure(1, 0.9 + 0.34 * len(values))
    names = list(values)
    ours = ("ucp", "a command", "a signal", "a put of 8 B, in all")
    colours = [COLOURS["ucp" if n.startswith(ours) else "perftest"] for n in names]
    axes.barh([LABELS.get(n, n) for n in names], list(values.values()), color=colours)
    axes.invert_yaxis()
    if logarithmic:
        axes.set_xscale("log")
    for place, value in enumerate(values.values()):
        axes.text(value, place, f" {number(value)}", va="center", fontsize=9)
    axes.margins(x=0.15)
    axes.set_xlabel(label)
    save(made, name)


def groups(
    name: str, rows: dict[str, dict[str, float]], label: str, logarithmic: bool
) -> None:
    """Groups of bars: a group for each row."""
    made, (axes,) = figure(1, 3.4)
    names = list(dict.fromkeys(n for row in rows.values() for n in row))
    width = 0.8 / len(names)
    for i, contender in enumerate(names):
        places = [x + (i - len(names) / 2 + 0.5) * width for x in range(len(rows))]
        values = [row.get(contender, float("nan")) for row in rows.values()]
        shown = LABELS.get(contender, contender)
        axes.bar(places, values, width, label=shown, color=colour(contender))
    axes.grid(axis="y")
    if logarithmic:
        axes.set_yscale("log")
        plain(axes)
    axes.set_xticks(range(len(rows)), list(rows), fontsize=8)
    axes.set_axisbelow(True)
    axes.set_ylabel(label)
    legend(made, axes)
    save(made, name)


def draw_rate(data: dict[str, Any]) -> None:
    data = own_rows(data)
    rows = {
        {"shm 8B": "shared memory", "tcp 8B": "tcp"}.get(case, case): {
            contender: value["best"] / 1e3 for contender, value in row.items()
        }
        for case, row in data["cases"].items()
    }
    groups("message_rate", rows, "thousand messages of 8 B a second", True)


def draw_collectives(data: list[dict[str, Any]]) -> None:
    rows = {
        f"{row['operation']}\n{human(row['nbytes'])}": row["us"]
        for row in data
        if row["operation"] in ("barrier", "bcast", "allreduce", "alltoall")
    }
    groups("collectives", rows, "us, 2 ranks", True)


def draw_ranks(data: dict[str, Any]) -> None:
    shown = (
        *("send 8B", "send 64K", "isend 8B", "object 100B", "barrier"),
        *("bcast 64K", "allreduce 8B", "allreduce 1M", "alltoall 64K"),
    )
    rows = {
        what.replace(" ", "\n", 1): {n: value["best"] for n, value in row.items()}
        for case, row in data["cases"].items()
        if case.startswith("2 ranks, ") and (what := case[9:]) in shown
    }
    groups("ranks", rows, "us, 2 ranks that are not pinned", True)


def draw_join(data: dict[str, Any]) -> None:
    values = dict(sorted(data["ms"].items(), key=lambda item: item[1]))
    rows = f"{data['rows'] / 1e6:g} million rows on each side, 2 processors"
    bars("join", values, f"ms, {rows}")


def draw_dask(data: dict[str, Any]) -> None:
    rows = {
        case: {name: value["best"] for name, value in row.items()}
        for case, row in data["cases"].items()
    }
    groups("dask", rows, "us, half a round trip", True)


def draw_shuffle(data: dict[str, Any]) -> None:
    rows = {
        name: {way: figures["GB/s"] for way, figures in ways.items()}
        for name, ways in data.items()
    }
    palette = (
        *("#8a939e", "#2f7de1", "#3fa35b", "#e0912f"),
        *("#b05cc6", "#5fb0e8", "#e8b0d8"),
    )
    ways = dict.fromkeys(way for row in rows.values() for way in row)
    for way, shade in zip(ways, palette, strict=False):
        COLOURS.setdefault(way, shade)
    groups("shuffle", rows, "GB/s read in another process", True)


def draw_rings(data: dict[str, float]) -> None:
    names = {
        "one_producer": "a command",
        "reserved": "a command, place reserved",
        "put_8": "a put of 8 B, in all",
        "signal": "a signal, in all",
        "direct_8": "a put of 8 B without a ring",
    }
    values = {text: data[name] for name, text in names.items() if name in data}
    bars("rings", values, "ns")


DRAWINGS: dict[str, Callable[[Any], None]] = {
    "latency": by_size("latency", "us, half a round trip"),
    "bandwidth": by_size("bandwidth", "MB/s, 16 messages in flight"),
    "message_rate": draw_rate,
    "collectives": draw_collectives,
    "ranks": draw_ranks,
    "join": draw_join,
    "dask": draw_dask,
    "shuffle": draw_shuffle,
    "rings": draw_rings,
}


# ---- the page ------------------------------------------------------------------


def cases_table(data: dict[str, Any]) -> str:
    """Contenders as columns."""
    data = own_rows(data)
    names = list(dict.fromkeys(n for row in data["cases"].values() for n in row))
    rows = [[data["unit"].partition(":")[0], *(LABELS.get(n, n) for n in names)]]
    for case, row in data["cases"].items():
        values = [
            number(scaled(row[n]["best"], data["unit"])) if n in row else ""
            for n in names
        ]
        rows.append([case.replace("shm", "shared memory"), *values])
    return markdown(rows)


def plain_table(head: list[str], rows: Iterable[list[str]]) -> str:
    return markdown([head, *rows])


def collectives_table(data: list[dict[str, Any]]) -> str:
    names = list(data[0]["us"])
    return plain_table(
        ["us, 2 ranks", *(LABELS.get(n, n) for n in names)],
        [
            [
                f"{row['operation']} {human(row['nbytes'])}",
                *(number(row["us"][n]) for n in names),
            ]
            for row in data
        ],
    )


def join_table(data: dict[str, Any]) -> str:
    rows = sorted(data["ms"].items(), key=lambda item: item[1])
    return plain_table(["way", "ms"], [[name, number(ms)] for name, ms in rows])


def shuffle_table(data: dict[str, Any]) -> str:
    ways = list(next(iter(data.values())))
    return plain_table(
        ["GB/s", *ways],
        [[name, *(number(row[w]["GB/s"]) for w in ways)] for name, row in data.items()],
    )


def rings_table(data: dict[str, float]) -> str:
    rows = [[name.replace("_", " "), number(value)] for name, value in data.items()]
    return plain_table(["ns", ""], [row for row in rows if "share" not in row[0]])


TABLES: dict[str, Callable[[Any], str]] = {
    "latency": cases_table,
    "bandwidth": cases_table,
    "message_rate": cases_table,
    "collectives": collectives_table,
    "ranks": cases_table,
    "join": join_table,
    "dask": cases_table,
    "shuffle": shuffle_table,
    "rings": rings_table,
}


def machine_text(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{n} {v}" for n, v in sorted(machine["versions"].items()))
    return (
        f"{machine['cpus']} processors ({machine['processor']}, {machine['arch']}), "
        f"Linux {machine['kernel']}, Python {machine['python']}; {versions}; "
        f"{machine['time'].partition('T')[0]}."
    )


def fill(page: str, name: str, text: str) -> str:
    """Replace what stands between the marks of a name."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
    return re.sub(
        pattern, lambda m: f"{m[1]}\n{text}\n\n{m[2]}", page, count=1, flags=re.DOTALL
    )


def write_page() -> None:
    page = PAGE.read_text()
    machines = {}
    for name in PROGRAMS:
        path = RESULTS / f"{name}.json"
        if not path.exists():
            continue
        result = json.loads(path.read_text())
        DRAWINGS[name](result["data"])
        machines[name] = machine_text(result["machine"])
        text = f"{TABLES[name](result['data'])}\n\n`{result['command']}`"
        page = fill(page, name, text)
    lines = [
        f"- {', '.join(name for name in machines if machines[name] == text)}: {text}"
        for text in dict.fromkeys(machines.values())
    ]
    page = fill(page, "machine", "\n".join(lines))
    PAGE.write_text(page)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a try of a minute or two")
    parser.add_argument("--only", help="measurements, separated by commas")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--mpi", help="a Python that has mpi4py")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PROGRAMS)
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        parser.error(f"no measurement {unknown[0]!r}, only {', '.join(PROGRAMS)}")
    if not options.draw:
        for name in names:
            measure(name, options)
    write_page()


if __name__ == "__main__":
    main()
