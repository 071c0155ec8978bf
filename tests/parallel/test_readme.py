"""B9: what differs from the stock wrapper by intent is listed, each with a test."""

import re
from pathlib import Path

import dpbench.parallel

HERE = Path(__file__).parent
README = Path(dpbench.parallel.__file__).with_name("README.md").read_text()


def test_b9_every_difference_has_a_test_that_is_there():
    (section,) = re.findall(r"^## What differs from the stock wrapper.*?(?=^## )", README, re.M | re.S)
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    files = {path.name: path.read_text() for path in HERE.rglob("*.py")}
    assert len(rows) > 10
    for topic, _stock, _here, tests in rows[1:]:
        names, labels = re.findall(r"`(\w+\.py)`", tests), re.findall(r"\bb\d\b", tests)
        assert names or labels, topic
        assert set(names) <= set(files), topic
        for label in labels:
            assert any(f"def test_{label}_" in text for text in files.values()), topic
