"""`dpbench.compare` from Python: the caller's own objects, in the children of the command."""

import copy
import html
import os

import pytest
import torch
from torch import nn
from torch.nn import functional

import dpbench
from dpbench.errors import ReportedError

INPUTS, TARGET = torch.randn(8, 4), torch.randint(3, (8,))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x)


def on_chunks(scale):
    """Return a variant that a child cannot import by its name. Another scale than 1 is another computation."""

    def wrap(model, devices):
        return lambda x: scale * torch.cat([model(chunk) for chunk in x.chunk(len(devices))])

    wrap.__name__ = f"times_{scale}"
    return wrap


def test_a_model_and_own_variants_are_compared_and_stay_as_they_are(tmp_path):
    model, environment = Net(), dict(os.environ)
    before = copy.deepcopy(model.state_dict())
    variants = ["naive", on_chunks(1), on_chunks(2)]
    result = dpbench.compare(
        model, (INPUTS, TARGET), functional.cross_entropy, devices=["cpu"] * 2, variants=variants, rounds=1,
        budget="5s", results=tmp_path, dtype="autocast-bfloat16",
    )  # fmt: skip
    outcomes = {row["variant"]: row["outcome"] for row in result.table}
    assert outcomes == {"single": "ok", "naive": "ok", "given:times_1": "ok", "given:times_2": "wrong_result"}
    assert {(row["workload"], row["dtype"]) for row in result.table} == {("given:Net_model", "autocast-bfloat16")}
    assert "given:times_1" in str(result)
    assert html.unescape(result._repr_html_()) == f"<pre>{result}</pre>"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert dict(os.environ) == environment


@pytest.mark.parametrize(
    ("batch", "options", "line"),
    [
        ((INPUTS, TARGET[:3]), {}, r"batch: has shapes \(8, 4\), \(3,\); allowed: tensors with the batch as dimension"),
        ((INPUTS, 3), {}, "batch: has shapes"),
        ((INPUTS, TARGET), {"variants": [lambda model, devices: model]}, "'given:<lambda>' is no variant"),
        ((INPUTS, TARGET), {"mode": "trian"}, "--modes: .*did you mean 'train'"),
        ((INPUTS, TARGET), {"dtype": "float8"}, "--dtypes: 'float8' is not allowed"),
        ((INPUTS, TARGET), {"devices": ["gpu:0"]}, "devices: "),
    ],
)
def test_what_is_wrong_is_one_line(batch, options, line, tmp_path):
    with pytest.raises(ReportedError, match=line) as caught:
        dpbench.compare(Net(), batch, functional.cross_entropy, results=tmp_path / "none", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "none").exists()
