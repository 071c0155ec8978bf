"""One commit's `dpbench.parallel` in an environment of asv; all else of dpbench there is the working tree's.

    python asv_overlay.py BUILD_DIR        asv.conf.json's install_command, run by the environment's Python

A change of the harness, the suite or a workload is so never blamed on the wrapper: each commit is measured by the same
ones. The wrapper is pure Python and imports nothing of ours, so installing it is copying its folder. In site-packages:

    dpbench_overlay.pth                  the working tree's path, and a call that has its dpbench find the wrapper below
    dpbench_overlay/dpbench/parallel/    the commit's

The call runs in every process of this Python: a child, such as a rank of `ddp`, sees the same.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

_WORKING_TREE = Path(__file__).resolve().parents[1]
_WRAPPER = "dpbench/parallel"


def install(build_dir: Path, site_packages: Path) -> None:
    """Put what `build_dir`, a checkout, has of the wrapper in the place of an earlier one."""
    overlay = site_packages / "dpbench_overlay"
    shutil.rmtree(overlay, ignore_errors=True)
    if (build_dir / _WRAPPER).is_dir():
        shutil.copytree(build_dir / _WRAPPER, overlay / _WRAPPER, ignore=shutil.ignore_patterns("__pycache__"))
    start = f"import dpbench.run.wrapper_of as its; its.find_wrapper_in(its.Path({str(overlay)!r}))"
    (site_packages / "dpbench_overlay.pth").write_text(f"{_WORKING_TREE}\n{start}\n")


if __name__ == "__main__":
    install(Path(sys.argv[1]), Path(sysconfig.get_path("purelib")))
