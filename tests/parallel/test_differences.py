"""DIFFERENCES.md lists the intended differences from stock, each with its tests."""

import re
from pathlib import Path

import dpbench.parallel

HERE = Path(__file__).parent
DIFFERENCES = Path(dpbench.parallel.__file__).with_name("DIFFERENCES.md").read_text()


def test_b9_every_difference_names_an_existing_test():
    (section,) = re.findall(r"^## On purpose.*?(?=^## )", DIFFERENCES, re.M | re.S)
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    files = {path.name: path.read_text() for path in HERE.parent.rglob("*.py")}
    assert len(rows) > 10
    for topic, _stock, _here, tests in rows[1:]:
        names, labels = re.findall(r"`(\w+\.py)`", tests), re.findall(r"\bb\d\b", tests)
        assert names or labels, topic
        assert set(names) <= set(files), topic
        for label in labels:
            assert any(f"def test_{label}_" in text for text in files.values()), topic
