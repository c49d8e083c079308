"""Buffers that live at the same time never share a byte, and the arena is no larger than it must be by much."""

from hypothesis import given
from hypothesis import strategies as st

from pagoda.planning.arena import Buffer, place

buffers = st.lists(
    st.builds(
        lambda size, first, length: Buffer(size, first, first + length),
        st.integers(1, 1000),
        st.integers(0, 30),
        st.integers(0, 10),
    ),
    max_size=30,
)


def aligned(size: int) -> int:
    return -(-size // 64) * 64


@given(buffers)
def test_what_lives_together_lies_apart(planned: list[Buffer]) -> None:
    offsets, size = place(planned)
    for index, (one, start) in enumerate(zip(planned, offsets, strict=True)):
        assert start % 64 == 0
        assert start + one.num_bytes <= size
        for other, there in list(zip(planned, offsets, strict=True))[:index]:
            if one.first <= other.last and other.first <= one.last:
                assert start + one.num_bytes <= there or there + other.num_bytes <= start


@given(buffers)
def test_the_arena_is_between_the_fullest_moment_and_the_sum(planned: list[Buffer]) -> None:
    _, size = place(planned)
    moments = [
        sum(aligned(buffer.num_bytes) for buffer in planned if buffer.first <= moment <= buffer.last)
        for moment in range(42)
    ]
    assert max(moments) <= size <= sum(aligned(buffer.num_bytes) for buffer in planned)


def test_a_place_that_is_free_again_is_used_again() -> None:
    assert place([Buffer(100, 0, 1), Buffer(100, 2, 3), Buffer(64, 1, 2)]) == ([0, 0, 128], 192)


def test_a_gap_is_filled() -> None:
    assert place([Buffer(640, 0, 9), Buffer(320, 0, 1), Buffer(256, 2, 9), Buffer(64, 0, 3)])[1] == 640 + 320 + 64


def test_nothing_needs_nothing() -> None:
    assert place([]) == ([], 0)
