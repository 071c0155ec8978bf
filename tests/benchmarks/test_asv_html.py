"""asv's pages without outside hosts, in a real browser that cannot reach any."""

import functools
import hashlib
import http.server
import io
import os
import shutil
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest

from benchmarks import asv_html
from benchmarks.asv_html import Copy, LocaliseError, localise
from tests.benchmarks.conftest import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SCRIPT = b"an outside script"
TAG = '<script src="https://outside.invalid/ajax/1.0/script.min.js" integrity="sha256-x="></script>'
STYLE = '<link rel="stylesheet" href="//outside.invalid/style.min.css" integrity="sha256-y=">'
LINK = '<a href="https://outside.invalid/script.min.js">a link</a>'


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """A page, a package with what it refers to, and no npm to fetch another."""
    (tmp_path / "html").mkdir()
    (tmp_path / "html/index.html").write_text(f"{TAG}\n{STYLE}\n{LINK}\n")
    (tmp_path / "packages").mkdir()
    with tarfile.open(tmp_path / "packages/one-1.0.0.tgz", "w:gz") as package:
        for name, content in (("js/s.js", SCRIPT), ("LICENSE.txt", b"free"), ("package.json", b"{}"), ("other", b"")):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
    copy = Copy("one@1.0.0", "js/s.js", hashlib.sha256(SCRIPT).hexdigest())
    monkeypatch.setattr(asv_html, "COPIES", {"script.min.js": copy, "style.min.css": copy})
    monkeypatch.setenv("PATH", "/nonexistent")
    return tmp_path / "html", tmp_path / "packages"


def test_references_are_rewritten_and_their_files_lie_beside_them(pages):
    html, _ = pages
    assert localise(*pages) == 2
    text = (html / "index.html").read_text()
    assert '<script src="vendor/one@1.0.0/script.min.js" onerror="js_load_failure()"></script>' in text
    assert '<link rel="stylesheet" href="vendor/one@1.0.0/style.min.css">' in text
    assert LINK in text
    assert (html / "vendor/one@1.0.0/script.min.js").read_bytes() == SCRIPT
    assert {path.name for path in html.glob("vendor/*/*")} == {
        *("script.min.js", "style.min.css", "LICENSE.txt", "package.json")
    }
    assert localise(*pages) == 0


def test_another_file_than_the_pinned_one_is_refused(pages, monkeypatch):
    monkeypatch.setitem(asv_html.COPIES, "script.min.js", Copy("one@1.0.0", "js/s.js", "0" * 64))
    with pytest.raises(LocaliseError, match=r"one-1\.0\.0\.tgz: js/s\.js has sha256 \w{64}; allowed: 0{64}"):
        localise(*pages)


def test_a_script_of_which_no_copy_is_known_is_named(pages, monkeypatch):
    monkeypatch.delitem(asv_html.COPIES, "style.min.css")
    with pytest.raises(LocaliseError, match=r"loads style\.min\.css, of which no copy is known; allowed: script"):
        localise(*pages)


def test_without_npm_and_without_the_package_it_says_so(pages):
    html, packages = pages
    (packages / "one-1.0.0.tgz").unlink()
    with pytest.raises(LocaliseError, match=r"npm pack .* one@1\.0\.0: .*; allowed: npm and a network, or "):
        localise(html, packages)


def test_without_pages_it_says_what_comes_first(tmp_path):
    with pytest.raises(LocaliseError, match=r"cannot be read: .*; first: asv publish"):
        localise(tmp_path, tmp_path)


def test_all_that_asvs_own_page_loads_from_outside_has_a_copy():
    import asv

    text = (Path(asv.__file__).parent / "www/index.html").read_text()
    assert {match["name"] for match in asv_html._OUTSIDE.finditer(text)} == set(asv_html.COPIES)


@pytest.fixture
def browse(asv, tmp_path):
    """Call with a page of the published history; answers the document as the browser has drawn it."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    asv.call("publish", "--no-pull")
    try:
        localise(asv.folder / ".asv/html", ROOT / ".asv/npm")
    except LocaliseError as error:
        pytest.skip(f"the scripts cannot be had: {error}")
    handler = functools.partial(QuietHandler, directory=asv.folder / ".asv/html")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def call(page):
            words = (
                *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
                f"--user-data-dir={tmp_path}/browser",
                "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # no outside host can be reached
                *("--virtual-time-budget=20000", "--dump-dom", f"http://127.0.0.1:{server.server_port}/{page}"),
            )
            environment = {**os.environ, "HOME": str(tmp_path)}
            done = subprocess.run(
                [CHROMIUM, *words], env=environment, capture_output=True, text=True, check=True, timeout=120
            )
            return done.stdout

        yield call
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.timeout(600)
def test_the_graph_of_a_benchmark_is_drawn(browse):
    drawn = browse("#step_time.StepTime.track_step_time")
    assert 'class="flot-base"' in drawn
    assert drawn.count("flot-tick-label") > 3  # the axis is labelled once there are points to draw
    assert "variant-tuned; workload-mlp/small" in drawn


@pytest.mark.timeout(600)
def test_the_planted_regression_is_listed(browse, asv):
    drawn = browse("#/regressions")
    assert "step_time.StepTime.track_step_time('tuned', 'mlp/small', 64, 2)" in drawn
    assert asv.commits["slow"][:8] in drawn
