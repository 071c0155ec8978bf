"""Packages from npm's registry: fetched once, and checked against their hash."""

import base64
import functools
import hashlib
import http.server
import threading

import pytest

from benchmarks.instruments.page_assets import Package, PackageError, Packages

NOWHERE = "http://127.0.0.1:9"
CONTENT = b"an archive"
ONE = Package("one", "1.0.0", base64.b64encode(hashlib.sha512(CONTENT).digest()).decode())


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def registry(tmp_path):
    """Return the file that a registry serves as the package, and the registry's URL."""
    file = tmp_path / "registry/one/-/one-1.0.0.tgz"
    file.parent.mkdir(parents=True)
    handler = functools.partial(QuietHandler, directory=tmp_path / "registry")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield file, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_missing_package_is_fetched_once(registry, tmp_path):
    file, url = registry
    file.write_bytes(CONTENT)
    assert Packages(tmp_path / "kept", f"{url}/").archive(ONE) == CONTENT
    assert Packages(tmp_path / "kept", NOWHERE).archive(ONE) == CONTENT


def test_a_package_with_another_hash_is_refused(registry, tmp_path):
    file, url = registry
    file.write_bytes(b"torn")
    with pytest.raises(PackageError, match=rf"^{url}/one/-/one-1\.0\.0\.tgz: has sha512 \S+; allowed: \S{{88}}$"):
        Packages(tmp_path / "kept", url).archive(ONE)
    assert not (tmp_path / "kept").exists()
    file.rename(tmp_path / "one-1.0.0.tgz")
    with pytest.raises(PackageError, match=r"one-1\.0\.0\.tgz: has sha512 \S{88}; allowed: \S{88}; remove it$"):
        Packages(tmp_path, NOWHERE).archive(ONE)


def test_without_a_network_a_missing_package_is_reported(registry, tmp_path):
    for url, reason in ((NOWHERE, "Connection refused"), (registry[1], "404"), ("no-url", "unknown url type")):
        with pytest.raises(PackageError) as raised:
            Packages(tmp_path, f"{url}/").archive(ONE)
        text = str(raised.value)
        assert text.startswith(f"{url}/one/-/one-1.0.0.tgz: cannot be fetched: ")
        assert reason in text
        assert text.endswith(f"; allowed: a network, or the file {tmp_path / 'one-1.0.0.tgz'}")
