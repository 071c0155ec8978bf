"""When the host issues sums of gradients, in events made by hand."""

from dpbench.measure.counted.dependencies import IssueOrder, Reductions, issue_order
from dpbench.records.recording import Copy, Operator

BYTES = 100
LANES = [Operator(id=i, name="mm", device=0, stream=0) for i in (10, 20, 30, 40)]


def issued(*sums):
    """The counters of sums, each (the id of its last gradient, the id of its copy)."""
    copies = [
        Copy(id=copy, source=1, destination=0, size_bytes=BYTES, stream=1, inputs=(ready,)) for ready, copy in sums
    ]
    inputs = {copy.id: copy.inputs for copy in copies}
    return issue_order(Reductions(copies, inputs, {copy.id: copy.id for copy in copies}, LANES))


def test_a_sum_behind_its_last_gradient_is_early():
    assert issued((10, 11), (20, 21)) == IssueOrder(at_half_bytes=2 * BYTES, operators_before=0, swaps=0)


def test_a_sum_in_the_second_half_is_not_issued_at_half_and_each_operator_before_it_counts():
    assert issued((10, 41)) == IssueOrder(at_half_bytes=0, operators_before=3, swaps=0)


def test_two_sums_in_the_opposite_order_of_their_gradients_are_a_swap():
    assert issued((10, 42), (20, 41)) == IssueOrder(at_half_bytes=0, operators_before=5, swaps=1)


def test_a_step_without_sums_has_zeros():
    assert issue_order(Reductions([], {}, {}, [])) == IssueOrder(0, 0, 0)
