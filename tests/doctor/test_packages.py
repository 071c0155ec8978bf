"""The finding for the installed distribution, from metadata in a temporary folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dpbench.doctor.child.packages import examine_packages, examine_pynvml
from dpbench.doctor.findings import Severity

COMMAND = "[console_scripts]\ndpbench = dpbench.cli:main\n"
Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Write the metadata of a distribution as pip does, and return the folder it is in."""

    def install(name: str, version: str, entry_points: str = "", requires: str = "") -> str:
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{requires}")
        (folder / "entry_points.txt").write_text(entry_points)
        return str(tmp_path)

    return install


def test_this_project_alone_is_ok(install: Install) -> None:
    [finding] = examine_packages([install("torch-dpbench", "0.1.0", COMMAND)])
    assert (finding.severity, finding.what, finding.value) == (Severity.OK, "distribution", "torch-dpbench 0.1.0")


def test_a_folder_of_sources_is_ok(tmp_path: Path) -> None:
    [finding] = examine_packages([str(tmp_path)])
    assert finding.severity is Severity.OK
    assert finding.value == "none: dpbench runs from a folder of sources"


@pytest.mark.parametrize("name", ["dpbench", "DPBench"])
def test_the_unrelated_project_is_noted_beside_this_one(install: Install, name: str) -> None:
    install("torch-dpbench", "0.1.0", COMMAND)
    folder = install(name, "0.3.1", "[console_scripts]\ndpbench = dpbench.main:run\n")
    [finding] = examine_packages([folder])
    assert finding.severity is Severity.NOTE
    assert finding.value == f"dpbench 0.3.1 in {folder}: another project"
    assert finding.advice is not None
    assert "pip uninstall dpbench" in finding.advice
    assert "torch-dpbench" in finding.advice


def test_the_unrelated_project_is_noted_without_this_one(install: Install) -> None:
    [finding] = examine_packages([install("dpbench", "0.3.1")])
    assert finding.severity is Severity.NOTE


def test_an_install_under_the_old_name_is_called_that(install: Install) -> None:
    folder = install("dpbench", "0.1.0", COMMAND)
    [finding] = examine_packages([folder])
    assert finding.severity is Severity.NOTE
    assert finding.value == f"dpbench 0.1.0 in {folder}: this project under its old name"


def test_another_owner_of_pynvml_is_one_line_and_nvidias_is_none(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert examine_pynvml() == []
    folder = Path(install("pynvml", "11.5.0"))
    (folder / "pynvml-11.5.0.dist-info/top_level.txt").write_text("pynvml\n")
    monkeypatch.syspath_prepend(folder)
    [finding] = examine_pynvml()
    assert (finding.severity, finding.what) == (Severity.NOTE, "pynvml")
    assert finding.value == "from pynvml 11.5.0, not nvidia-ml-py; no installed package requires it"
    install("watcher", "1", requires="Requires-Dist: PyNVML (>=11)\n")
    install("nvitop", "1", requires="Requires-Dist: pynvml; extra == 'old'\nRequires-Dist: pynvml-utils\n")
    install("gpustat", "1", requires="Requires-Dist: pynvml<12; python_version > '3'\n")
    assert examine_pynvml()[0].value == "from pynvml 11.5.0, not nvidia-ml-py; required by gpustat, watcher"
    assert finding.advice == "run `pip uninstall pynvml`, then reinstall nvidia-ml-py"
