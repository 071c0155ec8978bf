"""Wrong input in a real process: one line, exit code 2, nothing written. `tests/hostile/rows.py` has the table."""

import pytest

QUICK = ("--workloads", "mlp/tiny", "--rounds", "1", "--budget", "5s")


def assert_refused(done, words, folder, keeping=()):
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert {path.name for path in folder.iterdir()} == set(keeping)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--variants", "tuned,tunde"], ["--variants", "tunde", "tuned"]),
        (["--workloads", "nowhere.to:be"], ["workloads", "nowhere.to:be", "ModuleNotFoundError"]),
        (["--workloads", "json:loads"], ["json:loads", "TypeError"]),
    ],
    ids=["an option", "a missing factory", "a factory that raises"],
)
def test_options(dpbench, tmp_path, options, words):
    assert_refused(dpbench("compare", *QUICK, *options), words, tmp_path)


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
