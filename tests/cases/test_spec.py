from pathlib import Path

import pytest

from dpbench.cases.names import Data, Dtype, Mode
from dpbench.cases.spec import Spec, SpecError, from_options, load_spec
from dpbench.cases.variants import VariantName

FULL = """
variants = ["tuned", "naive"]
workloads = ["mlp/small", "my.pkg:factory"]
batch = [64, 256]
devices = ["cpu*2", "cuda:0+cuda:1"]
modes = ["train", "infer"]
dtypes = ["float32", "bfloat16"]
data = "digits"
rounds = 3
budget = "2m"
case_time = 0.5
timeout = 90
threads = 4
seed = 7
steps_per_sample = 20
reference = "naive"
"""
OPTIONS = {
    "variants": "tuned,naive",
    "workloads": "mlp/small, my.pkg:factory",
    "batch": "64,256",
    "devices": "cpu*2,cuda:0+cuda:1",
    "modes": "train,infer",
    "dtypes": "float32,bfloat16",
    "data": "digits",
    "rounds": "3",
    "budget": "2m",
    "case_time": "0.5",
    "timeout": "90",
    "threads": "4",
    "seed": "7",
    "steps_per_sample": "20",
    "reference": "naive",
}


def loaded(folder: Path, text: str) -> Spec:
    path = folder / "sweep.toml"
    path.write_text(text)
    return load_spec(path)


def test_a_file_and_options_with_the_same_names_are_the_same_spec(tmp_path: Path) -> None:
    spec = loaded(tmp_path, FULL)
    assert spec == from_options(OPTIONS)
    assert spec == Spec(
        variants=(VariantName.TUNED, VariantName.NAIVE),
        workloads=("mlp/small", "my.pkg:factory"),
        batch=(64, 256),
        devices=("cpu*2", "cuda:0+cuda:1"),
        modes=(Mode.TRAIN, Mode.INFER),
        dtypes=(Dtype.FLOAT32, Dtype.BFLOAT16),
        data=Data.DIGITS,
        rounds=3,
        budget=120,
        case_time=0.5,
        timeout=90,
        threads=4,
        seed=7,
        steps_per_sample=20,
        reference=VariantName.NAIVE,
    )
    assert spec.devices == (("cpu", "cpu"), ("cuda:0", "cuda:1"))
    assert (spec.budget_s, spec.case_time_s, spec.timeout_s) == (120.0, 0.5, 90.0)


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    assert loaded(tmp_path, "") == from_options({}) == from_options({"batch": None}) == Spec()
    assert Spec().devices is None
    assert Spec().threads is None
    assert Spec().reference is None


def test_options_may_be_numbers_already() -> None:
    assert from_options({"rounds": 3, "budget": 90.5}).budget_s == 90.5


