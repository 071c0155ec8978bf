"""Wrong options and wrong files: one line, exit code 2, nothing written."""

import pytest

QUICK = ("--workloads", "mlp/tiny", "--rounds", "1", "--budget", "5s")

OPTIONS = {
    "unknown variant": (["--variants", "tuned,tunde"], ["--variants", "tunde", "tuned"]),
    "unknown workload": (["--workloads", "mpl/tiny"], ["--workloads", "mpl/tiny", "mlp"]),
    "unknown size": (["--workloads", "mlp/huge"], ["--workloads", "mlp/huge", "small"]),
    "batch 0": (["--batch", "0"], ["--batch", "0", "from 1"]),
    "batch of no number": (["--batch", "many"], ["--batch", "many", "whole numbers"]),
    "batch smaller than the lanes": (["--batch", "3", "--devices", "cpu*4"], ["batch", "3", "4 and above"]),
    "unknown device": (["--devices", "gpu:0"], ["devices", "gpu:0", "did you mean 'cuda:0'", "allowed: cpu"]),
    "a device that does not exist": (["--devices", "cuda:0*2"], ["devices", "cuda:0", "allowed: cpu"]),
    "no device list": (["--devices", "cpu*"], ["--devices", "cpu*", "cpu*4"]),
    "unknown mode": (["--modes", "trian"], ["--modes", "trian", "train"]),
    "unknown dtype": (["--dtypes", "float"], ["--dtypes", "float", "float32"]),
    "unknown data": (["--data", "mnist"], ["--data", "mnist", "digits"]),
    "no round": (["--rounds", "0"], ["--rounds", "0", "1 to 1000"]),
    "no step in a sample": (["--steps-per-sample", "0"], ["--steps-per-sample", "0", "1 to 100000"]),
    "fewer steps than none": (["--steps-per-sample", "-1"], ["--steps-per-sample", "-1", "1 to 100000"]),
    "steps of no number": (["--steps-per-sample", "abc"], ["--steps-per-sample", "abc", "1 to 100000"]),
    "no duration": (["--budget", "soon"], ["--budget", "soon", "2m"]),
    "a budget that is too long": (["--budget", "999999999h"], ["--budget", "999999999h", "at most 168h"]),
    "a timeout that is too long": (["--timeout", "600h"], ["--timeout", "600h", "at most 168h"]),
    "a timeout of 400 digits": (["--timeout", "9" * 400], ["--timeout", "9999...9999", "at most 168h"]),
    "digits that are not ASCII": (["--devices", "cpu*\u0664"], ["--devices", "\u0664", "cpu*4"]),
    "a device of 5000 digits": (["--devices", "cuda:" + "1" * 5000], ["--devices", "1111...1111", "cpu*4"]),
    "too many threads": (["--threads", "4096"], ["threads", "4096", "1 to"]),
    "unknown option": (["--varants", "tuned"], ["--varants"]),
    "missing factory module": (["--workloads", "nowhere.to:be"], ["workloads", "nowhere.to:be", "ModuleNotFoundError"]),
    "missing factory": (["--workloads", "json:factory"], ["workloads", "json:factory", "AttributeError"]),
    "factory of the wrong thing": (["--workloads", "json:JSONEncoder"], ["json:JSONEncoder", "Workload"]),
    "factory that raises": (["--workloads", "json:loads"], ["json:loads", "TypeError"]),
}


def assert_refused(done, words, folder, keeping=()):
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert {path.name for path in folder.iterdir()} == set(keeping)


@pytest.mark.parametrize(("options", "words"), OPTIONS.values(), ids=OPTIONS.keys())
def test_options(dpbench, tmp_path, options, words):
    assert_refused(dpbench("compare", *QUICK, *options), words, tmp_path)


FILES = {
    "not toml": (b"variants = [", ["sweep.toml", "is not TOML"]),
    "not text": (b"\xff\xfe\x00", ["sweep.toml", "is not TOML"]),
    "unknown key": (b'varients = ["tuned"]', ["sweep.toml", "varients", "variants"]),
    "wrong type": (b'batch = "64"', ["sweep.toml", "batch", "64"]),
    "no step in a sample": (b"steps_per_sample = 0", ["sweep.toml", "steps_per_sample", "1 to 100000"]),
    "empty list": (b"variants = []", ["sweep.toml", "variants"]),
    "twice": (b'variants = ["tuned", "tuned"]', ["sweep.toml", "variants", "tuned", "twice"]),
    "unknown variant": (b'variants = ["tunde"]', ["sweep.toml", "variants", "tunde", "tuned"]),
}


@pytest.mark.parametrize(("content", "words"), FILES.values(), ids=FILES.keys())
def test_sweep_files(dpbench, tmp_path, content, words):
    (tmp_path / "sweep.toml").write_bytes(content)
    assert_refused(dpbench("sweep", "sweep.toml"), words, tmp_path, keeping=["sweep.toml"])


def test_a_sweep_file_that_is_missing(dpbench, tmp_path):
    assert_refused(dpbench("sweep", "none.toml"), ["none.toml", "cannot be read"], tmp_path)


def test_a_results_folder_that_is_a_file(dpbench, tmp_path):
    (tmp_path / "results").write_text("mine")
    done = dpbench("compare", *QUICK, "--results", "results")
    assert_refused(done, ["results", "cannot be written"], tmp_path, keeping=["results"])
    assert (tmp_path / "results").read_text() == "mine"


def test_a_sweep_leaves_a_file_of_somebody_else_as_it_was(dpbench, tmp_path):
    (tmp_path / "s.toml").write_text('variants = ["single"]\nworkloads = ["mlp/tiny"]')
    notes, file = tmp_path / "notes", tmp_path / "results/sweep-s.jsonl"
    file.parent.mkdir()
    for make, reason in ((file.write_text, "not written by dpbench"), (lambda _: file.symlink_to(notes), "a symbolic")):
        notes.write_text("milk, eggs, bread; call mother")
        file.unlink(missing_ok=True)
        make("milk, eggs, bread; call mother")
        done = dpbench("sweep", "s.toml", "--results", "results")
        assert_refused(done, ["results/sweep-s.jsonl", reason], tmp_path, keeping=["s.toml", "notes", "results"])
        assert file.read_text() == notes.read_text() == "milk, eggs, bread; call mother"
        assert list(file.parent.iterdir()) == [file]


def test_an_unknown_command(dpbench, tmp_path):
    assert_refused(dpbench("compair"), ["compair"], tmp_path)
