"""The summary, the picture and the page of examples/demo.py."""

import base64
import html
import io

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

PERCENTILES = (50, 99, 99.9, 99.99)
CURVE = (50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "grid": "#d8dee4",
    "colors": ("#6e7781", "#0969da", "#cf5a00"),
}
DARK = {
    "paper": "#0d1117",
    "ink": "#e6edf3",
    "grid": "#30363d",
    "colors": ("#9198a1", "#58a6ff", "#f0883e"),
}


def duration(ns):
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def _percentiles(values, which=PERCENTILES):
    return [float(np.percentile(values, p, method="higher")) for p in which]


def _findings(story, facts):
    lines = [
        f"{facts.records:,} records in {story.seconds:g} s ({facts.rate:,.0f} a second), "
        f"over {story.rolls + 1} segments.",
        f"recorder was killed with {story.read_before_kill:,} records read and "
        f"{story.committed_before_kill:,} committed, and resumed at number {story.resumed_seq:,}.",
        f"It was given {facts.seen_again:,} records again: "
        "those it had read and not yet committed, and no other.",
    ]
    if story.caught_up_after is not None:
        lines.append(
            f"It found {story.waiting_at_resume:,} records waiting, and had caught up "
            f"{story.caught_up_after:.2f} s later."
        )
    lines.append(
        "No record was lost by either reader; strategy, which was not killed, saw each once."
    )
    return lines


def tell(story, facts):
    print()
    for line in _findings(story, facts):
        print(line)
    print(
        f"\n{'latency, followed live':24}"
        + "".join(f"{f'p{p:g}':>10}" for p in PERCENTILES)
        + f"{'records':>10}"
    )
    for name, values in facts.latencies.items():
        cells = "".join(f"{duration(ns):>10}" for ns in _percentiles(values))
        print(f"{name:24}{cells}{len(values):>10,}")
    print()


def _picture(story, facts, theme):
    ink = theme["ink"]
    style = {
        "figure.facecolor": theme["paper"],
        "axes.facecolor": theme["paper"],
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": theme["grid"],
        "xtick.color": ink,
        "ytick.color": ink,
        "grid.color": theme["grid"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.axisbelow": True,
        "legend.frameon": False,
        "font.size": 10,
    }
    with plt.rc_context(style):
        figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.4), layout="constrained")
        _progress(left, story, theme)
        _latency(right, facts, theme)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150)
        plt.close(figure)
    return file.getvalue()


def _progress(axes, story, theme):
    grey, blue, orange = theme["colors"]
    samples = np.array(story.samples)
    times = samples[:, 0]
    axes.plot(times, samples[:, 1], color=grey, lw=5, alpha=0.45, label="feed, written")
    axes.plot(times, samples[:, 2], color=blue, lw=1.6, label="strategy, read")
    axes.plot(times, samples[:, 3], color=orange, lw=1.6, label="recorder, read")
    axes.axvspan(story.killed_at, story.resumed_at, color=orange, alpha=0.12, lw=0)
    axes.annotate(
        "kill -9",
        (story.killed_at, story.read_before_kill),
        xytext=(-6, 14),
        textcoords="offset points",
        ha="right",
        color=orange,
        fontweight="bold",
    )
    axes.annotate(
        "resumed",
        (story.resumed_at, story.resumed_seq),
        xytext=(8, -4),
        textcoords="offset points",
        color=orange,
        fontweight="bold",
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
    axes.set_xlabel("time, seconds")
    axes.set_ylabel("records")
    axes.set_title("Written and read")
    axes.grid(visible=True, lw=0.7)
    axes.legend(loc="upper left")


def _latency(axes, facts, theme):
    nines = [100 / (100 - p) for p in CURVE]
    for color, (name, values) in zip(theme["colors"][1:], facts.latencies.items(), strict=True):
        axes.plot(nines, _percentiles(values, CURVE), "o-", ms=3.5, lw=1.6, color=color, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator([100 / (100 - p) for p in (50, 90, 99, 99.9, 99.99)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 - 100 / x:g} %"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: duration(y)))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda y, _: ""))
    axes.set_xlabel("percentile")
    axes.set_ylabel("from append to the reader's hands")
    axes.set_title("Latency, parked readers woken by the feed")
    axes.grid(visible=True, lw=0.7)
    axes.legend(loc="upper left")


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Tapewire demo</title>
<style>
:root {{ --paper: #ffffff; --ink: #1f2328; --soft: #59636e; --line: #d8dee4; --card: #f6f8fa; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --paper: #0d1117; --ink: #e6edf3; --soft: #9198a1; --line: #30363d; --card: #151b23; }}
}}
body {{ margin: 0 auto; max-width: 68rem; padding: 2rem 1.25rem 3rem; background: var(--paper);
        color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }}
h1 {{ font-size: 1.7rem; margin: 0 0 .2rem; }}
h2 {{ font-size: 1.1rem; margin: 2rem 0 .5rem; }}
.lead {{ color: var(--soft); margin: 0 0 1.5rem; }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem; }}
.card {{ background: var(--card); border: 1px solid var(--line); border-radius: 8px;
         padding: .8rem 1rem; }}
.card b {{ display: block; font-size: 1.45rem; font-variant-numeric: tabular-nums; }}
.card span {{ color: var(--soft); font-size: .9rem; }}
img {{ width: 100%; height: auto; display: block; margin-top: 1.5rem; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ text-align: right; padding: .4rem .7rem; border-bottom: 1px solid var(--line); }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; }}
th {{ color: var(--soft); font-weight: 600; }}
.scroll {{ overflow-x: auto; }}
</style>
<h1>One tape, three processes</h1>
<p class="lead">A feed and two readers; one reader was killed with kill -9 and resumed.</p>
<div class="cards">{cards}</div>
<picture>
  <source media="(prefers-color-scheme: dark)" srcset="data:image/png;base64,{dark}">
  <img src="data:image/png;base64,{light}" alt="Left: records written and read over time, with the
  killed reader's pause and its catching up. Right: latency of both readers by percentile.">
</picture>
<h2>Latency, from append to the reader's hands</h2>
<div class="scroll"><table><tr><th>reader</th>{heads}<th>records</th></tr>{rows}</table></div>
<h2>What was checked</h2>
<ul>{findings}</ul>
</html>
"""


def _page(story, facts, light, dark):
    card = '<div class="card"><b>{}</b><span>{}</span></div>'.format
    values = {name: _percentiles(v) for name, v in facts.latencies.items()}
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td>"
        + "".join(f"<td>{duration(ns)}</td>" for ns in cells)
        + f"<td>{len(facts.latencies[name]):,}</td></tr>"
        for name, cells in values.items()
    )
    return PAGE.format(
        cards=card(f"{facts.records:,}", "records, in order")
        + card("0", "records lost")
        + card(f"{facts.seen_again:,}", "given again: read, not yet committed")
        + card(f"{story.rolls + 1}", "segments")
        + card(duration(values["strategy"][0]), "median latency, strategy"),
        light=base64.b64encode(light).decode(),
        dark=base64.b64encode(dark).decode(),
        heads="".join(f"<th>p{p:g}</th>" for p in PERCENTILES),
        rows=rows,
        findings="".join(f"<li>{html.escape(line)}</li>" for line in _findings(story, facts)),
    )


def write(folder, story, facts):
    """The picture and the page; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    light, dark = (_picture(story, facts, theme) for theme in (LIGHT, DARK))
    picture, page = folder / "demo.png", folder / "index.html"
    picture.write_bytes(light)
    page.write_text(_page(story, facts, light, dark), encoding="utf-8")
    return picture, page
