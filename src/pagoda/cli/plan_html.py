"""`pagoda plan --html FILE`: one page that needs nothing else: no network, no script, no font of its own."""

from __future__ import annotations

from pagoda.cli.charts import Stack, svg
from pagoda.cli.page import page
from pagoda.cli.plan_charts import plan_charts
from pagoda.cli.plan_text import asked, duration, grids, headline, interval, rate, requests, verdict
from pagoda.planning.plan import Plan


def plan_page(plan: Plan) -> str:
    """The whole page. What comes from outside, such as a model's name, is escaped by the template."""
    from markupsafe import Markup

    # The stack's words are the verdict, which the page has already.
    charts = [
        (chart.title, Markup(svg(chart)), "" if isinstance(chart, Stack) else chart.description)
        for chart in plan_charts(plan)
    ]
    return page(
        "plan.html.j2",
        plan=plan,
        headline=headline(plan),
        asked=asked(plan),
        verdict=verdict(plan),
        tiles=_tiles(plan),
        charts=charts,
        grids=grids(plan),
        formulas=[(formula.name, str(formula)) for formula in plan.formulas],
    )


def _tiles(plan: Plan) -> list[tuple[str, str, str]]:
    """The figures that people look for first: (what, figure, remark)."""
    decode, prefill = plan.decode, plan.prefill
    return [
        ("requests that fit", f"{plan.max_concurrency:,}", f"of {plan.context:,} tokens each"),
        ("longest context", f"{plan.max_context:,}", f"tokens, for {requests(plan.concurrency)}"),
        (
            "a token, at least",
            duration(decode.seconds),
            f"bound by {decode.limit}; expected {interval(plan.decode_estimate)}",
        ),
        ("tokens/s, at most", rate(plan.concurrency / decode.seconds), f"of {requests(plan.concurrency)} together"),
        (
            "prompt, at least",
            duration(prefill.seconds),
            f"bound by {prefill.limit}; expected {interval(plan.prefill_estimate)}",
        ),
    ]
