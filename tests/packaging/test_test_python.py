"""`.ci/test_python`: what it refuses, and what its tests get in a root. The roots here borrow the host's /usr."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "test_python"
ROOTS = re.findall(r"\[(3\.\d+)\]=", SCRIPT.read_text())
LISTED = ", ".join(ROOTS)

DEBOOTSTRAP = """#!/bin/bash
root=${@: -1}
mkdir -p "$root"/{usr,proc,sys,dev,etc,tmp,root}
mount --rbind /usr "$root/usr"
ln -s usr/{bin,sbin,lib,lib64} "$root"
echo "$@" >"$root/debootstrap"
"""
MAKEFILE = """
venv:
	@mkdir -p .venv; echo made >> .venv/made
test:
	@printf '[%s]\\n' $(PYTHON) $(TORCH) $(ARGS)
"""


@pytest.fixture
def checkout() -> Iterator[Path]:
    """Yield a small repository with the script. It is outside pytest's folder, which root alone may read."""
    folder = Path(tempfile.mkdtemp(prefix="dpbench-test-python-"))
    folder.chmod(0o755)
    (folder / ".ci").mkdir()
    shutil.copy(SCRIPT, folder / ".ci")
    for name in ("constraints.txt", "pyproject.toml", ".ci/lock.txt", "removed"):
        (folder / name).write_text("as committed\n")
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / ".gitignore").write_text("/build/\n")
    git = ["git", "-C", folder, "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "m"]):
        subprocess.run([*git, *words], check=True)
    yield folder
    assert str(folder) not in Path("/proc/self/mounts").read_text()  # or this would remove the machine's own files
    shutil.rmtree(folder)


def call(checkout: Path, *words: str, **settings: object) -> subprocess.CompletedProcess[str]:
    command = ["bash", checkout / ".ci" / "test_python", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **settings)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], f"PYTHON_VERSION: '' is not allowed; allowed: {LISTED}"),
        (["abc", "pinned"], f"PYTHON_VERSION: 'abc' is not allowed; allowed: {LISTED}"),
        (["3.9", "pinned"], f"PYTHON_VERSION: '3.9' is not allowed; allowed: {LISTED}"),
        (["3.1", "pinned"], f"PYTHON_VERSION: '3.1' is not allowed; allowed: {LISTED}"),
        (["@", "pinned"], f"PYTHON_VERSION: '@' is not allowed; allowed: {LISTED}"),
        (["../3.14", "pinned"], f"PYTHON_VERSION: '../3.14' is not allowed; allowed: {LISTED}"),
        (["3.14"], "TORCH: '' is not allowed; allowed: pinned, or a version such as 2.14.1"),
        (["3.14", "system"], "TORCH: 'system' is not allowed; allowed: pinned, or a version such as 2.14.1"),
        (["3.14", "2.14.1;x"], "TORCH: '2.14.1;x' is not allowed; allowed: pinned, or a version such as 2.14.1"),
        (["3.14", "../2.14"], "TORCH: '../2.14' is not allowed; allowed: pinned, or a version such as 2.14.1"),
        (["3.14", "pinned", "--"], "COMMAND: nothing follows the --; allowed: a command"),
    ],
)
def test_wrong_input_is_one_line(checkout: Path, words: list[str], text: str) -> None:
    done = call(checkout, *words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"test_python: {text}\n")
    assert not (checkout / "build").exists()


def test_make_refuses_as_the_script_does() -> None:
    done = subprocess.run(
        ["make", "test-python", "PYTHON_VERSION=3.9"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2  # make's own code for a failed command
    assert done.stderr.startswith(f"test_python: PYTHON_VERSION: '3.9' is not allowed; allowed: {LISTED}\n")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], '.ci/test_python "3.14" "pinned"'),
        (["PYTHON_VERSION=3.13", "TORCH=2.14.1", "ARGS=-k 'a b'"], '.ci/test_python "3.13" "2.14.1" -k \'a b\''),
        (["TORCH=system"], '.ci/test_python "3.14" "system"'),
    ],
)
def test_make_passes_version_torch_and_arguments(settings: list[str], expected: str) -> None:
    command = ["make", "--dry-run", "test-python", *settings]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=without_make())
    assert done.stdout.strip() == expected


def without_make() -> dict[str, str]:
    """Return the environment without the settings of the make that runs these tests."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in {"MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "TORCH", "ARGS"}
    }


def test_the_workflow_has_the_same_versions() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == ROOTS
    assert [each.rpartition(" ")[2] for each in classifiers if ":: 3." in each] == ROOTS


def test_another_user_than_root_is_refused(checkout: Path) -> None:
    other = {} if os.geteuid() else {"user": 65534, "group": 65534}
    done = call(checkout, "3.14", "pinned", **other)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert re.fullmatch(r"test_python: user: '.*' may not create a Debian root; allowed: root\n", done.stderr)


@pytest.fixture
def with_root(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository, with a debootstrap that makes a root of the host's /usr, and an empty home."""
    if os.geteuid() != 0:
        pytest.skip("only root may create a Debian root")
    allowed = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    if allowed.returncode:
        pytest.skip(f"this machine allows no mounts: {allowed.stderr.decode().strip()}")
    if not shutil.which("pivot_root"):
        pytest.skip("this machine has no pivot_root; Debian sid's util-linux is without it")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "debootstrap").write_text(DEBOOTSTRAP)
    (tools / "debootstrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", "/root")
    return checkout


