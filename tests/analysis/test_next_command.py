"""What to type to measure a setting again."""

import pytest

from dpbench.analysis.answer import next_command
from dpbench.analysis.summary import summarise
from tests.analysis.test_compare_variants import rounds
from tests.records.making import case


def command(variant="tuned", step_s=0.1, **changed):
    measured = case(variant).model_copy(update=changed)
    return next_command([summarise(rounds(measured, step_s, step_s))], 7)


def test_names_are_quoted_and_only_what_differs_from_the_defaults_is_named():
    line = command("tuned[dispatch=threads]")
    place = "--workloads mlp/tiny --batch 64 --devices 'cpu*2' --threads 2"
    assert line.startswith(f"dpbench compare --variants 'tuned[dispatch=threads]' {place} --rounds 7 --budget ")
    assert " --seed 3 --steps-per-sample 5 --rounds 7 " in command(seed=3, steps_per_sample=5)


@pytest.mark.parametrize("changed", [{"machines": 2}, {"workload": "given:my_model"}])
def test_what_no_command_line_names_is_the_same_again(changed):
    assert command(**changed).startswith("the same with --rounds 7 --budget ")


def test_slow_steps_need_a_longer_budget():
    quick, slow = (int(command(step_s=step_s).split()[-1].removesuffix("s")) for step_s in (0.01, 1.0))
    assert slow > quick > 7 * 3  # seven rounds, each with a start, the case and one device
