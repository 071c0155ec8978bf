"""What a child runs first, so that its dpbench is the very one that its parent is, whatever folder it is started in.

    python -P .../dpbench/run/start.py dpbench.run.child.worker --record-fd N --parent-pid P

``python -m dpbench.run.child.worker`` would look into the current directory first, where another dpbench may lie: a checkout
whose commits a gate judges, or a folder with `dpbench/parallel` alone, which hides what an editable install finds.
"""

import runpy
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def child_command(module: str) -> list[str]:
    """Starts `module` of this dpbench. Of a crash by signal the fault handler leaves the Python stack at the end."""
    return [sys.executable, "-P", "-X", "faulthandler", __file__, module]


def _start(module: str) -> None:
    _be_the_dpbench_of(Path(__file__).parents[1])
    # Last, where it hides nothing: modules that a user's factory imports only when its model is built.
    sys.path.append("")
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _be_the_dpbench_of(folder: Path) -> None:
    """Import the package from there; all its modules are then found on its own path, not on `sys.path`."""
    spec = spec_from_file_location("dpbench", folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules["dpbench"] = module_from_spec(spec)
    spec.loader.exec_module(package)


if __name__ == "__main__":
    _start(sys.argv.pop(1))
