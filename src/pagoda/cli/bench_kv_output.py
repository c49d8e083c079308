"""Where the results of `pagoda bench kv-cache` go: the terminal, a page, a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from pagoda.cli.bench_kv_charts import kv_charts
from pagoda.cli.bench_kv_recompute import Comparison
from pagoda.cli.bench_kv_view import damage_lines, equality, grids, headline, subject, verdict
from pagoda.cli.charts import svg
from pagoda.cli.charts_png import charts_picture
from pagoda.cli.console import UNSHOWN, note, print_json
from pagoda.cli.output_file import OutputFile
from pagoda.cli.page import page
from pagoda.cli.plan_view import LEAST_WIDTH, grid_table
from pagoda.cli.printed import printed
from pagoda.cli.terminal_chart import terminal_chart


def render(report: Mapping[str, Any], comparison: Comparison, json: bool) -> None:
    """On stdout: one JSON object, or tables and charts."""
    if json:
        print_json(report)
        return
    compared, allocation = grids(report)
    with printed(LEAST_WIDTH) as console:
        console.print(headline(report), style="bold")
        console.print(subject(report))
        console.print()
        console.print(grid_table(compared))
        console.print(compared.note, style="dim")
        console.print(f"{equality(report)} {verdict(report)}")
        for chart in kv_charts(comparison):
            console.print()
            console.print(Text(terminal_chart(chart).rstrip()), no_wrap=True)
        console.print()
        console.print("One block lost", style="bold")
        for line in damage_lines(report):
            console.print(Text(line.translate(UNSHOWN)), soft_wrap=True)
        console.print()
        console.print(allocation.title, style="bold")
        console.print(grid_table(allocation))
        console.print(allocation.note, style="dim")


def write_files(
    report: Mapping[str, Any], comparison: Comparison, html: OutputFile | None, png: OutputFile | None
) -> None:
    charts = kv_charts(comparison)
    if html is not None:
        html.write(kv_page(report, comparison).encode())
    if png is not None:
        png.write(charts_picture(f"{headline(report)}\n{subject(report)}", charts, "pagoda bench kv-cache"))
    for file in (html, png):
        if file is not None:
            note(f"Written: {file.path}")


def kv_page(report: Mapping[str, Any], comparison: Comparison) -> str:
    from markupsafe import Markup

    return page(
        "bench_kv_cache.html.j2",
        headline=headline(report),
        subject=subject(report),
        verdict=verdict(report),
        equality=equality(report),
        equal=report["equal"],
        charts=[(chart.title, Markup(svg(chart)), chart.description) for chart in kv_charts(comparison)],
        damage=damage_lines(report),
        grids=grids(report),
    )
