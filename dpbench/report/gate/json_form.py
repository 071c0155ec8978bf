"""A gate's judgement as one JSON object, and the exit code of each verdict.

SCHEMA history
    1  first.
"""

from typing import Any

from dpbench.gate.judgement import Judgement, Verdict

SCHEMA = 1
EXIT_CODES = {Verdict.PASS: 0, Verdict.SLOWER: 1, Verdict.UNDECIDED: 2, Verdict.BROKEN: 3}


def gate_json(judgement: Judgement) -> dict[str, Any]:
    """Return ``{"schema", "verdict", "exit_code", ...}`` and the fields of `Judgement`. All numbers are finite."""
    return {
        "schema": SCHEMA,
        "verdict": str(judgement.verdict),
        "exit_code": EXIT_CODES[judgement.verdict],
        **judgement.model_dump(mode="json"),
    }
