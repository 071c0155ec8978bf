"""A process that imports a commit's wrapper, and all else from the running dpbench."""

import subprocess
import sys
from pathlib import Path

import pytest

from dpbench.engine.wrapper_of import has_wrapper

ROOT = Path(__file__).parents[2]
CODE = """
import sys, os
from pathlib import Path
sys.path.insert(0, {root!r})
from dpbench.engine.wrapper_of import use_folder
use_folder(Path({folder!r}))
{then}
"""


def printed(folder, then):
    code = CODE.format(root=str(ROOT), folder=str(folder), then=then)
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def commit(tmp_path):
    wrapper = tmp_path / "dpbench/parallel"
    wrapper.mkdir(parents=True)
    (wrapper / "__init__.py").write_text("from dpbench.parallel.inner import HERE\n")
    (wrapper / "inner.py").write_text("HERE = __file__\n")
    (tmp_path / "dpbench/cases").mkdir()
    (tmp_path / "dpbench/__init__.py").write_text("raise SystemExit('the commit\\'s dpbench')")
    (tmp_path / "dpbench/cases/names.py").write_text("raise SystemExit('the commit\\'s names')")
    return tmp_path


def test_only_the_wrapper_and_its_modules_are_the_commits(commit):
    wrapper = commit / "dpbench/parallel"
    code = "import dpbench.parallel as p, dpbench.cases.names as n, dpbench as d; print(p.HERE, n.__file__, d.__file__)"
    assert printed(commit, code) == [
        str(wrapper / "inner.py"),
        str(ROOT / "dpbench/cases/names.py"),
        str(ROOT / "dpbench/__init__.py"),
    ]


def test_the_current_directory_becomes_the_commits_folder(commit):
    assert printed(commit, "print(os.getcwd())") == [str(commit)]


def test_without_a_wrapper_in_the_folder_the_running_one_stays(tmp_path):
    code = "import importlib.util as u; print(u.find_spec('dpbench.parallel').origin, os.getcwd())"
    assert printed(tmp_path, code) == [str(ROOT / "dpbench/parallel/__init__.py"), str(tmp_path)]


def test_a_module_that_the_commit_lacks_is_not_taken_from_the_running_dpbench(commit):
    code = "import importlib.util as u; print(u.find_spec('dpbench.parallel.module'))"
    assert printed(commit, code) == ["None"]


def test_the_call_fails_once_the_wrapper_is_imported(tmp_path):
    code = CODE.format(root=str(ROOT), folder=str(tmp_path), then="")
    code = code.replace("from dpbench.engine", "sys.modules['dpbench.parallel'] = sys\nfrom dpbench.engine")
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert "AssertionError" in done.stderr


def test_a_file_is_not_a_wrapper(commit, tmp_path_factory):
    assert has_wrapper(commit)
    other = tmp_path_factory.mktemp("other")
    assert not has_wrapper(other)
    (other / "dpbench").mkdir()
    (other / "dpbench/parallel").touch()
    assert not has_wrapper(other)


def test_a_compiled_wrapper_is_not_read_again(commit):
    """The code stays the same after the file has changed. A file with an error is left to its import."""
    code = (
        "from dpbench.engine.wrapper_of import compile_wrapper\n"
        f"folder = Path({str(commit)!r})\n"
        "(folder / 'dpbench/parallel/wrong.py').write_text('def (:')\n"
        "compile_wrapper(folder)\n"
        "(folder / 'dpbench/parallel/inner.py').write_text('HERE = 0')\n"
        "import dpbench.parallel as p\n"
        "print(p.HERE)\n"
        "try:\n    import dpbench.parallel.wrong\nexcept SyntaxError as error:\n    print(error.lineno)\n"
    )
    assert printed(commit, code) == [str(commit / "dpbench/parallel/inner.py"), "1"]
