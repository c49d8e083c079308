"""`pagoda plan --png FILE`."""

from __future__ import annotations

from pagoda.cli.charts_png import charts_picture
from pagoda.cli.plan_charts import plan_charts
from pagoda.cli.plan_text import asked, headline
from pagoda.planning.plan import Plan


def plan_picture(plan: Plan) -> bytes:
    """The PNG file."""
    return charts_picture(f"{headline(plan)}\n{asked(plan)}", plan_charts(plan), "pagoda plan")
