"""Links to commits, legends and tables of asv, without running it."""

import json
import shutil
from math import nan
from pathlib import Path

import asv
import pytest
from asv import results

from benchmarks.asv_output import without_skipped
from benchmarks.asv_pages import PagesError, commit_url, drop_empty_series, link_commits

WWW = Path(asv.__file__).parent / "www"


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("https://github.com/a/b.git", "https://github.com/a/b/commit/"),
        ("https://user:token@github.com/a/b", "https://github.com/a/b/commit/"),
        ("git@gitlab.com:group/sub/b.git\n", "https://gitlab.com/group/sub/b/commit/"),
        ("ssh://git@host.org:2222/a/b.git", "https://host.org/a/b/commit/"),
        ("/srv/git/b.git", ""),
        ("../b", ""),
        ("", ""),
        ('https://x.org/a"><script>', ""),
    ],
)
def test_the_address_of_commits_is_that_of_the_remote(remote, url):
    assert commit_url(remote) == url


def test_the_address_is_written_into_the_index(tmp_path):
    (tmp_path / "index.json").write_text('{"project": "p", "show_commit_url": "#"}')
    link_commits(tmp_path, "https://x/commit/")
    assert json.loads((tmp_path / "index.json").read_text()) == {"project": "p", "show_commit_url": "https://x/commit/"}


def test_asvs_own_script_skips_series_without_a_number(tmp_path):
    script = tmp_path / "graphdisplay.js"
    shutil.copy(WWW / "graphdisplay.js", script)
    drop_empty_series(tmp_path)
    changed = script.read_text()
    assert changed.index("if (!series.some(") < changed.index("orig_graphs.push({")
    drop_empty_series(tmp_path)
    assert script.read_text() == changed
    script.write_text("other")
    with pytest.raises(PagesError, match="is there 0 times; allowed: once"):
        drop_empty_series(tmp_path)


def table(*values):
    """Two variants on 2 and 4 lanes."""
    params, names = [["'a'", "'b'"], ["2", "4"]], ["variant", "lanes"]
    benchmark = {"params": params, "param_names": names, "unit": "count", "name": "b"}
    return "\n".join(without_skipped(results._format_benchmark_result)([(value, None) for value in values], benchmark))


def test_values_that_cannot_be_measured_are_one_line():
    text = table(7, nan, nan, nan)
    assert "7" in text
    assert "n/a" not in text
    assert " b " not in text
    assert text.endswith("3 of 4 combinations cannot be measured here")
    assert table(nan, nan, nan, nan) == "4 of 4 combinations cannot be measured here"


def test_failures_and_holes_stay():
    assert "failed" in table(None, nan, nan, nan)
    assert table(7, nan, nan, 8).count("n/a") == 2
    assert "cannot be measured" not in table(7, nan, nan, 8)
