"""Install one commit's `dpbench.parallel` in an asv environment. The rest of dpbench is the working tree's.

    python asv_overlay.py BUILD_DIR        asv.conf.json's install_command, run by the environment's Python

All commits are measured with the same harness, so that only the wrapper makes a difference. In site-packages:

    dpbench_overlay.pth                  the working tree's path, and a line that makes Python find the wrapper below
    dpbench_overlay/dpbench/parallel/    the commit's wrapper

Python runs this line at the start of every process, so children such as the ranks of `ddp` get the same wrapper.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

_WORKING_TREE = Path(__file__).resolve().parents[1]
_WRAPPER = "dpbench/parallel"


def install(build_dir: Path, site_packages: Path) -> None:
    """Replace the wrapper in `site_packages` by that of the checkout `build_dir`, if it has one."""
    overlay = site_packages / "dpbench_overlay"
    shutil.rmtree(overlay, ignore_errors=True)
    if (build_dir / _WRAPPER).is_dir():
        shutil.copytree(build_dir / _WRAPPER, overlay / _WRAPPER, ignore=shutil.ignore_patterns("__pycache__"))
    start = f"import dpbench.engine.wrapper_of as its; its.find_wrapper_in(its.Path({str(overlay)!r}))"
    (site_packages / "dpbench_overlay.pth").write_text(f"{_WORKING_TREE}\n{start}\n")


if __name__ == "__main__":
    install(Path(sys.argv[1]), Path(sysconfig.get_path("purelib")))
