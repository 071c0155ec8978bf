"""A gate's history over many commits, with changes that last."""

from datetime import UTC, datetime, timedelta
from random import Random

from dpbench.gate.history import HistoryLine
from dpbench.gate.judgement import Verdict
from dpbench.records.record import Environment
from tests.gate.making_history import line, times
from tests.report.page.making_commits import commit
from tests.report.page.making_page import HOSTILE, LANES

FIRST_DAY = datetime(2026, 9, 1, 12, tzinfo=UTC)
SLOWER_AT, FASTER_AT, FAILED_AT = 12, 16, 5
"""Commit 12 makes "wide" 1.3 times as long for good, and 16 "deep" 0.7 times. Gate 5 is slower, and no later one."""


def gate_lines(gates: int = 20, environment: Environment = LANES, seed: int = 3) -> list[HistoryLine]:
    """Return a gate a day. Gate n compares commit n with commit n + 1."""
    random = Random(seed)
    return [_gate(number, environment, random) for number in range(gates)]


def hostile_gate_lines() -> list[HistoryLine]:
    """Return gates whose texts are hostile wherever a line of the history may have any text."""
    environment = LANES.model_copy(update={"hostname": HOSTILE[0] + HOSTILE[3], "cpu_model": HOSTILE[1]})
    lines = []
    for gate in gate_lines(environment=environment):
        names = {"wide": HOSTILE[0] + HOSTILE[2], "deep": HOSTILE[6] + HOSTILE[5]}
        own = tuple(
            times.model_copy(update={"name": names[times.name], "case": HOSTILE[1]}) for times in gate.benchmarks
        )
        commits = {"base_commit": HOSTILE[1] + gate.base_commit, "head_commit": HOSTILE[2] + str(gate.head_commit)}
        lines.append(gate.model_copy(update={"benchmarks": own, **commits}))
    return [*lines, lines[-1].model_copy(update={"head_commit": HOSTILE[0], "base_commit": ""})]


def _gate(number: int, environment: Environment, random: Random) -> HistoryLine:
    def step_s(name: str, at: int) -> float:
        level_s = {"wide": 0.012, "deep": 0.048}[name]
        lasts = 1.3 if name == "wide" and at >= SLOWER_AT else 0.7 if name == "deep" and at >= FASTER_AT else 1.0
        outlier = 1.2 if name == "wide" and at == FAILED_AT + 1 == number + 1 else 1.0
        return level_s * lasts * outlier * random.gauss(1, 0.008)

    own = [times(name, step_s(name, number), step_s(name, number + 1), rounds=12) for name in ("wide", "deep")]
    is_slower = number in (FAILED_AT, SLOWER_AT - 1)
    here = environment.model_copy(update={"commit": commit(number + 1), "dirty": False})
    return line(commit(number), commit(number + 1), *own, environment=here).model_copy(
        update={
            "started_at": (FIRST_DAY + timedelta(days=number)).isoformat(),
            "verdict": Verdict.SLOWER if is_slower else Verdict.PASS,
        }
    )
