"""`pagoda plan` in the terminal: the plan as tables."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from pagoda.cli.plan_text import Grid, asked, grids, headline, verdict
from pagoda.cli.printed import printed
from pagoda.planning.plan import Plan

LEAST_WIDTH = 110


def show(plan: Plan, formulas: bool) -> None:
    """Prints the plan on stdout."""
    with printed(LEAST_WIDTH) as console:
        console.print(headline(plan), style="bold")
        console.print(asked(plan))
        console.print()
        console.print(verdict(plan), style="bold green" if plan.fits else "bold red")
        for remedy in plan.remedies:
            console.print(f"  {remedy.option:<28} {remedy.sentence}", style="red")
        for grid in grids(plan):
            console.print()
            console.print(grid.title, style="bold")
            console.print(grid_table(grid))
            if grid.note:
                console.print(grid.note, style="dim")
        if formulas and plan.formulas:
            console.print()
            console.print("How it is worked out", style="bold")
            for formula in plan.formulas:
                console.print(Text(f"  {formula.name}: {formula}"))
        console.print()
        console.print(Text.assemble(("Recommendation  ", "bold"), plan.recommendation))
        if plan.serve_command:
            console.print(Text.assemble(("Command         ", "bold"), plan.serve_command), soft_wrap=True)


def grid_table(grid: Grid) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, header in enumerate(grid.headers):
        words = index == 0 or header == "what it is"
        table.add_column(header, justify="left" if words else "right", overflow="fold")
    for index, row in enumerate(grid.rows):
        table.add_row(*row, style="dim" if index in grid.dim else None)
    return table
