import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from dpbench.cases.names import UNITS, Data, Family, Size
from dpbench.workloads import resolve as resolve_module
from dpbench.workloads.resolve import check, resolve
from dpbench.workloads.workload import Batch, Workload, WorkloadError

HERE = Path(__file__).parent
README = Path(resolve_module.__file__).with_name("README.md").read_text()
NAMES = [f"{family}/{size}" for family in Family for size in Size]


@pytest.fixture
def here(monkeypatch):
    """Make the directory of `user_factories` the current one. It is not on sys.path."""
    monkeypatch.chdir(HERE)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(HERE))])
    yield
    sys.modules.pop("user_factories", None)


def parameters(name: str) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in resolve(name, Data.RANDOM).model().parameters())


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_has_each_parameter_count(name):
    family, size = name.replace("embedding_sparse", "embedding").split("/")
    row = re.search(rf"^\| `{family}` \|.*?\| ([\d,; ]+) \|", README, re.MULTILINE)
    assert row is not None
    counts = dict(zip(Size, row[1].replace(",", "").split("; "), strict=True))
    assert parameters(name) == int(counts[Size(size)])


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("convnet/base", 25_557_032),
        ("convnet/large", 44_549_160),
        ("transformer/small", 124_439_808),
        ("transformer/base", 354_823_168),
        ("transformer/large", 774_030_080),
    ],
)
def test_published_layouts_have_their_published_parameter_counts(name, published):
    assert parameters(name) == published


@pytest.mark.parametrize("data", Data)
@pytest.mark.parametrize("family", Family)
def test_every_family_takes_a_batch_through_forward_and_loss(family, data):
    check(resolve(f"{family}/tiny", data), family)


@pytest.mark.parametrize(
    "name", ["mlp", "mlp/", "mlp/huge", "lstm/tiny", "", "/", "a b:factory", "module:", ":factory"]
)
def test_a_wrong_name_is_refused_with_what_is_allowed(name):
    with pytest.raises(WorkloadError, match=r"^workloads: .*allowed") as caught:
        resolve(name, Data.RANDOM)
    assert repr(name) in str(caught.value)
    assert "package.module:factory" in str(caught.value)


def test_a_users_factory_is_found_in_the_current_directory(here):
    check(resolve("user_factories:right", Data.RANDOM), "user_factories:right")


def test_the_search_path_is_restored_but_for_the_current_folder_at_its_end(here, monkeypatch):
    """A model may import from that folder when it is built."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    before = [*sys.path, ""]
    resolve("user_factories:right", Data.RANDOM)
    with pytest.raises(WorkloadError):
        resolve("user_factories:raises", Data.RANDOM)
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("no_such_module:factory", "importing no_such_module raised ModuleNotFoundError"),
        ("user_factories:absent", "looking up absent raised AttributeError"),
        ("user_factories:not_callable", "raised TypeError"),
        ("user_factories:takes_arguments", "takes_arguments() raised TypeError"),
        (
            "user_factories:wrong_type",
            "wrong_type() returned int '3'; a dpbench.workloads.workload.Workload is allowed",
        ),
        ("user_factories:raises", "raises() raised RuntimeError: no weights at all"),
        ("user_factories:exits", "exits() raised SystemExit: bye"),
    ],
)
def test_a_factory_that_fails_is_reported_in_one_line(here, name, fault):
    with pytest.raises(WorkloadError) as caught:
        resolve(name, Data.RANDOM)
    text = str(caught.value)
    assert text.startswith(f"workloads: {name!r}: ")
    assert fault in text
    assert "\n" not in text


def test_a_users_factory_refuses_data_digits(here):
    with pytest.raises(WorkloadError, match=r"^data: 'digits' .* only 'random' is allowed"):
        resolve("user_factories:right", Data.DIGITS)


def _with(**parts: object) -> Workload:
    right = {
        "model": lambda: nn.Linear(3, 2),
        "batch": lambda size, generator: Batch((torch.randn(size, 3),), torch.zeros(size).long()),
        "loss": nn.functional.cross_entropy,
    }
    return Workload(**{**right, **parts})  # type: ignore[arg-type]


def _raise() -> nn.Module:
    raise KeyError("weights")


def test_a_correct_workload_passes_the_check():
    check(_with(), "m:f")


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        ({"model": _raise}, "model() raised KeyError: 'weights'"),
        ({"model": lambda: 3}, "model() returned int '3'; an nn.Module is allowed"),
        ({"batch": lambda size: None}, "batch(2, generator) raised TypeError"),
        ({"batch": lambda size, generator: (1, 2)}, "returned tuple '(1, 2)'; a dpbench.workloads.workload.Batch"),
        ({"batch": lambda size, generator: Batch(torch.ones(2, 3), torch.ones(2))}, "a tuple is allowed"),
        ({"batch": lambda size, generator: Batch((torch.ones(3, 3),), torch.ones(2))}, "shape (3, 3) in a Batch"),
        ({"batch": lambda size, generator: Batch((torch.ones(2, 3),), torch.tensor(1))}, "shape () in a Batch"),
        ({"batch": lambda size, generator: Batch((7,), torch.ones(2))}, "int '7' in a Batch"),
        ({"model": lambda: nn.Linear(5, 2)}, "forward raised RuntimeError: mat1 and mat2"),
        ({"loss": lambda output, target: 1.0}, "loss(output, target) returned float '1.0'"),
        ({"loss": lambda output, target: output}, "returned a torch.float32 tensor of shape (2, 2)"),
        ({"loss": lambda output, target: target.sum()}, "returned a torch.int64 tensor of shape ()"),
    ],
)
def test_the_check_names_the_part_that_failed(parts, fault):
    with pytest.raises(WorkloadError, match=r"^workloads: 'm:f': ") as caught:
        check(_with(**parts), "m:f")
    assert fault in str(caught.value)


def test_the_check_does_not_change_torchs_random_state():
    before = torch.get_rng_state()
    check(resolve("mlp/tiny", Data.RANDOM), "mlp/tiny")
    assert torch.equal(torch.get_rng_state(), before)


def test_the_readmes_example_runs(tmp_path, monkeypatch):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "my_model.py").write_text(example)
    monkeypatch.chdir(tmp_path)
    workload = resolve("my_model:factory", Data.RANDOM)
    sys.modules.pop("my_model")
    check(workload, "my_model:factory")
    assert workload.unit == "sentences"
    assert workload.optimizer(workload.model().parameters()).defaults["lr"] == 1e-3


def test_a_factory_changes_neither_the_directory_nor_the_thread_count(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = Path.cwd(), torch.get_num_threads()
    resolve("tests.workloads.user_factories:changes_the_process", Data.RANDOM)
    assert (Path.cwd(), torch.get_num_threads()) == before


@pytest.mark.parametrize("family", Family)
def test_the_unit_of_a_family_is_the_one_that_is_listed(family):
    assert resolve(f"{family}/tiny", Data.RANDOM).unit == UNITS[family]
