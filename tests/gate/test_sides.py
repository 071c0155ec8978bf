"""What is in a commit's folder, and the launcher that refuses a change of it. The attacks are in tests/jobs."""

import contextlib
import os

import pytest

from dpbench.engine.fence import SCRATCH, landlock_version
from dpbench.engine.launch import launch
from dpbench.errors import GateError
from dpbench.gate import prepare as prepare_module
from dpbench.gate.prepare import fence_notes
from dpbench.gate.sides import compile_sides, contents, first_change, guarded
from tests.fakes import ended

CHANGES = {
    "changed 'a/file'": lambda folder: (folder / "a/file").write_text("New"),
    "changed 'link'": lambda folder: ((folder / "link").unlink(), (folder / "link").symlink_to("b")),
    "changed 'a'": lambda folder: (folder / "a").chmod(0o777),
    "added 'a/new'": lambda folder: os.mkfifo(folder / "a/new"),
    "removed 'a/file'": lambda folder: (folder / "a/file").unlink(),
    "changed 'b'": lambda folder: ((folder / "b").rmdir(), (folder / "b").symlink_to("/etc")),
}


@pytest.fixture
def sides(tmp_path):
    for name in ("base", "head"):
        (tmp_path / name / "a").mkdir(parents=True)
        (tmp_path / name / "b").mkdir()
        (tmp_path / name / "a/file").write_text("old")
        (tmp_path / name / "link").symlink_to("a")
    return {name: tmp_path / name for name in ("base", "head")}


@pytest.mark.parametrize("change", CHANGES)
def test_a_child_that_changes_a_folder_breaks_the_gate(sides, tmp_path, change):
    def launched(command, stdin_text, timeout_s):
        assert (stdin_text, timeout_s) == ("text", 7.0)
        env, variable, *asked = command
        name, _, scratch = variable.partition("=")
        assert (env, name, asked) == ("env", SCRATCH, ["what"])
        with contextlib.chdir(scratch):
            for _ in range(1500 if change == "changed 'a'" else 1):  # deeper than Python recurses
                os.mkdir("deep")
                os.chdir("deep")
        if act:
            CHANGES[change](sides["head"])
        return ended()

    act, launch_guarded = False, guarded(launched, tmp_path, sides)
    assert launch_guarded(["what"], "text", 7.0) == ended()
    act = True
    with pytest.raises(GateError, match=f"^head: the measured code {change}; allowed: "):
        launch_guarded(["what"], "text", 7.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "head"]


def test_a_folder_that_is_gone_has_changed(sides):
    before = contents(sides["base"])
    assert first_change(before, before) is None
    sides["base"].rename(sides["base"].with_name("away"))
    assert first_change(before, contents(sides["base"])) == "changed '.'"


@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_compiling_writes_byte_code_of_the_measured_packages_and_nothing_elsewhere(tmp_path):
    folder, outside = tmp_path / "head", tmp_path / "outside"
    for place in ("dpbench/parallel", "src/mine", "other"):
        (folder / place).mkdir(parents=True)
        (folder / place / "__init__.py").write_text("x = 1\n")
    (folder / "mine.py").write_text("def (:\n")
    (folder / "yours.py").write_text("x = 1\n")
    outside.mkdir()
    (folder / "dpbench/parallel/__pycache__").symlink_to(outside)
    compile_sides(launch, [folder], ["mine.bench:step", "yours:step", "mlp/tiny"])
    assert {path.parents[1].name for path in folder.rglob("*.pyc")} == {"mine", "head"}
    assert list(outside.iterdir()) == []


def test_a_kernel_without_landlock_has_a_note(monkeypatch):
    for version, notes in ((0, 1), (1, 0)):
        monkeypatch.setattr(prepare_module, "landlock_version", lambda version=version: version)
        assert len(fence_notes()) == notes
