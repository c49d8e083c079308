from __future__ import annotations

from pagoda.config import EngineConfig, knobs
from pagoda.core.policies import POLICIES, make_policy
from pagoda.core.request import Request
from tests.core.driver import make_request


def in_order(requests: list[Request], **config: object) -> list[str]:
    policy = make_policy(EngineConfig(**config))  # type: ignore[arg-type]
    return [request.key.request_id for request in sorted(requests, key=policy.sort_key)]


def test_every_policy_that_the_configuration_offers_exists() -> None:
    assert set(knobs()["policy"][1].choices) == set(POLICIES)


def test_fcfs_goes_by_arrival_and_not_by_priority() -> None:
    requests = [
        make_request("late", arrival_time=2.0, priority=-9),
        make_request("early", arrival_time=1.0, priority=9),
    ]
    assert in_order(requests, policy="fcfs") == ["early", "late"]


def test_priority_lets_the_more_urgent_go_first() -> None:
    requests = [
        make_request("normal", arrival_time=1.0),
        make_request("urgent", arrival_time=2.0, priority=-1),
        make_request("background", arrival_time=0.0, priority=1),
    ]
    assert in_order(requests, policy="priority") == ["urgent", "normal", "background"]


def test_waiting_weighs_as_much_as_priority_after_the_ageing_time() -> None:
    waiting = make_request("waiting", arrival_time=0.0, priority=1)
    just_before = make_request("just before", arrival_time=9.0)
    just_after = make_request("just after", arrival_time=11.0)
    order = in_order([just_after, waiting, just_before], policy="priority", priority_ageing=10.0)
    assert order == ["just before", "waiting", "just after"]


def test_the_last_in_order_gives_way() -> None:
    running = [make_request("first"), make_request("last")]
    for name in POLICIES:
        assert make_policy(EngineConfig(policy=name)).pick_victim(running) is running[-1]
