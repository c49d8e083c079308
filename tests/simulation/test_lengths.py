"""Distributions of lengths have their moments and bounds, and their forms on the command line."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path
from statistics import fmean

import pytest

from pagoda.errors import InvalidValueError, PagodaError
from pagoda.simulation.lengths import Lognormal, Seen, Uniform, drawn, parse_lengths

COUNT = 20_000


def test_fixed_and_uniform() -> None:
    fixed = parse_lengths("--prompt-tokens", "512")
    assert set(islice(drawn(fixed, 0, "x"), 100)) == {512}
    assert (fixed.mean, fixed.longest) == (512, 512)
    wide = parse_lengths("--prompt-tokens", "10:20")
    lengths = list(islice(drawn(wide, 0, "x"), COUNT))
    assert set(lengths) == set(range(10, 21))
    # Eleven equal lengths have variance (11² - 1) / 12 = 10; four standard errors.
    assert abs(fmean(lengths) - wide.mean) < 4 * math.sqrt(10 / COUNT)
    assert wide.longest == 20


def test_lognormal_has_its_mean_median_and_variation() -> None:
    lengths = sorted(islice(drawn(parse_lengths("--prompt-tokens", "lognormal:500:0.8"), 0, "x"), COUNT))
    assert abs(fmean(lengths) - 500) < 4 * 500 * 0.8 / math.sqrt(COUNT)
    # The median is mean / sqrt(1 + variation²). Between ranks n/2 ± 2 sqrt(n) lie all medians but 1 in 15,000.
    median = 500 / math.sqrt(1 + 0.8**2)
    spread = round(2 * math.sqrt(COUNT))
    assert lengths[COUNT // 2 - spread] <= median <= lengths[COUNT // 2 + spread]
    # Logarithms are normal with variance log(1 + variation²); relative error of a variance: sqrt(2 / n). Rounding moves
    # a length of hundreds by a thousandth at most.
    logs = [math.log(length) for length in lengths]
    mean = fmean(logs)
    variance = fmean((value - mean) ** 2 for value in logs)
    assert abs(variance / math.log1p(0.8**2) - 1) < 4 * math.sqrt(2 / COUNT) + 0.002


def test_lognormal_stays_within_its_bounds() -> None:
    lengths = list(islice(drawn(Lognormal(4.0, 2.0, longest=10), 0, "x"), 1_000))
    assert min(lengths) == 1
    assert max(lengths) == 10


def test_lengths_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lengths"
    path.write_text("5\n\n 7 \n7\n")
    seen = parse_lengths("--output-tokens", f"file:{path}")
    assert seen == Seen((5, 7, 7))
    assert (seen.mean, seen.longest) == (19 / 3, 7)
    lengths = list(islice(drawn(seen, 0, "x"), COUNT))
    assert abs(lengths.count(7) / COUNT - 2 / 3) < 4 * math.sqrt(2 / 9 / COUNT)


@pytest.mark.parametrize(
    ("line", "limit"),
    [("0", "of at least|from 1"), ("-3", "number of tokens"), ("7.5", "number of tokens"), ("9" * 17, "from 1")],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, limit: str) -> None:
    path = tmp_path / "lengths"
    path.write_text(f"5\n{line}\n")
    with pytest.raises(InvalidValueError, match=rf"^line 2 of .*/lengths: got .*must be .*({limit})"):
        parse_lengths("--output-tokens", f"file:{path}")


def test_a_file_that_is_empty_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidValueError, match="one length a line; this one has none"):
        parse_lengths("--output-tokens", f"file:{tmp_path / 'empty'}")
    with pytest.raises(PagodaError, match=r"--output-tokens: .* cannot be read: No such file"):
        parse_lengths("--output-tokens", f"file:{tmp_path / 'nothing'}")
    with pytest.raises(PagodaError, match="not an ordinary file"):
        parse_lengths("--output-tokens", f"file:{tmp_path}")


@pytest.mark.parametrize(
    "form",
    ["", "x", "0", "-5", "1.5", "1_000", "٣", "20:10", "1:2:3", ":5", "5:", "lognormal", "lognormal:500", "lognormal:500:0:1",
     "lognormal:nan:1", "lognormal:500:inf", "lognormal:500:0", "lognormal:0:1", "zipf:2", "99999999999", "9" * 5_000],
)  # fmt: skip
def test_what_is_no_length_is_refused(form: str) -> None:
    with pytest.raises(InvalidValueError, match=r"^--prompt-tokens") as refused:
        parse_lengths("--prompt-tokens", form)
    assert len(str(refused.value)) < 300


def test_prompts_and_outputs_of_one_seed_are_independent() -> None:
    wide = Uniform(1, 1_000_000)
    prompts, outputs, again = (list(islice(drawn(wide, 3, what), 50)) for what in ("prompt", "output", "prompt"))
    assert prompts == again != outputs
