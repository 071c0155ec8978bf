"""Write the charting library that `dpbench report` embeds: dpbench/report/page/assets/charts.js and its licences.

    python -m benchmarks.instruments.page_assets [--packages DIR] [--registry URL]

The file is three minified builds of npm packages of exact versions, one after the other. vega-interpreter has no such
build: its only import is taken from vega. With it, Vega evaluates no text as code, so the page can forbid that.
Run this again after a change of a version below, and commit what it writes.
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

_TIMEOUT_S = 60


class PackageError(Exception):
    """One line."""


@dataclass(frozen=True)
class Package:
    """`sha512` is the archive's hash in base64, as ``npm view NAME@VERSION dist.integrity`` prints it."""

    name: str
    version: str
    sha512: str

    @property
    def archive(self) -> str:
        return f"{self.name}-{self.version}.tgz"


@dataclass(frozen=True)
class Packages:
    """Archives that `folder` keeps. Missing ones are fetched from the URL `registry`."""

    folder: Path
    registry: str

    def archive(self, package: Package) -> bytes:
        """Checked against its hash. Raises PackageError."""
        path = self.folder / package.archive
        kept = path.exists()
        content = path.read_bytes() if kept else self._fetch(package)
        digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
        if digest != package.sha512:
            advice = "; remove it" if kept else ""
            raise PackageError(
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
            raise PackageError(f"{url}: cannot be fetched: {error}; allowed: a network, or the file {path}") from None

    def _url(self, package: Package) -> str:
        return f"{self.registry.rstrip('/')}/{package.name}/-/{package.archive}"


ASSETS = Path(__file__).parents[2] / "dpbench/report/page/assets"
_VEGA = Package(
    "vega", "6.4.0", "rHXCq2LpEWCLMjXBEj7hocY9G0/i5TGYRayGGSj06VTF4+l2IG2Z7oeZKCjWbUh/7hTE/mVhbaOPB72wCElh6g=="
)
_VEGA_LITE = Package(
    "vega-lite", "6.5.0", "fMXF6s0MrIg0UTWnLIfeFtgSLzVhyzSKobzGrh5rhS+mL6FOYFG3m7ouJ4U23gj65EK+gl9FIIT5w7wLNaAzkA=="
)
_INTERPRETER = Package(
    *("vega-interpreter", "2.3.2"),
    "JDAoi3taFcCDLujZG84TNNUXdkAZ5WsSHssx8lWVYaxb9Slsjk7v7PtRIYXpSlUwLaKGRBqoJ9KDs36Z0eMEIw==",
)
# Bundled in vega's build; their licences ask for a copy of their text.
_BUNDLED = (
    Package("d3", "7.9.0", "e1U46jVP+w7Iut8Jt8ri1YsPOvFpg46k+K8TpCb0P+zjCkjkPnV7WzfDJzMHy1LnA+wj5pLT1wjO901gLXeEhA=="),
    Package(
        *("topojson-client", "3.1.0"),
        "605uxS6bcYxGXw9qi62XyrV6Q3xwbndjachmNxu8HWTtVPxZfEJN9fd/SZS1Q54Sn2y0TMyMxFj/cJINqGHrKw==",
    ),
)
_SCRIPTS = (
    (_VEGA, "build/vega.min.js"),
    (_VEGA_LITE, "build/vega-lite.min.js"),
    (_INTERPRETER, "build/vega-interpreter.js"),
)
_IMPORT = "import { ascending, isString, DisallowedObjectProperties } from 'vega-util';"
_EXPORT = "export { expression as expressionInterpreter };"
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*\n?", re.MULTILINE)


def write(packages: Packages, folder: Path) -> None:
    """charts.js and charts.LICENSES.txt. Raise PackageError."""
    texts = [_SOURCE_MAP.sub("", _member(packages, package, path)).strip() for package, path in _SCRIPTS]
    names = ", ".join(f"{package.name} {package.version}" for package, _ in _SCRIPTS)
    texts[-1] = _as_plain_script(texts[-1])
    head = f"/* {names}; written by benchmarks/instruments/page_assets.py; licences: charts.LICENSES.txt */"
    (folder / "charts.js").write_text("\n".join([head, *texts, ""]))
    licences = [
        f"{package.name} {package.version}\n\n{_member(packages, package, 'LICENSE').strip()}\n"
        for package in (*(package for package, _ in _SCRIPTS), *_BUNDLED)
    ]
    rule = "\n" + "-" * 80 + "\n\n"
    (folder / "charts.LICENSES.txt").write_text(rule.join(licences))


def _as_plain_script(module: str) -> str:
    """The interpreter's module as a script that sets `vega.expressionInterpreter`."""
    if module.count(_IMPORT) != 1 or module.count(_EXPORT) != 1:
        raise PackageError(f"vega-interpreter: has other imports or exports; allowed: {_IMPORT} and {_EXPORT}")
    body = module.replace(_IMPORT, "const { ascending, isString, DisallowedObjectProperties } = vega;")
    return "(() => {\n" + body.replace(_EXPORT, "vega.expressionInterpreter = expression;") + "\n})();"


def _member(packages: Packages, package: Package, path: str) -> str:
    with tarfile.open(fileobj=io.BytesIO(packages.archive(package))) as members:
        file = members.extractfile(f"package/{path}")
        assert file is not None
        return file.read().decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, default=Path("build/npm"), help="folder that keeps the packages")
    parser.add_argument("--registry", default="https://registry.npmjs.org", help="npm's, or a mirror of it")
    options = parser.parse_args()
    try:
        write(Packages(options.packages, options.registry), ASSETS)
    except PackageError as error:
        sys.exit(f"page_assets: {error}")
    print(f"{ASSETS / 'charts.js'}: {(ASSETS / 'charts.js').stat().st_size} bytes")


if __name__ == "__main__":
    main()
