"""A tab of Chromium, and the accessibility checker axe-core from npm."""

import io
import tarfile

import pytest

from benchmarks.instruments.page_assets import Package, PackageError, Packages
from tests.cli.conftest import ROOT
from tests.report.page.chromium import chromium

AXE = Package(
    "axe-core", "4.14.1", "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as browser_tab:
        yield browser_tab


@pytest.fixture(scope="module")
def axe():
    try:
        archive = Packages(ROOT / "build/npm", "https://registry.npmjs.org").archive(AXE)
    except PackageError as error:
        pytest.skip(f"axe-core cannot be fetched: {error}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        return members.extractfile("package/axe.min.js").read().decode()


def serious_faults(tab, axe):
    """Return the faults that axe-core calls serious or critical."""
    tab.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    tab.run(f"{axe}; 0")
    faults = tab.run(
        "axe.run().then((result) => result.violations.map((each) => [each.impact, each.id, each.nodes.length,"
        " each.nodes[0].html.slice(0, 200)]))"
    )
    return [fault for fault in faults if fault[0] in ("serious", "critical")]
