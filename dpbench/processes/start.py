"""The file that a child runs first.

It makes the child import the same dpbench as its parent, in any folder.

    python -P .../dpbench/processes/start.py dpbench.processes.child.worker --record-fd N --parent-pid P

``python -m dpbench.processes.child.worker`` would search the current directory first. Another dpbench may lie there: a
checkout whose commits a gate judges, or a folder with `dpbench/parallel` alone, which hides an editable install. This
file runs by its path, before dpbench can be imported, so it imports the standard library only.
"""

import runpy
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def child_command(module: str) -> list[str]:
    """Return the command that runs `module` of this dpbench.

    If a signal kills the child, the fault handler prints the Python stack last.
    """
    return [sys.executable, "-P", "-X", "faulthandler", __file__, module]


def _start(module: str) -> None:
    _import_dpbench_from(Path(__file__).parents[1])
    # A user's factory may import modules of the current directory when its model is built. As the last entry, the
    # directory hides no other module.
    sys.path.append("")
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _import_dpbench_from(folder: Path) -> None:
    """Import the package from `folder`. Its modules are then found on the package's own path, not on `sys.path`."""
    spec = spec_from_file_location("dpbench", folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules["dpbench"] = module_from_spec(spec)
    spec.loader.exec_module(package)


if __name__ == "__main__":
    _start(sys.argv.pop(1))
