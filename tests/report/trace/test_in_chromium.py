"""The picture in a real browser: drawn, light and dark, with nothing loaded and nothing run."""

import pytest

from dpbench.report.trace.picture import svg
from dpbench.trace.timeline import Source, Trace, VariantTrace
from tests.report.page.chromium import CHROMIUM, chromium
from tests.trace.made import step

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
HOSTILE = "</desc></title></text><script>document.title='run'</script><image href='http://example.com/x'/>"


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def page(tab, tmp_path):
    """Open a picture with hostile names; the tab shows it."""
    path = tmp_path / "trace.svg"
    variants = [VariantTrace("tuned", step(), 21.0), VariantTrace(HOSTILE, step(), 20.0, notes=(HOSTILE,))]
    path.write_text(svg(Trace(Source.PROJECTED, HOSTILE, variants)))
    tab.requests.clear()
    tab.messages.clear()
    tab.media()
    tab.call("Page.navigate", url=path.resolve().as_uri())
    tab.wait("document.readyState === 'complete' && !!document.querySelector('svg')")
    return tab


def colour(tab, selector, what="fill"):
    return tab.run(f"getComputedStyle(document.querySelector('{selector}'))['{what}']")


def luminance(text):
    parts = [int(part) / 255 for part in text[4:-1].split(",")]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_it_is_drawn_and_asks_for_nothing(page):
    assert [address.partition(":")[0] for address in page.requests] == ["file"]
    assert page.messages == []
    assert page.run("document.querySelectorAll('rect.backward').length") == 1 + 2
    widths = "[...document.querySelectorAll('g rect.gradients')].map((each) => each.getBoundingClientRect().width)"
    assert all(width > 600 for width in page.run(widths))
    assert colour(page, "g rect.wait").startswith("url(")


def test_nothing_hostile_runs(page):
    assert page.run("document.querySelectorAll('script, image').length") == 0
    assert page.run("document.title") != "run"
    assert "<script>" in page.run("document.querySelector('title').textContent")


@pytest.mark.parametrize("dark", [False, True])
def test_texts_and_bars_are_readable_in_light_and_dark(page, dark):
    page.media(dark=dark)
    paper = luminance(colour(page, "rect.paper"))
    assert (paper < 0.1) is dark
    for selector, least in (
        *(("text.head", 4.5), ("text.muted", 4.5), ("text.row", 4.5), ("text.tick", 4.5)),
        *(("rect.forward", 3), ("rect.backward", 3), ("rect.gradients", 3), ("rect.path", 3)),
    ):
        low, high = sorted([paper, luminance(colour(page, selector))])
        assert (high + 0.05) / (low + 0.05) >= least, selector


def test_bars_lie_within_the_picture_and_texts_too(page):
    outside = """(() => {
      const box = document.documentElement.getBoundingClientRect();
      return [...document.querySelectorAll('rect, text')].filter((each) => {
        const own = each.getBoundingClientRect();
        return own.width && !each.closest('defs') && (own.right > box.right + 1 || own.bottom > box.bottom + 1);
      }).map((each) => each.textContent);
    })()"""
    assert page.run(outside) == []
