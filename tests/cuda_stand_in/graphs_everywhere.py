"""Pytest plugin: every wrapper has ``Policy(graphs=True)``, and captures its first step of each kind.

At the end it prints how many forwards were graphs, and why the others were not. Tests of what a graph does not do, such
as Python code in a forward, are left out by name.
"""

import functools
from collections import Counter

import pytest

from dpbench.parallel import graphs, policy

LEFT_OUT = {
    "test_a_history_equals_that_of_the_stock_wrapper": "the models note what their Python code does",
    "test_the_last_layers_gradients_are_summed_while_the_first_ones_backward_runs": "a hook in the forward pauses",
    "test_a_graph_may_be_used_twice": "a second backward of one forward is an error",
    "test_what_a_capture_refuses_runs_eagerly": "this plugin takes the warning",
    "test_drawing_in_threads_warns": "graphs have no threads",
    "test_no_thread_outlives_its_wrapper": "graphs have no threads",
}
_forwards: Counter[str] = Counter()


def pytest_configure() -> None:
    graphs.WARM_UPS = 0
    object.__setattr__(policy.DEFAULT_POLICY, "graphs", True)
    make = policy.Policy.__init__
    policy.Policy.__init__ = functools.wraps(make)(lambda self, **values: make(self, **{"graphs": True, **values}))
    note = graphs.GraphReport.note

    def note_everywhere(report: graphs.GraphReport, text: str) -> None:
        _forwards[text.partition(" (")[0]] += 1
        report.has_warned = True  # a warning is an error in some tests
        note(report, text)

    graphs.GraphReport.note = note_everywhere


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if getattr(item, "originalname", item.name) in LEFT_OUT]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for text, count in _forwards.most_common():
        terminalreporter.write_line(f"{count} forwards: {text}")
    for name, reason in LEFT_OUT.items():
        terminalreporter.write_line(f"left out: {name}: {reason}")
