"""The comparison of variants, and the advice."""

import pytest

from dpbench.cases.variants import VariantId
from dpbench.projection.choice import advice, memory_notes, ratio_of, rests_on, rows_of, words_of
from dpbench.projection.step_sum import Fitted, Part, StepSum

SINGLE, STOCK, TUNED, DDP = map(VariantId, ("single", "torch_dp", "tuned", "ddp"))
SURE, UNSURE = Fitted(step_error=1.3, ratio_error=1.01), Fitted(step_error=1.3, ratio_error=1.2)


def made(compute_s=0.1, host_s=0.02, devices=4, memory_bytes=None, **parts):
    named = {Part.COMPUTE: compute_s, **{Part[name]: seconds for name, seconds in parts.items()}}
    return StepSum(devices, 4 * 32, named, host_s, memory_bytes=memory_bytes, device_memory_bytes=1e9)


def rows(fitted=SURE, *, knows_one=False, **sums):
    named = {VariantId(name): step_sum for name, step_sum in sums.items()}
    return rows_of(named, made(devices=1), fitted, knows_one=knows_one)


def test_a_row_has_the_interval_that_published_steps_give():
    (row,) = rows(UNSURE, ddp=made())
    assert (row.step_time_s.low, row.step_time_s.high) == pytest.approx((0.1 / 1.3, 0.13))
    assert (row.speed_up.low, row.speed_up.value, row.speed_up.high) == pytest.approx((4 / 1.2, 4, 4.8))
    (known,) = rows(UNSURE, knows_one=True, ddp=made())
    assert known.step_time_s.high == pytest.approx(0.12)
    assert rows(single=made(devices=1))[0].speed_up.high == 1  # the error of one device's speed cancels


def test_a_ratio_has_the_errors_of_both_schemes():
    one, two = made(devices=1), made(0.2)
    assert ratio_of(two, one, UNSURE).high == pytest.approx(2 * 1.2)
    assert ratio_of(two, made(), UNSURE).high == pytest.approx(2 * 1.2**2**0.5)
    assert ratio_of(one, one, UNSURE).high == 1


def test_the_parts_are_words():
    assert words_of(made(0.097, GRADIENTS=0.003)) == "computation 97 ms + exposed gradients 3 ms; the host needs 20 ms"
    assert words_of(made(0.097, OUTPUTS=1e-5)) == "computation 97 ms; the host needs 20 ms"
    assert words_of(made(host_s=0.2)) == "the host needs 200 ms; computation 100 ms"
    slow = StepSum(1, 1, {Part.COMPUTE: 0.1}, 0.1, loader_s=2.0)
    assert words_of(slow) == "the loader needs 2000 ms; computation 100 ms"


def test_an_order_is_claimed_where_its_interval_excludes_one():
    sums = {"tuned": made(0.1), "torch_dp": made(0.12)}
    text = advice(rows(SURE, **sums), "M", SURE)
    assert text.startswith(
        "On M use tuned: 1,280 items a second; its step takes 1.00 times (0.99 to 1.01) that of one "
    )
    assert "0.83 times (0.82 to 0.85) that of torch_dp" in text
    assert "the best is not decided between tuned and torch_dp: tuned has" in advice(rows(UNSURE, **sums), "M", UNSURE)
    three = advice(rows(UNSURE, ddp=made(), **sums), "M", UNSURE, 1.9)
    assert "between tuned, ddp and torch_dp" in three or "between ddp, tuned and torch_dp" in three
    assert three.endswith("; with twice the batch a step takes 1.90 times as long.")


def test_an_order_that_rests_on_what_no_row_tests_is_said():
    tuned, stock = rows(tuned=made(0.1, WEIGHTS=0.01), torch_dp=made(0.1, WEIGHTS=0.02))
    assert rests_on(stock, tuned) is None  # without its own weights tuned were faster still
    slower, faster = rows(tuned=made(0.1, START=0.03), ddp=made(0.1, BESIDE=0.01))
    assert rests_on(slower, faster) is Part.START
    bound, free = rows(tuned=made(host_s=0.3), ddp=made())
    assert rests_on(bound, free) is Part.HOST
    assert "rests on the host, which no published step tests" in advice([bound, free], "M", SURE)
    wide, narrow = rows(torch_dp=made(0.1, devices=8, WEIGHTS=0.05), ddp=made(devices=8))
    assert rests_on(wide, narrow) is Part.WEIGHTS  # published stock steps are on two and four devices


def test_what_does_not_fit_is_named_and_not_advised():
    table = rows(tuned=made(0.05, memory_bytes=2.0**31), ddp=made(memory_bytes=1e8))
    assert advice(table, "M", SURE).startswith("On M use ddp")
    assert memory_notes(table) == ["tuned does not fit: a device needs 2.0 GiB of 0.9 GiB"]
    assert advice(table[:1], "M", SURE) == "On M no scheme for several devices fits into memory; take a smaller batch."


def test_without_a_sum_nothing_is_advised():
    assert advice(rows(single=made(devices=1)), "M", SURE) == ("On M no scheme for several devices could be projected.")
