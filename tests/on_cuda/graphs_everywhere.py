"""Pytest plugin: every wrapper has ``Policy(graphs=True)``, and captures its first step of each kind.

At the end it prints how many forwards were graphs, and why the others were not, in which tests. Tests of what a graph
does not do, such as Python code in a forward, are left out by name.
"""

import functools
import os
from collections import Counter, defaultdict

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
_tests: dict[str, set[str]] = defaultdict(set)
"""The names of the tests with a forward of each kind, without their parameters."""


def pytest_configure() -> None:
    graphs.WARM_UPS = 0
    object.__setattr__(policy.DEFAULT_POLICY, "graphs", True)
    make = policy.Policy.__init__
    policy.Policy.__init__ = functools.wraps(make)(lambda self, **values: make(self, **{"graphs": True, **values}))
    note = graphs.GraphReport.note

    def note_everywhere(report: graphs.GraphReport, text: str) -> None:
        kind = text.partition(" (")[0]
        _forwards[kind] += 1
        _tests[kind].add(os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].partition("[")[0].partition(" ")[0])
        report.has_warned = True  # a warning is an error in some tests
        note(report, text)

    graphs.GraphReport.note = note_everywhere


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if getattr(item, "originalname", item.name) in LEFT_OUT]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for text, count in _forwards.most_common():
        names = sorted(_tests[text]) if text.startswith("eager") else []
        terminalreporter.write_line(f"{count} forwards: {text} {' '.join(names)}")
    for name, reason in LEFT_OUT.items():
        terminalreporter.write_line(f"left out: {name}: {reason}")
