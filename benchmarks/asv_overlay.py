"""One commit's `dpbench.parallel` in an environment of asv; all else of dpbench there is the working tree's.

    python asv_overlay.py BUILD_DIR        asv.conf.json's install_command, run by the environment's Python

A change of the harness, the suite or a workload is so never blamed on the wrapper: each commit is measured by the same
ones. The wrapper is pure Python and imports nothing of ours, so installing it is copying its folder. In site-packages:

    dpbench_overlay.pth           the working tree's path, and the import that starts the finder below
    dpbench_overlay/__init__.py   this file
    dpbench_overlay/parallel/     the commit's

The finder works in every process of this Python: a child, such as a rank of `ddp`, sees the same.
"""

import shutil
import sys
import sysconfig
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

WRAPPER = "dpbench.parallel"
_HERE = Path(__file__).resolve()


class CommitsWrapper:
    """Answers for the wrapper alone; its submodules are found on its own path."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG004
        if name != WRAPPER:
            return None
        spec = PathFinder.find_spec(name, [str(_HERE.parent)])
        if spec is None:  # else the working tree's would be found, and taken for the commit's
            raise ModuleNotFoundError(f"No module named {name!r} in this commit", name=name)
        return spec


def install(build_dir: Path, site_packages: Path) -> None:
    """Put what `build_dir`, a checkout, has of the wrapper in the place of an earlier one."""
    overlay = site_packages / "dpbench_overlay"
    shutil.rmtree(overlay, ignore_errors=True)
    overlay.mkdir()
    shutil.copy(_HERE, overlay / "__init__.py")
    wrapper = build_dir / WRAPPER.replace(".", "/")
    if wrapper.is_dir():
        shutil.copytree(wrapper, overlay / wrapper.name, ignore=shutil.ignore_patterns("__pycache__"))
    start = "import sys, dpbench_overlay; sys.meta_path.insert(0, dpbench_overlay.CommitsWrapper)"
    (site_packages / "dpbench_overlay.pth").write_text(f"{_HERE.parents[1]}\n{start}\n")


if __name__ == "__main__":
    install(Path(sys.argv[1]), Path(sysconfig.get_path("purelib")))