def test_without_debootstrap_and_a_way_to_install_it_the_package_is_named(with_root: Path, tmp_path: Path) -> None:
    tools = tmp_path / "few"
    tools.mkdir()
    for name in ("bash", "dirname", "unshare", "true"):
        (tools / name).symlink_to(str(shutil.which(name)))
    done = call(with_root, "3.14", "pinned", env={**os.environ, "PATH": str(tools)})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "test_python: debootstrap: it is missing, and apt-get cannot install it; install the package debootstrap"
    )


def test_a_root_in_use_is_refused(with_root: Path) -> None:
    (with_root / "build" / "roots").mkdir(parents=True)
    with (with_root / "build" / "roots" / "3.14.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = call(with_root, "3.14", "pinned")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.endswith("build/roots/3.14 is used by another run; wait until it ends\n")


def test_a_debootstrap_that_fails_leaves_a_root_that_is_made_anew(with_root: Path, tmp_path: Path) -> None:
    good = (tmp_path / "tools" / "debootstrap").read_text()
    (tmp_path / "tools" / "debootstrap").write_text("#!/bin/bash\necho no mirror\nmkdir -p ${@: -1}\nexit 1\n")
    done = call(with_root, "3.14", "pinned")
    assert done.returncode == 2
    assert done.stderr.splitlines()[1].startswith("test_python: debootstrap: it cannot make ")
    assert (with_root / "build" / "roots" / "3.14.log").read_text() == "no mirror\n"
    (tmp_path / "tools" / "debootstrap").write_text(good)
    assert call(with_root, "3.14", "pinned").returncode == 0


@pytest.mark.parametrize(("version", "suite"), [("3.11", "bookworm"), ("3.13", "trixie"), ("3.14", "sid")])
def test_the_root_has_the_python_of_its_debian(with_root: Path, version: str, suite: str) -> None:
    done = call(with_root, version, "2.14.1", "-k", "a b", "$x `y`")
    assert (done.returncode, done.stdout) == (0, f"[python{version}]\n[2.14.1]\n[-k]\n[a b]\n[$x `y`]\n"), done.stderr
    words = (with_root / "build" / "roots" / version / "debootstrap").read_text().split()
    assert words[:-1] == [
        "--variant=minbase",
        f"--include=python{version},python{version}-venv,ca-certificates,git,make,procps",
        suite,
    ]


def test_the_copy_has_the_uncommitted_changes(with_root: Path) -> None:
    (with_root / "constraints.txt").write_text("changed\n")
    (with_root / "removed").unlink()
    (with_root / "new file").write_text("new\n")
    done = call(with_root, "3.14", "pinned", "--", "sh", "-c", "pwd; cat constraints.txt 'new file'; ls; git ls-files")
    assert done.returncode == 0, done.stderr
    place, *lines = done.stdout.splitlines()
    assert (place, lines[:2]) == ("/work/pinned", ["changed", "new"])
    assert "removed" not in lines


def test_the_exit_code_is_that_of_the_command(with_root: Path) -> None:
    assert call(with_root, "3.14", "pinned", "--", "sh", "-c", "exit 7").returncode == 7


def test_pip_is_configured_as_on_the_host_and_other_variables_stay_outside(with_root: Path, tmp_path: Path) -> None:
    wheels, index = tmp_path / "wheels", tmp_path / "index"
    for folder in (wheels, index / "simple", index / "files"):
        folder.mkdir(parents=True)
        (folder / "file").write_text(f"{folder.name}\n")
    home = tmp_path / "home"
    config = home / ".config" / "pip" / "pip.conf"
    config.parent.mkdir(parents=True)
    config.write_text(f"[global]\nextra-index-url = https://x/y file://{index}/simple\n")
    kept = {"PIP_FIND_LINKS": str(wheels), "https_proxy": "http://p", "SECRET": "s", "HOME": str(home)}
    files = f"{wheels}/file {index}/simple/file {index}/files/file"
    code = f"cat {files} ~/.config/pip/pip.conf; echo $PIP_FIND_LINKS $https_proxy $SECRET"
    done = call(with_root, "3.14", "pinned", "--", "sh", "-c", code, env={**os.environ, **kept})
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"wheels\nsimple\nfiles\n{config.read_text()}{wheels} http://p\n"


@pytest.mark.parametrize("fresh", [True, False], ids=["process-1", "another-process"])
def test_the_mounts_of_the_machine_are_never_changed(with_root: Path, fresh: bool) -> None:
    """Run the second part of the script by hand. The namespace around it is for the case that nothing refuses."""
    inner = f"exec bash {with_root}/.ci/test_python --in-namespace $(readlink /proc/self/ns/mnt) 3.14 pinned"
    fork = ["--pid", "--fork", "--mount-proc"] if fresh else []
    command = ["unshare", "--mount", *fork, "bash", "-c", inner]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("test_python: --in-namespace: the mounts here are those of the machine")
    assert not (with_root / "build").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_leaves_neither_a_mount_nor_a_process(with_root: Path, number: signal.Signals) -> None:
    before = Path("/proc/self/mounts").read_text()
    words = ["3.14", "pinned", "--", "sh", "-c", ": >begun; sleep 86399"]
    run = subprocess.Popen(["bash", str(with_root / ".ci" / "test_python"), *words])
    begun = with_root / "build" / "roots" / "3.14" / "work" / "pinned" / "begun"
    ends = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < ends:
        time.sleep(0.05)
    children = psutil.Process(run.pid).children(recursive=True)
    assert {"unshare", "bash", "sh"} <= {each.name() for each in children}
    run.send_signal(number)
    assert run.wait(30) == -number
    assert psutil.wait_procs(children, timeout=30)[1] == []
    assert Path("/proc/self/mounts").read_text() == before
    assert str(with_root) not in before
