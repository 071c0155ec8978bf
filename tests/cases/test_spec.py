from pathlib import Path

from dpbench.cases.names import Data, Dtype, Mode
from dpbench.cases.spec import Spec, from_options, load_spec
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
