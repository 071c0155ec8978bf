"""The plan of the routes, and the choice between them."""

from dataclasses import replace
from itertools import pairwise, permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpbench.parallel import DataParallel, Policy, routes
from dpbench.parallel.layout import cut
from dpbench.parallel.links import ProbeTimes, measure
from dpbench.parallel.policy import Route
from dpbench.parallel.routes import Links, choose, downwards, has_pieces, hops_of, parents_of, reason
from dpbench.parallel.transfer import check_route
from tests.parallel.models import mlp


def all_peers(*heads, corrupt=()):
    both_ways = {pair for one, other in corrupt for pair in ((one, other), (other, one))}
    return Links(heads, frozenset(permutations(sorted(set(heads)), 2)), frozenset(both_ways))


@pytest.mark.parametrize(
    ("route", "heads", "parents"),
    [
        ("star", (0, 1, 2, 3), (0, 0, 0, 0)),
        ("chain", (0, 1, 2, 3), (0, 0, 1, 2)),
        ("star", (0, 1, 1, 3), (0, 0, 0, 0)),
        ("chain", (0, 1, 1, 3), (0, 0, 1, 1)),
        ("chain", (0, 1, 0, 1, 4), (0, 0, 0, 1, 1)),
        ("auto", (0, 0, 0), (0, 0, 0)),
        ("auto", (0, 1), (0, 0)),
        ("auto", (0, 1, 2), (0, 0, 1)),
    ],
)
def test_the_parents_of_each_route(route, heads, parents):
    assert parents_of(Route(route), all_peers(*heads)) == parents


def test_a_chain_avoids_links_that_corrupt_bytes():
    assert parents_of(Route.CHAIN, all_peers(0, 1, 2, 3, corrupt=[(0, 1)])) == (0, 2, 0, 1)
    assert parents_of(Route.CHAIN, all_peers(0, 1, 2, 3, corrupt=[(1, 2)])) == (0, 0, 3, 1)


def test_a_chain_that_must_use_a_corrupt_link_keeps_the_callers_order():
    links = all_peers(0, 1, 2, corrupt=[(2, 0), (2, 1)])
    assert choose(links) is Route.STAR
    assert parents_of(Route.CHAIN, links) == (0, 0, 1)


def test_one_direction_that_corrupts_is_enough():
    links = Links((0, 1, 2), all_peers(0, 1, 2).peers, frozenset({(1, 0)}))
    assert parents_of(Route.CHAIN, links) == (0, 2, 0)


def test_auto_takes_the_star_where_no_chain_of_peers_exists():
    islands = frozenset({*permutations((0, 1), 2), *permutations((2, 3), 2)})
    assert choose(Links((0, 1, 2, 3), islands)) is Route.STAR
    bridged = Links((0, 1, 2, 3), islands | {(1, 3), (3, 1)})
    assert choose(bridged) is Route.CHAIN
    assert parents_of(Route.AUTO, bridged) == (0, 0, 3, 1)


STRANGERS = Links((0, 1, 2, 3), frozenset())


@pytest.mark.parametrize(
    ("links", "seconds", "chosen"),
    [
        (all_peers(0, 1, 2), (), "chain"),
        (all_peers(0, 1, 2), (("chain", 0.2), ("star", 0.19)), "chain"),
        (all_peers(0, 1, 2), (("chain", 0.2), ("star", 0.1)), "star"),
        (STRANGERS, (), "star"),
        (STRANGERS, (("star", 0.2), ("chain", 0.1)), "chain"),
        (STRANGERS, (("star", 0.2), ("chain", 0.19)), "star"),
        (Links((0, 1, 1), frozenset()), (("star", 0.2), ("chain", 0.1)), "star"),
    ],
)
def test_auto_takes_another_route_only_if_it_measures_faster(links, seconds, chosen):
    measured = replace(links, seconds=tuple((Route(route), second) for route, second in seconds))
    assert choose(measured) == chosen
    assert ("measured" in reason(measured)) is (len(seconds) > 1 and choose(measured) in dict(seconds))


FAST, SLOW = 100e9, 20e9


def rated(slow, count=4):
    """Peers all round; these pairs are slow, and all rates are known."""
    links = all_peers(*range(count))
    pairs = [pair for pair in permutations(range(count), 2) if pair[0] < pair[1]]
    return replace(links, rates=tuple((pair, SLOW if pair in slow else FAST) for pair in pairs))


def test_a_chain_avoids_slow_links_where_it_can():
    assert parents_of(Route.AUTO, rated([(1, 2)])) == (0, 0, 3, 1)
    assert parents_of(Route.CHAIN, rated([(0, 1), (0, 3)])) == (0, 2, 0, 1)


