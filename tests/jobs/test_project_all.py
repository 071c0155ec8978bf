"""What the wrapper's policy "auto" takes on described machines, and how its variants are projected there."""

import pytest

from dpbench.cases.variants import VariantId
from dpbench.engine.interpret import ChildError
from dpbench.engine.messages import AutoChoice, AutoChoices
from dpbench.jobs.project_all import count_for, described_links, project_machine, ways_of
from dpbench.jobs.ways_child import choice_on, links_on
from dpbench.parallel.policy import Route
from dpbench.parallel.routes import reason
from dpbench.projection.machine_file import load_machine
from dpbench.projection.step_sum import Setting
from tests.fakes import ended
from tests.simulated import needs_simulator

TUNED = VariantId("tuned")


def links(name):
    return described_links(load_machine(name))


@pytest.mark.parametrize(
    ("machine", "route"),
    [
        ("2xV100-pcie", Route.STAR),
        ("4x4090-pcie", Route.CHAIN),
        ("8x2080Ti-pcie", Route.CHAIN),
        ("4xL4-pcie", Route.CHAIN),
        ("8xV100-pcie", Route.CHAIN),
        ("8xA100-nvswitch", Route.CHAIN),
    ],
)
def test_more_than_two_gpus_take_a_chain(machine, route):
    assert choice_on(links(machine)).route == route


def test_on_gpus_three_ways_of_dispatch_are_measured():
    assert choice_on(links("8xV100-pcie")).dispatches == ("sequence", "threads")


def test_copies_that_share_a_link_slow_each_other_down():
    """A star sends seven copies over the first device's link, a chain one."""
    choice = links_on(links("8xV100-pcie"))
    seconds = dict(choice.seconds)
    assert seconds[Route.STAR] > 4 * seconds[Route.CHAIN]
    assert "measured" in reason(choice)


class FakeChooser:
    """Answers each request with one choice for each machine, and counts the requests."""

    def __init__(self, end=None, *, whole_buckets=False):
        self.end, self.requests, self.whole_buckets = end, 0, whole_buckets

    def __call__(self, command, stdin_text, timeout_s):
        self.requests += 1
        if self.end is not None:
            return self.end
        choice = AutoChoice(route="chain", whole_buckets=self.whole_buckets, dispatches=("sequence", "threads"))
        return ended(0, AutoChoices(machines=(choice, choice)).model_dump_json().encode())


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("tuned", ["tuned[dispatch=sequence,route=chain]", "tuned[dispatch=threads,route=chain]"]),
        ("tuned[dispatch=threads]", ["tuned[dispatch=threads,route=chain]"]),
        ("tuned[route=star]", ["tuned[dispatch=sequence,route=star]", "tuned[dispatch=threads,route=star]"]),
    ],
)
def test_a_variant_has_the_ways_that_it_leaves_open(variant, expected):
    machines = [load_machine("4xL4-pcie"), load_machine("2xV100-pcie")]
    four, two = ways_of([VariantId(variant)], machines, launch=FakeChooser())
    assert four == {variant: expected}
    # Two devices have one route.
    assert all("route=chain" not in way for way in two[VariantId(variant)])


def test_a_chain_of_fast_links_passes_buckets_on_whole():
    assert [choice_on(links(name)).whole_buckets for name in ("8xV100-pcie", "8xH100-sxm")] == [False, True]
    machines, variants = (
        [load_machine("4xL4-pcie")] * 2,
        [VariantId("tuned[graphs=true]"), VariantId("tuned[route=star]")],
    )
    ways, _ = ways_of(variants, machines, launch=FakeChooser(whole_buckets=True))
    assert ways[variants[0]] == ["tuned[dispatch=sequence,graphs=true,route=chain,whole_buckets=true]"]
    assert ways[variants[1]] == ["tuned[dispatch=sequence,route=star]", "tuned[dispatch=threads,route=star]"]


def test_no_child_is_started_if_nothing_is_chosen():
    chooser = FakeChooser()
    several_machines = load_machine("2x8xV100-100gb")
    fixed = VariantId("tuned[dispatch=threads,route=star]")
    assert ways_of([VariantId("ddp"), fixed], [load_machine("4xL4-pcie")], launch=chooser) == ({},)
    assert ways_of([TUNED], [several_machines], launch=chooser) == ({},)
    assert chooser.requests == 0


def test_a_child_that_fails_is_reported():
    with pytest.raises(ChildError, match="asking for the wrapper's choices failed: killed by SIGSEGV"):
        ways_of([TUNED], [load_machine("4xL4-pcie")], launch=FakeChooser(ended(-11)))


@needs_simulator
def test_the_fastest_way_is_projected_and_named():
    machine = load_machine("4x3090-pcie")
    (ways,) = ways_of([TUNED], [machine])
    assert len(ways[TUNED]) == 2
    counted = count_for("mlp/tiny", [TUNED], [machine], [ways])
    projected = project_machine(machine, counted, "mlp/tiny", [TUNED], ways=ways, setting=Setting())
    apart = project_machine(machine, counted, "mlp/tiny", ways[TUNED], ways={}, setting=Setting())
    times = {row.variant: row.sum.step_s for row in apart.rows}
    fastest = min(times, key=times.get)
    assert projected.rows[0].variant == TUNED
    assert projected.rows[0].sum.step_s == times[fastest] < max(times.values())
    assert any(note.startswith(f"tuned: projected as {fastest};") for note in projected.notes)
    assert not any("projected as" in note for note in apart.notes)
