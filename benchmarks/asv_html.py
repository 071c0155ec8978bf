"""Make the pages of `asv publish` work without internet. `make asv-html` runs this after it.

    python -m benchmarks.asv_html [--html DIR] [--packages DIR] [--registry URL]

asv's index.html loads scripts from three outside hosts. This script copies them from npm packages of exact versions
into vendor/, with the packages' licences, and rewrites the references. It keeps the packages, so a second call needs
no network. It does not need npm itself, which few machines with GPUs have.
"""

import argparse
import base64
import hashlib
import io
import re
import sys
import tarfile
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from benchmarks import asv_pages

_TIMEOUT_S = 60


class LocaliseError(Exception):
    """A file is missing or wrong; the text is one line."""


@dataclass(frozen=True)
class Package:
    """A package of npm's registry.

    `sha512` is the archive's hash in base64, as ``npm view NAME@VERSION dist.integrity`` prints it.
    """

    name: str
    version: str
    sha512: str

    @property
    def archive(self) -> str:
        return f"{self.name}-{self.version}.tgz"


_JQUERY = Package(
    "jquery", "3.3.1", "Ubldcmxp5np52/ENotGxlLe6aGMvmF4R8S6tZjsP6Knsaxd/xp3Zrh50cG93lR6nPXyUFwzN3ZSOQI0wRJNdGg=="
)
_FLOT = Package(
    "flot", "0.8.3", "xg2otcTJDvS+ERK+my4wxG/ASq90QURXtoM4LhacCq0jQW2jbyjdttbRNqU2cPykrpMvJ6b2uSp6SAgYAzj9tQ=="
)
_ORDER_BARS = Package(
    "flot-orderbars",
    "1.0.0",
    "Jv51fvzevUjNXEeozpwEKfPjhiZhfiJddv0WHjduUTCmSF+7T5K7C9c9Y1wIVmUhDBv5fLMjgbwKecT0GIKPZA==",
)
_STUPID_TABLE = Package(
    *("stupid-table-plugin", "1.1.3"),
    "2Vk7XouQPxUQPRe9w0Fu7ZZ8kHLK7rDoLMsCgtKxRNJ7f4dSOGvW9CkHsq5wD6QsaEnWoyLBYH3xOEsrK3yWBg==",
)
_MD5 = Package(
    "blueimp-md5", "2.19.0", "DRQrD6gJyy8FbiE4s+bDoXS9hiW3Vbx5uCdwvcCf3zLHL+Iv7LtGHLpr+GZV8rHG8tK766FGYBwRbu8pELTt+w=="
)
_BOOTSTRAP = Package(
    "bootstrap", "3.1.1", "TAzqS8E/ISpVHP29gYhy+1NSV+FJwApDVQhDfgLYsIuUDJiqJzH2DfORN5tiu+Ie2iBLrzEG34t4Rf465cigqg=="
)
# By the name in asv's page. npm's flot and stupidtable differ from asv's: not minified, or a later patch version.
COPIES = {
    "jquery-3.3.1.min.js": (_JQUERY, "dist/jquery.min.js"),
    "jquery.flot.min.js": (_FLOT, "jquery.flot.js"),
    "jquery.flot.time.min.js": (_FLOT, "jquery.flot.time.js"),
    "jquery.flot.selection.min.js": (_FLOT, "jquery.flot.selection.js"),
    "jquery.flot.categories.min.js": (_FLOT, "jquery.flot.categories.js"),
    "jquery.flot.orderBars.js": (_ORDER_BARS, "js/jquery.flot.orderBars.js"),
    "stupidtable.min.js": (_STUPID_TABLE, "stupidtable.min.js"),
    "md5.min.js": (_MD5, "js/md5.min.js"),
    "bootstrap.min.js": (_BOOTSTRAP, "dist/js/bootstrap.min.js"),
    "bootstrap.min.css": (_BOOTSTRAP, "dist/css/bootstrap.min.css"),
}
# The licence file. A package without one names its licence in package.json.
_LICENCE = re.compile(r"package/(licen[cs]e(\.\w+)?|package\.json)", re.IGNORECASE)
_OUTSIDE = re.compile(r'<(?:script|link)\b[^>]*?\b(?:src|href)="(?:https?:)?//[^"]*?(?P<name>[^/"]+)"[^>]*>')


