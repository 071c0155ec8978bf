import sys

import pytest
import torch

from dpbench.cases.names import Data
from dpbench.workloads import digits
from dpbench.workloads.resolve import resolve
from dpbench.workloads.workload import WorkloadError


def test_there_are_1797_images_of_17_levels_in_10_classes():
    images, labels = digits.load()
    assert images.shape == (1797, 8, 8)
    assert (images.min(), images.max()) == (0, digits.LEVELS - 1)
    assert labels.unique().tolist() == list(range(10))


def test_an_image_keeps_its_label():
    images, labels = digits.load()
    drawn, drawn_labels = digits.draw(20, torch.Generator().manual_seed(1))
    for image, label in zip(drawn, drawn_labels, strict=True):
        same = (images == image).all(2).all(1)
        assert same.sum() == 1
        assert labels[same] == label


def test_a_large_batch_repeats_an_image_only_after_all_others():
    images, _ = digits.draw(1797 + 5, torch.Generator().manual_seed(1))
    assert len(images[:1797].flatten(1).unique(dim=0)) == len(digits.load()[0].flatten(1).unique(dim=0))
    assert torch.equal(images[1797:], images[:5])


def test_without_scikit_learn_the_error_names_the_field_and_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    digits.load.cache_clear()
    with pytest.raises(WorkloadError, match=r"^data: 'digits' .*dpbench\[digits\].*'random'"):
        resolve("mlp/tiny", Data.DIGITS)


def test_random_data_needs_no_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    digits.load.cache_clear()
    resolve("mlp/tiny", Data.RANDOM).batch(2, torch.Generator())
