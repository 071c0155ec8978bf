"""Whether the distributions `dpbench` and `pynvml` are another project's.

This project is ``torch-dpbench``; on PyPI, ``dpbench`` is a benchmark of language-model agents.
"""

import re
from collections.abc import Sequence
from importlib.metadata import Distribution, distributions, packages_distributions, version

from dpbench.doctor.findings import Finding, note, ok

OURS = "torch-dpbench"
OTHERS = "dpbench"
_WHAT = "distribution"
_NVML = "nvidia-ml-py"
_COMMAND = ("console_scripts", "dpbench", "dpbench.cli:main")
_REINSTALL = (
    f"both distributions write to the folder dpbench/: run `pip uninstall {OTHERS}`, "
    f"then install {OURS} with `pip install --force-reinstall --no-deps`"
)


def examine_packages(path: Sequence[str] | None = None) -> list[Finding]:
    return [judge(_installed(OURS, path), _installed(OTHERS, path))]


def examine_pynvml() -> list[Finding]:
    """The old distribution ``pynvml`` (up to version 11) has a package of this name, which hides NVIDIA's module."""
    owners = sorted({*packages_distributions().get("pynvml", ())} - {_NVML})
    return [
        note(
            "pynvml",
            f"from {name} {version(name)}, not {_NVML}; {_required_by(name)}",
            f"run `pip uninstall {name}`, then reinstall {_NVML}",
        )
        for name in owners
    ]


def _required_by(name: str) -> str:
    """Installed distributions that require this one, not for an extra alone."""
    dependents = {
        str(distribution.name)
        for distribution in distributions()
        for requirement in distribution.requires or ()
        if re.match(rf"{re.escape(name)}(?![\w.-])", requirement, re.IGNORECASE) and "extra ==" not in requirement
    }
    return f"required by {', '.join(sorted(dependents))}" if dependents else "no installed package requires it"


def judge(ours: Distribution | None, other_package: Distribution | None) -> Finding:
    if other_package is not None:
        place = f"{OTHERS} {other_package.version} in {other_package.locate_file('')}"
        if _is_this_project(other_package):
            return note(_WHAT, f"{place}: this project under its old name", _REINSTALL)
        return note(_WHAT, f"{place}: another project", _REINSTALL)
    return ok(_WHAT, f"{OURS} {ours.version}" if ours else "none: dpbench runs from a folder of sources")


def _installed(name: str, path: Sequence[str] | None) -> Distribution | None:
    installed = distributions(name=name) if path is None else distributions(name=name, path=list(path))
    return next(iter(installed), None)


def _is_this_project(distribution: Distribution) -> bool:
    """By its command, which is the same under the old name."""
    return any(
        (entry_point.group, entry_point.name, entry_point.value) == _COMMAND
        for entry_point in distribution.entry_points
    )