@dataclass(frozen=True)
class Packages:
    """Archives that `folder` keeps. Missing ones are fetched from the URL `registry`."""

    folder: Path
    registry: str

    def archive(self, package: Package) -> bytes:
        """Return the package's archive, checked against its hash. Raises LocaliseError."""
        path = self.folder / package.archive
        kept = path.exists()
        content = path.read_bytes() if kept else self._fetch(package)
        digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
        if digest != package.sha512:
            advice = "; remove it" if kept else ""
            raise LocaliseError(
                f"{path if kept else self._url(package)}: has sha512 {digest}; allowed: {package.sha512}{advice}"
            )
        if not kept:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return content

    def _fetch(self, package: Package) -> bytes:
        url = self._url(package)
        try:
            with urlopen(url, timeout=_TIMEOUT_S) as answer:
                return bytes(answer.read())
        except (OSError, HTTPException, ValueError) as error:
            path = self.folder / package.archive
            raise LocaliseError(f"{url}: cannot be fetched: {error}; allowed: a network, or the file {path}") from None

    def _url(self, package: Package) -> str:
        return f"{self.registry.rstrip('/')}/{package.name}/-/{package.archive}"


def localise(html: Path, packages: Packages) -> int:
    """Rewrite index.html and copy the scripts beside it. Raises LocaliseError.

    Returns the number of references that were rewritten.
    """
    index = html / "index.html"
    try:
        text = index.read_text()
    except OSError as error:
        raise LocaliseError(f"{index}: cannot be read: {error.strerror}; first: asv publish") from None
    found = [(match[0], match["name"]) for match in _OUTSIDE.finditer(text)]
    for tag, name in found:
        text = text.replace(tag, _inside(tag, name, html, packages))
    index.write_text(text)
    return len(found)


def _inside(tag: str, name: str, html: Path, packages: Packages) -> str:
    """Return the tag with the copy's address.

    The tag's integrity hash is dropped, because it is of the outside file.
    """
    if name not in COPIES:
        raise LocaliseError(f"index.html: loads {name}, which has no known copy; allowed: {', '.join(COPIES)}")
    package, path = COPIES[name]
    folder = Path("vendor", f"{package.name}@{package.version}")
    (html / folder).mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packages.archive(package))) as members:
        (html / folder / name).write_bytes(_member(members, f"package/{path}"))
        for licence in filter(_LICENCE.fullmatch, members.getnames()):
            (html / folder / Path(licence).name).write_bytes(_member(members, licence))
    if tag.startswith("<script"):
        return f'<script src="{folder}/{name}" onerror="js_load_failure()">'
    return f'<link rel="stylesheet" href="{folder}/{name}">'


def _member(members: tarfile.TarFile, name: str) -> bytes:
    file = members.extractfile(name)
    assert file is not None
    return file.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--html", type=Path, default=Path(".asv/html"))
    parser.add_argument("--packages", type=Path, default=Path(".asv/npm"), help="folder that keeps the packages")
    parser.add_argument("--registry", default="https://registry.npmjs.org", help="npm's, or a mirror of it")
    options = parser.parse_args()
    try:
        count = localise(options.html, Packages(options.packages, options.registry))
        asv_pages.link_commits(options.html, asv_pages.commit_url(asv_pages.origin()))
        asv_pages.drop_empty_series(options.html)
    except (LocaliseError, asv_pages.PagesError) as error:
        sys.exit(f"asv_html: {error}")
    print(f"{options.html}: {count} outside references rewritten; next: asv preview")


if __name__ == "__main__":
    main()
