"""The file that a child runs first, so that it imports its parent's dpbench in any folder.

    python -P .../dpbench/engine/start.py dpbench.jobs.count_child --record-fd N --parent-pid P

``python -m`` would search the current directory, where another dpbench may lie, such as a gate's checkout. There also
lie modules that torch imports only if they exist. `workloads/resolve.py` adds the directory for the user's own code,
which a gate runs in fenced forks alone. The file runs by its path, so it imports the standard library only.
"""

import runpy
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def child_command(module: str) -> list[str]:
    """If a signal kills the child, the fault handler prints the Python stack last."""
    return [sys.executable, "-P", "-X", "faulthandler", __file__, module]


def _start(module: str) -> None:
    _import_dpbench_from(Path(__file__).parents[1])
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _import_dpbench_from(folder: Path) -> None:
    """Submodules are then found on the package's own path, not on `sys.path`."""
    spec = spec_from_file_location("dpbench", folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules["dpbench"] = module_from_spec(spec)
    spec.loader.exec_module(package)


if __name__ == "__main__":
    _start(sys.argv.pop(1))
