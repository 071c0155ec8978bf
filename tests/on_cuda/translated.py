"""Tests written for the simulator, run on the stand-in: their text with the devices' names changed.

So both run the same list. The simulator's tests name devices ``sim:0`` and the module ``torch.sim``.
"""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
CHANGES = {
    r"\bsim:": "cuda:",
    r"torch\.sim\b": "torch.cuda",
    r"get_device_module\(.sim.\)": "get_device_module('cuda')",
    r"from dpbench\.simulator import RaceError": "from tests.cuda_stand_in.control import RaceError",
    r"tests\.parallel\.simulated\.racing": "tests.on_cuda.translated_racing",
}


def translated(path: str, name: str) -> dict[str, Any]:
    """Return the names of the file at `path`, run as the module `name` with CUDA devices."""
    text = (ROOT / path).read_text()
    for pattern, replacement in CHANGES.items():
        text = re.sub(pattern, replacement, text)
    module = ModuleType(name)
    module.__file__ = str(ROOT / path)
    sys.modules[name] = module
    exec(compile(text, str(ROOT / path), "exec"), module.__dict__)
    return {key: value for key, value in vars(module).items() if not key.startswith("__")}