def test_a_chain_that_must_take_a_slow_link_keeps_the_callers_order():
    between_sockets = [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert parents_of(Route.CHAIN, rated(between_sockets)) == (0, 0, 1, 2)


def test_links_whose_rates_are_alike_keep_the_callers_order():
    links = replace(all_peers(0, 1, 2), rates=(((0, 1), 0.85 * FAST), ((0, 2), FAST), ((1, 2), 0.9 * FAST)))
    assert parents_of(Route.CHAIN, links) == (0, 0, 1)


def test_a_link_that_was_not_measured_is_tried_before_a_slow_one():
    links = replace(all_peers(0, 1, 2, 3), rates=(((0, 1), FAST), ((1, 2), SLOW)))
    assert parents_of(Route.CHAIN, links) == (0, 0, 3, 1)


@pytest.mark.parametrize(
    ("links", "is_cut"),
    [
        (all_peers(0, 1, 2, 3), True),
        (rated([]), False),
        (rated([(1, 2)]), False),
        (rated([(0, 2), (0, 3), (1, 2), (1, 3)]), True),
    ],
    ids=["not measured", "fast", "a slow link that is not used", "a slow link"],
)
def test_a_bucket_is_passed_on_whole_where_a_piece_takes_less_than_its_issue(links, is_cut, monkeypatch):
    monkeypatch.setattr(routes, "ISSUE_S", routes.PIECE_BYTES / (FAST / 2))
    assert has_pieces(Route.CHAIN, links) is is_cut


@pytest.mark.parametrize(
    ("corrupt", "seconds", "chosen"),
    [
        ([], (("chain", 0.2), ("star", 0.3), ("nccl", 0.1)), "nccl"),
        ([], (("chain", 0.2), ("star", 0.3), ("nccl", 0.19)), "chain"),
        ([], (("chain", 0.2), ("star", 0.3)), "chain"),
        ([(2, 1)], (("chain", 0.2), ("star", 0.3), ("nccl", 0.1)), "chain"),
    ],
    ids=["faster", "as fast", "failed", "beside a corrupt link"],
)
def test_auto_takes_nccl_only_if_it_measures_faster_and_all_links_are_sound(corrupt, seconds, chosen):
    links = replace(all_peers(0, 1, 2, 3, corrupt=corrupt), has_nccl=True)
    assert choose(replace(links, seconds=tuple((Route(route), second) for route, second in seconds))) == chosen


def test_two_lanes_take_no_nccl():
    assert choose(replace(all_peers(0, 1), has_nccl=True, seconds=((Route.NCCL, 0.1), (Route.STAR, 0.2)))) is Route.STAR


def test_a_bucket_takes_as_long_as_the_host_or_the_devices():
    assert ProbeTimes(host_s=0.3, device_s=0.1).bucket_s == 0.3
    assert ProbeTimes(host_s=0.01, device_s=0.32).bucket_s == pytest.approx(0.1)


def test_the_copies_of_each_route():
    assert hops_of(Route.STAR, STRANGERS)[0] == ((0, 1), (0, 2), (0, 3))
    assert hops_of(Route.CHAIN, all_peers(0, 1, 1, 3)) == (((0, 1), (1, 3)), ((1, 0), (3, 1)))


def test_cpu_lanes_are_not_measured():
    hops = ((Route.STAR, hops_of(Route.STAR, STRANGERS)),)
    assert measure((torch.device("cpu"),) * 4, hops) == ()


@given(st.data())
def test_every_plan_leads_to_all_lanes_and_only_the_stars_has_two_links_into_a_device(data):
    devices = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=8))
    heads = tuple(devices.index(device) for device in devices)
    pairs = list(permutations(sorted(set(heads)), 2))
    some = st.frozensets(st.sampled_from(pairs)) if pairs else st.just(frozenset())
    links = Links(heads, data.draw(some), data.draw(some))
    for route in Route:
        parents = parents_of(route, links)
        assert sorted(downwards(parents)) == list(range(len(heads)))
        is_star = not any(parents)
        assert is_star or all(heads[lane] == lane or parents[lane] == heads[lane] for lane in range(len(heads)))
        order = downwards(parents)
        assert all(order.index(parents[lane]) < order.index(lane) for lane in order[1:])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5))))
def test_a_chain_avoids_corrupt_links_wherever_an_order_does(corrupt):
    links = all_peers(*range(6), corrupt=corrupt)
    orders = [(0, *rest) for rest in permutations(range(1, 6))]
    exists = any(all(links.are_sound(*hop) for hop in pairwise(order)) for order in orders)
    parents = parents_of(Route.CHAIN, links)
    assert all(links.are_sound(parent, lane) for lane, parent in enumerate(parents) if lane) is exists


@pytest.mark.parametrize(
    ("count", "dtype", "lengths"), [(10, "float", [4, 4, 2]), (4, "float", [4]), (3, "complex128", [1, 1, 1])]
)
def test_pieces_cover_a_flat_once(count, dtype, lengths, monkeypatch):
    monkeypatch.setattr(routes, "PIECE_BYTES", 16)
    flat = torch.arange(count).to(getattr(torch, dtype))
    assert [len(piece) for piece in cut(flat)] == lengths
    assert torch.equal(torch.cat(list(cut(flat))), flat)


@pytest.mark.parametrize("value", ["ring", "tree", "host", "NCCL", None, 1])
def test_a_route_that_does_not_exist_is_named_with_those_that_do(value):
    with pytest.raises(ValueError, match=r"Policy.route is .*; 'auto', 'star', 'chain', 'nccl' are allowed"):
        Policy(route=value)


def test_devices_that_cannot_take_a_route_are_named():
    with pytest.raises(ValueError, match=r"Policy.route is 'nccl', but the lanes are on 'cpu'; CUDA devices, each"):
        DataParallel(mlp(), ["cpu"] * 2, policy=Policy(route="nccl"))
    cuda = [torch.device("cuda", i) for i in (0, 1, 1)]
    with pytest.raises(ValueError, match=r"Policy.route is 'nccl', but cuda:1 has several lanes"):
        check_route(Policy(route="nccl"), cuda)


@pytest.mark.parametrize("route", [route for route in Route if route is not Route.NCCL])
def test_cpu_lanes_have_no_route(route):
    wrapper = DataParallel(mlp(), ["cpu"] * 4, policy=Policy(route=route))
    assert not any(lane.children for lane in wrapper._replicas.streams.lanes(4, is_overlapped=True)[1:])
