"""Build the sdist and the wheel into dist/, then install and test each outside the checkout.

    .venv/bin/python .ci/dist.py              # `make dist`
    .venv/bin/python .ci/dist.py --tag v0.1.0 # check only that the tag equals the version

Each file is installed into a new virtual environment in a temporary directory, without its dependencies. These come
from the interpreter that runs this script. The tests run from that directory, so they cannot import the checkout.
Exit codes: 0 all passed; 1 something failed, named on standard error.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
NAME = "torch_dpbench"

# argv: the environment that the package must come from, its version, and its files relative to site-packages.
IMPORTS = """
import sys
from importlib.metadata import version
from pathlib import Path
import dpbench
prefix, expected, *names = sys.argv[1:]
folder = Path(dpbench.__file__).parent
assert Path(prefix) in folder.parents, f"{folder} is not in {prefix}"
assert dpbench.__version__ == version("torch-dpbench") == expected, (dpbench.__version__, version("torch-dpbench"))
missing = [name for name in names if not (folder.parent / name).is_file()]
assert not missing, f"not in the distribution: {missing}"
"""
TRAINS = """
import torch
from dpbench import DataParallel
torch.manual_seed(0)
model, inputs = torch.nn.Linear(3, 2), torch.rand(8, 3)
model(inputs).sum().backward()
alone = [each.grad.clone() for each in model.parameters()]
model.zero_grad()
DataParallel(model, device_ids=["cpu"] * 2)(inputs).sum().backward()
torch.testing.assert_close([each.grad for each in model.parameters()], alone)
"""


class FailedError(Exception):
    """A distribution that must not be published."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", help="check only that this tag equals the version, and build nothing")
    tag = parser.parse_args().tag
    version = version_of(ROOT / "dpbench" / "__init__.py")
    try:
        if tag is not None:
            check_tag(tag, version)
            return 0
        for file in build(version):
            check(file, version)
    except FailedError as error:
        sys.stderr.write(f"dist: {error}\n")
        return 1
    return 0


def version_of(init: Path) -> str:
    """Return the literal assigned to ``__version__``. The file is parsed, so this needs no dependencies."""
    for node in ast.parse(init.read_text()).body:
        if isinstance(node, ast.Assign) and [getattr(each, "id", None) for each in node.targets] == ["__version__"]:
            return str(ast.literal_eval(node.value))
    raise FailedError(f"{init} assigns no __version__")


def check_tag(tag: str, version: str) -> None:
    if tag != f"v{version}":
        raise FailedError(f"the tag is {tag!r}, but dpbench.__version__ is {version!r}; the tag must be 'v{version}'")


def build(version: str) -> list[Path]:
    """Build both files anew and return their paths. The wheel is built from the sdist.

    setuptools reads the list of files in an egg-info folder, so that of an earlier build is removed first.
    """
    for leftover in (DIST, ROOT / f"{NAME}.egg-info"):
        shutil.rmtree(leftover, ignore_errors=True)
    run("build", [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT)], ROOT)
    expected = [f"{NAME}-{version}-py3-none-any.whl", f"{NAME}-{version}.tar.gz"]
    found = sorted(each.name for each in DIST.iterdir())
    if found != expected:
        raise FailedError(f"dist/ has {found}; {expected} are expected")
    return [DIST / name for name in expected]


def check(file: Path, version: str) -> None:
    """Install `file` into a new environment and test it there. Raises FailedError."""
    with tempfile.TemporaryDirectory(prefix="dpbench-dist-") as temporary:
        work = Path(temporary).resolve() / "work"
        work.mkdir()
        python = environment(work.parent / "venv")
        # --ignore-installed: the dependencies' folder may have dpbench too, and pip would then install nothing.
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
        run("install", [*pip, "--no-build-isolation", "--ignore-installed", str(file)], work)
        command = str(python.parent / "dpbench")
        run("import", [str(python), "-P", "-c", IMPORTS, str(python.parents[1]), version, *sources()], work)
        run("dpbench list", [command, "list"], work)
        run("a training step", [str(python), "-P", "-c", TRAINS], work)
        cases = ("--workloads", "mlp/tiny", "--batch", "8", "--devices", "cpu*2", "--variants", "tuned,naive")
        run("dpbench compare", [command, "compare", *cases, "--rounds", "1", "--budget", "20s"], work)
    sys.stdout.write(f"dist: {file.relative_to(ROOT)} is installed and tested outside the checkout\n")


def environment(folder: Path) -> Path:
    """Make an environment that sees this interpreter's packages behind its own, and return its interpreter.

    A .pth file only adds folders: the .pth files inside them do not run, so an editable install there has no effect.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    packages = [entry for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages"}]
    (site / "dependencies.pth").write_text("\n".join(packages) + "\n")
    return folder / "bin" / "python"


def sources() -> list[str]:
    """Return every file of the package in the checkout, relative to it, caches aside."""
    found = (path for path in (ROOT / "dpbench").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(str(path.relative_to(ROOT)) for path in found)


def run(what: str, command: list[str], folder: Path) -> None:
    """Run `command` in `folder`. Raises FailedError with its output if it fails."""
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    done = subprocess.run(command, cwd=folder, env=clean, check=False, capture_output=True, text=True)
    if done.returncode:
        raise FailedError(f"{what} failed with exit code {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
