"""`dpbench report`, and the pages of the other commands."""

import json

import pytest

from dpbench.cli.options import PageOutput
from dpbench.cli.page import finish_page_beside
from dpbench.records.row import to_line
from dpbench.report.page.inputs import PageInputs
from tests.cli.repositories import git
from tests.elastic.making import made_records
from tests.report.page.making_commits import commit, commit_records
from tests.report.page.making_gates import SLOWER_AT, gate_lines
from tests.report.page.making_page import lane_records


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(map(to_line, lane_records(rounds=2))))
    return path


def test_a_page_is_written_and_its_path_printed(dpbench, records, tmp_path):
    done = dpbench("report", records, "--output", "out.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mlp/small, batch 64 on cpu*2: Use one device here")
    assert done.stdout.endswith("\npage: out.html\n")
    text = (tmp_path / "out.html").read_text()
    assert "Use one device here" in text
    assert text.rstrip().endswith("</html>")


def test_several_files_have_a_page_of_their_own(dpbench, records, tmp_path):
    """A page beside the first file would replace that file's own."""
    (tmp_path / "r.html").write_text("the first run's page")
    (tmp_path / "s.jsonl").write_bytes(records.read_bytes())
    assert dpbench("report", records, "s.jsonl").stdout.endswith(f"page: {tmp_path}/report.html\n")
    assert (tmp_path / "r.html").read_text() == "the first run's page"
    assert dpbench("report", records).stdout.endswith(f"page: {tmp_path}/r.html\n")


def test_a_page_beside_records_follows_no_link(tmp_path, capsys):
    notes, page = tmp_path / "notes", tmp_path / "sweep-s.html"
    notes.write_text("mine")
    page.symlink_to(notes)
    finish_page_beside(PageInputs(), lambda: page, PageOutput())
    assert notes.read_text() == "mine"
    assert "sweep-s.html: cannot be written: a symbolic link" in capsys.readouterr().err


def test_records_of_elastic_runs_are_read_too(dpbench, records, tmp_path):
    (tmp_path / "e.jsonl").write_bytes(b"".join(map(to_line, made_records())))
    assert dpbench("report", "e.jsonl", records).returncode == 0
    text = (tmp_path / "report.html").read_text()
    assert "kill@7:1 cost 12.5 s." in text
    assert "Use one device here" in text


def test_the_gates_history_is_read_under_any_name(dpbench, records, tmp_path):
    (tmp_path / "gates.txt").write_bytes(b"".join(map(to_line, gate_lines())))
    for words, page in ((("gates.txt", records), "report.html"), (("gates.txt", "--history"), "gates.html")):
        done = dpbench("report", *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith(f"page: {page}\n")
        text = (tmp_path / page).read_text()
        assert "step times changed on laptop: a CPU?" in text
        assert f"The verdict was slower in 2: {commit(SLOWER_AT)[:10]} on 2026-09-12" in text
    refused = dpbench("report", "gates.txt", records, "--history")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


def test_a_page_without_a_browser_is_written_with_a_warning(dpbench_process, records, tmp_path):
    done = dpbench_process("report", records, "--open", BROWSER=str(tmp_path / "none"), PATH="/none", DISPLAY="")
    assert done.returncode == 0
    assert "r.html is written, but there is no browser to open it" in done.stderr


def test_the_browser_gets_the_pages_address(dpbench_process, records, tmp_path):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    assert dpbench_process("report", records, "--open", BROWSER=f"{browser} %s").returncode == 0
    assert (tmp_path / "opened").read_text() == f"file://{tmp_path}/r.html\n"


def test_markdown_goes_to_standard_output_and_the_page_is_written(dpbench, records, tmp_path):
    done = dpbench("report", records, "--markdown")
    assert (done.returncode, done.stderr) == (0, f"dpbench: page: {tmp_path}/r.html\n")
    assert done.stdout.startswith("#### mlp/small, batch 64 on cpu\\*2, train, float32")
    assert "| `tuned` |" in done.stdout
    assert (tmp_path / "r.html").exists()
    assert json.loads(dpbench("report", records, "--json").stdout)["machines"][0]["cases"]


def test_two_commits_are_compared(dpbench, tmp_path):
    (tmp_path / "r.jsonl").write_bytes(b"".join(map(to_line, commit_records([2, 7, 15]))))
    done = dpbench("report", "r.jsonl", "--commits", commit(2)[:7], commit(15)[:7])
    *_, answer, page = done.stdout.splitlines()
    assert (done.returncode, page, done.stderr) == (0, "page: r.html", "")
    assert answer.startswith(f"From {commit(2)[:10]} to {commit(15)[:10]}: of 5 cases, 1 surely slower (by up to +")
    text = (tmp_path / "r.html").read_text()
    assert answer in text
    assert commit(7)[:10] not in text


def test_several_commits_are_a_history_in_the_order_of_the_repository(dpbench, tmp_path, monkeypatch):
    git(tmp_path, "init", "--quiet")
    for day in range(2):
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"2026-09-{day + 1:02}T12:00:00Z")
        git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", f"{day}")
    first, last = git(tmp_path, "log", "--reverse", "--format=%H").split()
    made = {commit(2): last, commit(15): first}  # the later commit was measured first
    records = b"".join(map(to_line, commit_records([2, 15]))).decode()
    for old, new in made.items():
        records = records.replace(old, new)
    (tmp_path / "r.jsonl").write_text(records)
    for folder, ends in ((tmp_path / ".git", (first, last)), (tmp_path / "none", (last, first))):
        assert dpbench("report", "r.jsonl", GIT_DIR=str(folder)).returncode == 0
        assert f"From {ends[0][:10]} to {ends[1][:10]}: " in (tmp_path / "r.html").read_text()


def test_files_without_a_record_are_wrong_input_in_one_line_and_give_no_page(dpbench, tmp_path):
    (tmp_path / "other.jsonl").write_text('{"plant": "a"}\n')
    done = dpbench("report", "other.jsonl", "--json")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("dpbench: other.jsonl: no line is a record; other.jsonl: line 1 ")
    assert not (tmp_path / "other.html").exists()


def test_bad_lines_among_records_are_named(dpbench, records):
    records.write_bytes(records.read_bytes() + b"{}\n")
    done = dpbench("report", records)
    assert done.returncode == 0
    assert "1 bad line was left out" in done.stderr
