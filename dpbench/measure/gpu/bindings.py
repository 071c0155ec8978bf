"""NVIDIA's module `pynvml`, of nvidia-ml-py, also where an older package of this name hides it."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

_NEEDED = "nvmlDeviceGetCurrentClocksEventReasons"
"""The old distribution `pynvml`, up to 11.5.3, lacks it. Its package comes before NVIDIA's single file."""


def _nvidias() -> Any:
    import pynvml

    if hasattr(pynvml, _NEEDED):
        return pynvml
    for file in (Path(folder, "pynvml.py") for folder in sys.path):
        if file.is_file() and (spec := spec_from_file_location("pynvml", file)) and spec.loader:
            sys.modules["pynvml"] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise ImportError(f"{pynvml.__file__} is no nvidia-ml-py; allowed: pip uninstall pynvml, reinstall nvidia-ml-py")


pynvml = _nvidias()
