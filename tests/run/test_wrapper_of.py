"""A process that takes the wrapper of a folder, and everything else of its own dpbench."""

import subprocess
import sys
from pathlib import Path

import pytest

from dpbench.run.wrapper_of import has_wrapper

ROOT = Path(__file__).parents[2]
CODE = """
import sys, os
from pathlib import Path
sys.path.insert(0, {root!r})
from dpbench.run.wrapper_of import use_tree
use_tree(Path({tree!r}))
{then}
"""


def told(tree, then):
    code = CODE.format(root=str(ROOT), tree=str(tree), then=then)
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def tree(tmp_path):
    wrapper = tmp_path / "dpbench/parallel"
    wrapper.mkdir(parents=True)
    (wrapper / "__init__.py").write_text("from dpbench.parallel.inner import HERE\n")
    (wrapper / "inner.py").write_text("HERE = __file__\n")
    (tmp_path / "dpbench/sweep").mkdir()
    (tmp_path / "dpbench/__init__.py").write_text("raise SystemExit('the tree\\'s dpbench')")
    (tmp_path / "dpbench/sweep/names.py").write_text("raise SystemExit('the tree\\'s names')")
    return tmp_path


def test_the_wrapper_and_its_modules_are_the_trees_and_all_else_is_not(tree):
    wrapper = tree / "dpbench/parallel"
    asked = (
        "import dpbench.parallel as p, dpbench.sweep.names as n, dpbench as d; print(p.HERE, n.__file__, d.__file__)"
    )
    assert told(tree, asked) == [
        str(wrapper / "inner.py"),
        str(ROOT / "dpbench/sweep/names.py"),
        str(ROOT / "dpbench/__init__.py"),
    ]


def test_the_current_directory_becomes_the_tree(tree):
    assert told(tree, "print(os.getcwd())") == [str(tree)]


def test_a_tree_without_a_wrapper_leaves_the_own_one(tmp_path):
    asked = "import importlib.util as u; print(u.find_spec('dpbench.parallel').origin, os.getcwd())"
    assert told(tmp_path, asked) == [str(ROOT / "dpbench/parallel/__init__.py"), str(tmp_path)]


def test_what_the_trees_wrapper_lacks_is_not_taken_from_the_own_one(tree):
    asked = "import importlib.util as u; print(u.find_spec('dpbench.parallel.module'))"
    assert told(tree, asked) == ["None"]


def test_it_is_too_late_once_the_wrapper_is_there(tmp_path):
    code = CODE.format(root=str(ROOT), tree=str(tmp_path), then="")
    code = code.replace("from dpbench.run", "sys.modules['dpbench.parallel'] = sys\nfrom dpbench.run")
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert "AssertionError" in done.stderr


def test_a_file_is_no_wrapper(tree, tmp_path_factory):
    assert has_wrapper(tree)
    other = tmp_path_factory.mktemp("other")
    assert not has_wrapper(other)
    (other / "dpbench").mkdir()
    (other / "dpbench/parallel").touch()
    assert not has_wrapper(other)
