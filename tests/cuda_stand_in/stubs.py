"""Stub libraries: every symbol that torch imports from an NVIDIA library, as a function that aborts with its name.

The names come from the wheel itself, by ``readelf``. A symbol with a version, such as ``cudaMalloc@libcudart.so.13``,
names its library. Most others are recognised by their prefix. Pure Python, without torch.
"""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

# Symbols without a version, by prefix. The first match counts.
PREFIXES = {
    "nccl": "libnccl.so.2",
    "cuFile": "libcufile.so.0",
    "cusparseLt": "libcusparseLt.so.0",
    "curand": "libcurand.so.10",
    "nvshmem": "libnvshmem_host.so.3",
    "cu": "libcuda.so.1",
}
VERSION_NODES = {"NVSHMEM": "libnvshmem_host.so.3"}
"""Version nodes whose name is not that of their library."""
LIBRARIES = re.compile(r"^lib(cu\w+|nccl|nvrtc|nvJitLink|nvshmem_host)\.so\.\d+$")
DRIVER_TABLE = re.compile(r"_\((cu[A-Z]\w+), \d+\)")
"""A row of the table of driver functions that c10 looks up by name (c10/cuda/driver_api.h)."""


def imported_symbols(torch: Path) -> dict[str, dict[str, str]]:
    """Return ``{library: {symbol: version node, or ""}}`` for the torch package in the folder `torch`."""
    symbols: dict[str, dict[str, str]] = {}
    for file in [*torch.glob("lib/*.so*"), *torch.glob("_C*.so")]:
        for library in _needed(file):
            symbols.setdefault(library, {})
        for name, version in _undefined(file):
            library = _library_of(name, version)
            if library is not None:
                symbols.setdefault(library, {})[name] = version
    driver = (torch / "include/c10/cuda/driver_api.h").read_text()
    symbols["libcuda.so.1"] |= dict.fromkeys(DRIVER_TABLE.findall(driver), "")
    return symbols


def source(library: str, symbols: Iterable[str]) -> str:
    """Return C for functions that write their name to stderr and abort."""
    functions = (f'void {name}(void) {{ missing("{name}"); }}' for name in sorted(symbols))
    return "\n".join(
        [
            "#include <stdio.h>",
            "#include <stdlib.h>",
            "static void missing(const char *name) {",
            f'  fprintf(stderr, "the CUDA stand-in has no %s of {library}\\n", name);',
            "  abort();",
            "}",
            *functions,
            "",
        ]
    )


def version_script(symbols: dict[str, str]) -> str:
    """Return the linker's version script: each symbol under its node, the others under none."""
    nodes: dict[str, list[str]] = {}
    for name, version in symbols.items():
        if version:
            nodes.setdefault(version, []).append(name)
    return "".join(f"{node} {{ global: {' '.join(f'{name};' for name in names)} }};\n" for node, names in nodes.items())


def _needed(file: Path) -> list[str]:
    """Return the NVIDIA libraries that the file loads."""
    text = subprocess.run(["readelf", "-dW", file], capture_output=True, text=True, check=True).stdout
    return [name for name in re.findall(r"\(NEEDED\).*\[(.*)\]", text) if LIBRARIES.match(name)]


def _undefined(file: Path) -> list[tuple[str, str]]:
    """Return the undefined symbols of the file, each with its version or ``""``."""
    text = subprocess.run(["readelf", "--dyn-syms", "-VW", file], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines()]
    names = [row[7] for row in rows if len(row) >= 8 and row[6] == "UND"]
    return [(name, version) for name, _, version in (name.partition("@") for name in names)]


def _library_of(name: str, version: str) -> str | None:
    if version:
        library = VERSION_NODES.get(version, version)
        return library if LIBRARIES.match(library) else None
    if name.startswith("_"):
        return None
    return next((library for prefix, library in PREFIXES.items() if re.match(rf"{prefix}[A-Z_m]", name)), None)
