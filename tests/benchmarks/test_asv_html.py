"""asv's pages without outside hosts, also in a real browser that can reach none."""

import base64
import functools
import hashlib
import http.server
import io
import os
import shutil
import subprocess
import tarfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import asv_html
from benchmarks.asv_html import LocaliseError, Package, Packages, localise
from tests.benchmarks.conftest import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NOWHERE = "http://127.0.0.1:9"
SCRIPT = b"an outside script"
TAG = '<script src="https://outside.invalid/ajax/1.0/script.min.js" integrity="sha256-x="></script>'
STYLE = '<link rel="stylesheet" href="//outside.invalid/style.min.css" integrity="sha256-y=">'
LINK = '<a href="https://outside.invalid/script.min.js">a link</a>'


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """Return a folder with a page, and the package that holds the scripts it loads."""
    (tmp_path / "html").mkdir()
    (tmp_path / "html/index.html").write_text(f"{TAG}\n{STYLE}\n{LINK}\n")
    kept = tmp_path / "packages/one-1.0.0.tgz"
    kept.parent.mkdir()
    with tarfile.open(kept, "w:gz") as package:
        for name, content in (("js/s.js", SCRIPT), ("LICENSE.txt", b"free"), ("package.json", b"{}"), ("other", b"")):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
    one = Package("one", "1.0.0", base64.b64encode(hashlib.sha512(kept.read_bytes()).digest()).decode())
    copy = (one, "js/s.js")
    monkeypatch.setattr(asv_html, "COPIES", {"script.min.js": copy, "style.min.css": copy})
    return tmp_path / "html", Packages(kept.parent, NOWHERE)


@pytest.fixture
def registry(tmp_path):
    """Return a folder and the URL that serves it."""
    folder = tmp_path / "registry"
    folder.mkdir()
    with served(folder) as url:
        yield folder, url


@contextmanager
def served(folder):
    handler = functools.partial(QuietHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_references_are_rewritten_to_copies_beside_the_page(pages):
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


def test_a_missing_package_is_fetched_once(pages, registry):
    html, packages = pages
    kept, (folder, url) = packages.folder / "one-1.0.0.tgz", registry
    (folder / "one/-").mkdir(parents=True)
    kept.rename(folder / "one/-/one-1.0.0.tgz")
    packages.folder.rmdir()
    assert localise(html, Packages(packages.folder, f"{url}/")) == 2
    assert kept.read_bytes() == (folder / "one/-/one-1.0.0.tgz").read_bytes()
    (html / "index.html").write_text(TAG)
    assert localise(html, packages) == 1


def test_a_package_with_another_hash_is_refused(pages, registry):
    html, packages = pages
    kept, (folder, url) = packages.folder / "one-1.0.0.tgz", registry
    kept.write_bytes(b"torn")
    with pytest.raises(LocaliseError, match=r"one-1\.0\.0\.tgz: has sha512 \S{88}; allowed: \S{88}; remove it$"):
        localise(html, packages)
    (folder / "one/-").mkdir(parents=True)
    kept.rename(folder / "one/-/one-1.0.0.tgz")
    with pytest.raises(LocaliseError, match=rf"^{url}/one/-/one-1\.0\.0\.tgz: has sha512 \S+; allowed: \S{{88}}$"):
        localise(html, Packages(packages.folder, url))
    assert not kept.exists()
    assert TAG in (html / "index.html").read_text()


def test_a_script_without_a_known_copy_is_reported(pages, monkeypatch):
    monkeypatch.delitem(asv_html.COPIES, "style.min.css")
    with pytest.raises(LocaliseError, match=r"loads style\.min\.css, which has no known copy; allowed: script"):
        localise(*pages)


def test_without_a_network_a_missing_package_is_reported(pages, registry):
    html, packages = pages
    (packages.folder / "one-1.0.0.tgz").unlink()
    for url, reason in ((NOWHERE, "Connection refused"), (registry[1], "404"), ("no-url", "unknown url type")):
        with pytest.raises(LocaliseError) as raised:
            localise(html, Packages(packages.folder, f"{url}/"))
        text = str(raised.value)
        assert text.startswith(f"{url}/one/-/one-1.0.0.tgz: cannot be fetched: ")
        assert reason in text
        assert text.endswith(f"; allowed: a network, or the file {packages.folder / 'one-1.0.0.tgz'}")


def test_without_pages_the_command_to_run_first_is_reported(tmp_path):
    with pytest.raises(LocaliseError, match=r"cannot be read: .*; first: asv publish"):
        localise(tmp_path, Packages(tmp_path, NOWHERE))


def test_every_outside_script_of_asvs_own_page_has_a_copy():
    import asv

    text = (Path(asv.__file__).parent / "www/index.html").read_text()
    assert {match["name"] for match in asv_html._OUTSIDE.finditer(text)} == set(asv_html.COPIES)


@pytest.fixture
def browse(asv, tmp_path):
    """Return a function from a published page to its document after the scripts ran."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    asv.call("publish", "--no-pull")
    try:
        localise(asv.folder / ".asv/html", Packages(ROOT / ".asv/npm", "https://registry.npmjs.org"))
    except LocaliseError as error:
        pytest.skip(f"the scripts cannot be fetched: {error}")
    with served(asv.folder / ".asv/html") as url:

        def call(page):
            words = (
                *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
                f"--user-data-dir={tmp_path}/browser",
                "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # no outside host can be reached
                *("--virtual-time-budget=20000", "--dump-dom", f"{url}/{page}"),
            )
            environment = {**os.environ, "HOME": str(tmp_path)}
            done = subprocess.run(
                [CHROMIUM, *words], env=environment, capture_output=True, text=True, check=True, timeout=120
            )
            return done.stdout

        yield call


@pytest.mark.timeout(600)
def test_the_graph_of_a_benchmark_is_drawn(browse):
    drawn = browse("#step_time.StepTime.track_step_time")
    assert 'class="flot-base"' in drawn
    assert drawn.count("flot-tick-label") > 3  # the axis has labels only if there are points
    assert "variant-tuned; workload-mlp/small" in drawn


@pytest.mark.timeout(600)
def test_the_injected_regression_is_listed(browse, asv):
    drawn = browse("#/regressions")
    assert "step_time.StepTime.track_step_time('tuned', 'mlp/small', 64, 2)" in drawn
    assert asv.commits["slow"][:8] in drawn
