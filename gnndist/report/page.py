"""`gnndist report`: one HTML file that needs nothing else, not even a network."""

import json
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import gnndist
from gnndist.errors import RunError
from gnndist.extras import need
from gnndist.report import curves, rank_charts, style, tables
from gnndist.report.reading import read_runs
from gnndist.report.record import RunRecord
from gnndist.units import duration

TEMPLATE = "report.html"


class Chart(NamedTuple):
    """A chart and where it stands."""

    name: str
    """its id in the page"""
    title: str
    figure: style.Figure
    note: str = ""
    wide: bool = False


def report(paths: Sequence[Path], out: Path) -> list[RunRecord]:
    """Write a page about one or several runs to `out`; the runs it shows.

    Raises
    ------
    RunError
        if a path is not a run, or `out` cannot be written.
    GnndistError
        if the packages of the extra `report` are missing.
    """
    runs = read_runs(paths)
    seeds = len(paths) == 1 and len(runs) > 1
    page = render(runs, f"{paths[0].resolve().name}, {len(runs)} seeds" if seeds else None)
    partial = out.with_name(f".{out.name}.partial")
    try:
        partial.write_text(page, encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror}") from error
    return runs


def render(runs: Sequence[RunRecord], title: str | None = None) -> str:
    """The page as text."""
    jinja2 = need("jinja2", "report", "gnndist report")
    markupsafe = need("markupsafe", "report", "gnndist report")
    plotly = need("plotly.offline", "report", "gnndist report")
    template = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    ).from_string(files("gnndist.report").joinpath(TEMPLATE).read_text("utf-8"))
    charts = [*curve_charts(runs), *time_charts(runs), *traffic_charts(runs)]
    shown = tables.figures_of(runs)
    text: str = template.render(
        title=title or (runs[0].name if len(runs) == 1 else f"{len(runs)} runs compared"),
        runs=runs,
        colors=[style.color_of(k) for k in range(len(runs))],
        single=runs[0] if len(runs) == 1 else None,
        version=gnndist.__version__,
        written=datetime.now(),
        figures=shown,
        comparison=tables.comparison(runs, shown),
        over_seeds=tables.over_seeds(runs, shown),
        curves=curve_charts(runs),
        times=time_charts(runs),
        traffic=traffic_charts(runs),
        ranks=[(run, *tables.ranks_table(run)) for run in runs if run.ranks],
        options=tables.options(runs),
        environment=tables.environment(runs),
        charts=_script({chart.name: chart.figure for chart in charts}),
        plotly=markupsafe.Markup(plotly.get_plotlyjs()),
    )
    return text


def curve_charts(runs: Sequence[RunRecord]) -> list[Chart]:
    """Loss, metrics and learning rate over epochs."""
    trained = [run for run in runs if run.lines]
    if not trained:
        return []
    charts = [Chart("loss", "Training loss", curves.loss_curves(runs))]
    metrics = list(dict.fromkeys(name for run in runs for name in run.metrics))
    if len(runs) == 1:
        charts += [
            Chart(f"metric-{name}", _title(name), curves.metric_curves(runs[0], name))
            for name in metrics
        ]
    else:
        charts += [
            Chart(
                f"{split}-{metrics[0]}",
                f"{_title(metrics[0])}, {split}",
                curves.split_curves(runs, split, metrics[0]),
                "dot: the best epoch by validation",
            )
            for split in ("valid", "test", "train")
            if metrics
        ]
    if any(line.get("lr") != run.lines[0].get("lr") for run in trained for line in run.lines):
        charts.append(Chart("lr", "Learning rate", curves.learning_rates(runs)))
    return charts


def time_charts(runs: Sequence[RunRecord]) -> list[Chart]:
    """Where time goes: over epochs, over ranks, over parts."""
    charts = []
    if any(run.lines for run in runs):
        note = "as the slowest rank saw it; the first, which warms up, may be beyond the axis"
        charts.append(Chart("epoch-time", "Time of an epoch", curves.epoch_times(runs), note))
    if any(run.ranks for run in runs):
        note = "mean over epochs; a rank's reduce includes waiting for the slowest rank"
        charts.append(Chart("rank-time", "Time by rank", rank_charts.rank_times(runs), note))
    tallest = max((chart.figure["layout"]["height"] for chart in charts), default=0)
    for chart in charts:  # side by side
        chart.figure["layout"]["height"] = tallest
    if any(run.profile and all(run.profile) for run in runs):
        hidden = [
            fmean(epoch["hidden_s"] for epoch in epochs)
            for run in runs
            for epochs in run.profile
            if epochs
        ]
        note = (
            "mean of the profiled epochs; the parts of a rank sum to its epoch. Beside them, "
            f"exchange hidden behind other work: {duration(min(hidden))} to {duration(max(hidden))}"
        )
        figure = rank_charts.profile_times(runs)
        charts.append(Chart("profile", "Profile by rank", figure, note, wide=True))
    return charts


def traffic_charts(runs: Sequence[RunRecord]) -> list[Chart]:
    """Who sends how much to whom, all on one scale; runs that send the same share a chart."""
    peak = rank_charts.peak_traffic(runs)
    alike: dict[str, list[RunRecord]] = {}
    for run in runs:
        if len(run.ranks) > 1:
            alike.setdefault(json.dumps([rank["bytes_to"] for rank in run.ranks]), []).append(run)
    charts = [
        Chart(
            f"traffic-{k}",
            "Traffic of an epoch" if len(runs) == 1 else ", ".join(run.name for run in group),
            rank_charts.traffic(group[0], peak),
        )
        for k, group in enumerate(alike.values())
    ]
    if len(runs) == 1 and charts:
        both = rank_charts.sent_and_received(runs[0])
        both["layout"]["height"] = charts[0].figure["layout"]["height"]
        charts.append(Chart("sent-received", "Sent and received by rank", both))
    return charts


def _title(metric: str) -> str:
    words = style.words(metric)
    return words[0].upper() + words[1:]


def _script(content: Any) -> Any:
    """JSON that may stand inside a script element."""
    markupsafe = need("markupsafe", "report", "gnndist report")
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return markupsafe.Markup(text.replace("</", "<\\/").replace("<!--", "<\\!--"))