VARIANTS = (
    "single, torch_dp, naive, floor, tuned, ddp, fsdp, package.module:callable, or one with parameters in brackets, "
    "such as tuned[dispatch=threads,coalesce=false]"
)
LIST = f"allowed: a list of {VARIANTS}"
STEPS = "a whole number from 1 to 100000"
WHOLE_BATCH = "a list of whole numbers from 1 to 2**31 - 1"
HUGE = "1" + "0" * 17 + "..." + "0" * 19
DURATION = "seconds as a number, or text such as 90s, 2m, 1.5h; above 0, at most 168h"
KEYS = (
    "variants, workloads, batch, devices, modes, dtypes, data, rounds, "
    "budget, case_time, timeout, threads, seed, steps_per_sample, reference"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('varients = ["tuned"]', f"varients: unknown key, did you mean 'variants'?; allowed: {KEYS}"),
        ("budget_s = 3", f"budget_s: unknown key, did you mean 'budget'?; allowed: {KEYS}"),
        ('variants = ["tunned"]', f"variants: 'tunned' is no variant, did you mean 'tuned'?; {LIST}"),
        ('variants = "tuned"', f"variants: 'tuned' is not allowed; {LIST}"),
        ("variants = []", f"variants: [] is not allowed; {LIST}"),
        ('variants = ["ddp", "ddp"]', "variants: ddp is there twice; allowed: each entry once"),
        ("batch = [0]", f"batch: 0 is not allowed; allowed: {WHOLE_BATCH}"),
        ('batch = ["64"]', f"batch: '64' is not allowed; allowed: {WHOLE_BATCH}"),
        ("batch = [true]", f"batch: True is not allowed; allowed: {WHOLE_BATCH}"),
        ("batch = [64, 64]", "batch: 64 is there twice; allowed: each entry once"),
        ("batch = 64", f"batch: 64 is not allowed; allowed: {WHOLE_BATCH}"),
        ('devices = ["cpu*2", "cpu+cpu"]', "devices: cpu*2 is there twice; allowed: each entry once"),
        ("devices = [2]", "devices: 2 is no device list; allowed: text such as cpu*4 or cuda:0+cuda:1"),
        ("rounds = 0", "rounds: 0 is not allowed; allowed: a whole number from 1 to 1000"),
        ("rounds = 1001", "rounds: 1001 is not allowed; allowed: a whole number from 1 to 1000"),
        ("rounds = 5.0", "rounds: 5.0 is not allowed; allowed: a whole number from 1 to 1000"),
        ("threads = 0", "threads: 0 is not allowed; allowed: a whole number from 1"),
        ("seed = -1", "seed: -1 is not allowed; allowed: a whole number from 0 to 2**63 - 1"),
        ("steps_per_sample = 0", f"steps_per_sample: 0 is not allowed; allowed: {STEPS}"),
        ("steps_per_sample = -1", f"steps_per_sample: -1 is not allowed; allowed: {STEPS}"),
        ("steps_per_sample = 100_001", f"steps_per_sample: 100001 is not allowed; allowed: {STEPS}"),
        ("steps_per_sample = [1, 20]", f"steps_per_sample: [1, 20] is not allowed; allowed: {STEPS}"),
        ("steps_per_sample = true", f"steps_per_sample: True is not allowed; allowed: {STEPS}"),
        ('steps_per_sample = "abc"', f"steps_per_sample: 'abc' is not allowed; allowed: {STEPS}"),
        ('budget = "2d"', f"budget: '2d' is no duration above 0 and at most 168h; allowed: {DURATION}"),
        ("case_time = inf", f"case_time: inf is no duration above 0 and at most 168h; allowed: {DURATION}"),
        ("timeout = 0", f"timeout: 0 is no duration above 0 and at most 168h; allowed: {DURATION}"),
        ('timeout = "600h"', f"timeout: '600h' is no duration above 0 and at most 168h; allowed: {DURATION}"),
        ("budget = 1" + "0" * 400, f"budget: {HUGE} is no duration above 0 and at most 168h; allowed: {DURATION}"),
        ('data = "digit"', "data: 'digit' is not allowed, did you mean 'digits'?; allowed: one of random, digits"),
        ('modes = ["tran"]', "modes: 'tran' is not allowed, did you mean 'train'?; allowed: a list of train, infer"),
        ('reference = "best"', f"reference: 'best' is no variant; allowed: one of {VARIANTS}"),
        (
            'variants = ["tuned"]\nreference = "naive"',
            "reference: 'naive' is not among the variants; allowed: tuned",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_with_file_key_value_and_what_is_allowed(
    tmp_path: Path, text: str, line: str
) -> None:
    with pytest.raises(SpecError) as caught:
        loaded(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'sweep.toml'}: {line}"


@pytest.mark.parametrize("text", ['variants = ["tuned"', "a = \x00", "a=" + "[" * 5000, "rounds = 1\nrounds = 2"])
def test_no_toml_is_one_line_naming_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecError, match="is not TOML") as caught:
        loaded(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'sweep.toml'}: ")
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_and_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="is not TOML"):
        load_spec(path)
    for unreadable in (tmp_path, tmp_path / "absent.toml"):
        with pytest.raises(SpecError, match=f"{unreadable}: cannot be read"):
            load_spec(unreadable)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"variants": "tuned,,naive"}, f"--variants: '' is no variant; {LIST}"),
        ({"batch": "64,x"}, f"--batch: 'x' is not allowed; allowed: {WHOLE_BATCH}"),
        ({"batch": "1.5"}, f"--batch: '1.5' is not allowed; allowed: {WHOLE_BATCH}"),
        ({"batch": "-4"}, f"--batch: -4 is not allowed; allowed: {WHOLE_BATCH}"),
        ({"case_time": "soon"}, f"--case-time: 'soon' is no duration above 0 and at most 168h; allowed: {DURATION}"),
    ],
)
def test_wrong_options_are_one_line_too(options: dict[str, str], line: str) -> None:
    with pytest.raises(SpecError) as caught:
        from_options(options)
    assert str(caught.value) == line


def test_a_long_value_is_cut_and_a_line_stays_a_line() -> None:
    for text in ("9" * 5000, "1\n2"):
        with pytest.raises(SpecError, match="--rounds: ") as caught:
            from_options({"rounds": text})
        assert len(str(caught.value)) < 200
        assert "\n" not in str(caught.value)
