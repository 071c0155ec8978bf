"""Make the pages of `asv publish` work where there is no internet: `make asv-html` runs this after it.

    python benchmarks/asv_html.py [--html DIR] [--packages DIR]

asv's index.html loads its scripts from three outside hosts. Copies of them, from npm packages of exact versions, go to
vendor/ beside it with their packages' licences, and the references are rewritten. The packages are kept: with them a
second call needs no network either.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path


class LocaliseError(Exception):
    """One line: what is missing or not as expected."""


@dataclass(frozen=True)
class Copy:
    """A file of an npm package; `sha256` is of the file."""

    package: str
    path: str
    sha256: str


# By the name that asv asks for. Those of flot and stupidtable that npm has are not minified alike, or of a later patch.
COPIES = {
    "jquery-3.3.1.min.js": Copy(
        "jquery@3.3.1", "dist/jquery.min.js", "160a426ff2894252cd7cebbdd6d6b7da8fcd319c65b70468f10b6690c45d02ef"
    ),
    "jquery.flot.min.js": Copy(
        "flot@0.8.3", "jquery.flot.js", "b7b931f273c38b1277b9c6c1f4e05c4ec09885a487bddaf3279e2d7e49a38e12"
    ),
    "jquery.flot.time.min.js": Copy(
        "flot@0.8.3", "jquery.flot.time.js", "a582c832adc7138a6b05aaf61f16ebac274701f1be4afea77e739a1c34b9c41a"
    ),
    "jquery.flot.selection.min.js": Copy(
        "flot@0.8.3", "jquery.flot.selection.js", "e6c85f6c1ebe4b4da29d8ae238c7c5060283f05f7ef054f6b91817d02c092918"
    ),
    "jquery.flot.categories.min.js": Copy(
        "flot@0.8.3", "jquery.flot.categories.js", "6e81664b28ea795c734906f4aa15614640a75ac7fbd399a7fb9084040698351a"
    ),
    "jquery.flot.orderBars.js": Copy(
        "flot-orderbars@1.0.0",
        "js/jquery.flot.orderBars.js",
        "39735b4f46f96ff4e082572401f47c55a2767b366fd1d1e821e44a8d830a12bf",
    ),
    "stupidtable.min.js": Copy(
        "stupid-table-plugin@1.1.3",
        "stupidtable.min.js",
        "4642380f28ebe9ed7cac251793b281ef8620c4386205d92788f9b12f5cceb4e0",
    ),
    "md5.min.js": Copy(
        "blueimp-md5@2.19.0", "js/md5.min.js", "64d7ded388c562e4bde9e58ce205e5fa01b9734fcd434d496eb7b4fbfe9b927d"
    ),
    "bootstrap.min.js": Copy(
        "bootstrap@3.1.1",
        "dist/js/bootstrap.min.js",
        "898d05a17f2cfc5120ddcdba47a885c378c0b466f30f0700e502757e24b403a1",
    ),
    "bootstrap.min.css": Copy(
        "bootstrap@3.1.1",
        "dist/css/bootstrap.min.css",
        "e9503448692b738dd260fbd7f7cabf2e11f09b600fa97e6eb3a56eba5b1a7e9b",
    ),
}
# A licence of its own, or, where the package has none but names it, its package.json.
_LICENCE = re.compile(r"package/(licen[cs]e(\.\w+)?|package\.json)", re.IGNORECASE)
_OUTSIDE = re.compile(r'<(?:script|link)\b[^>]*?\b(?:src|href)="(?:https?:)?//[^"]*?(?P<name>[^/"]+)"[^>]*>')


def localise(html: Path, packages: Path) -> int:
    """Rewrite index.html and put beside it what it refers to; how many references. Raises LocaliseError."""
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


def _inside(tag: str, name: str, html: Path, packages: Path) -> str:
    """The tag with the copy's address. A hash that the browser checks would be of the outside file."""
    if name not in COPIES:
        raise LocaliseError(f"index.html: loads {name}, of which no copy is known; allowed: {', '.join(COPIES)}")
    copy = COPIES[name]
    package = _packed(copy.package, packages)
    folder = html / "vendor" / copy.package
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(package) as members:
        content = _member(members, f"package/{copy.path}")
        if (digest := hashlib.sha256(content).hexdigest()) != copy.sha256:
            raise LocaliseError(f"{package}: {copy.path} has sha256 {digest}; allowed: {copy.sha256}")
        (folder / name).write_bytes(content)
        for licence in filter(_LICENCE.fullmatch, members.getnames()):
            (folder / Path(licence).name).write_bytes(_member(members, licence))
    if tag.startswith("<script"):
        return f'<script src="vendor/{copy.package}/{name}" onerror="js_load_failure()">'
    return f'<link rel="stylesheet" href="vendor/{copy.package}/{name}">'


def _member(members: tarfile.TarFile, name: str) -> bytes:
    file = members.extractfile(name)
    assert file is not None
    return file.read()


def _packed(package: str, folder: Path) -> Path:
    """The package as npm packs it: kept, or else fetched."""
    path = folder / f"{package.replace('@', '-')}.tgz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", "--pack-destination", str(folder), package]
        try:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError) as error:
            raise LocaliseError(f"{' '.join(command)}: {error}; allowed: npm and a network, or {path}") from None
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--html", type=Path, default=Path(".asv/html"))
    parser.add_argument("--packages", type=Path, default=Path(".asv/npm"))
    options = parser.parse_args()
    try:
        count = localise(options.html, options.packages)
    except LocaliseError as error:
        sys.exit(f"asv_html: {error}")
    print(f"{options.html}: {count} outside references are inside now; to look at it: asv preview")


if __name__ == "__main__":
    main()
