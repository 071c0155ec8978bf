"""The picture in a real browser, alone and inside a page: drawn, light and dark, nothing loaded and nothing run."""

import pytest

from dpbench.report.trace_picture import WIDTH, svg
from dpbench.trace.timeline import Source, Trace, VariantTrace
from tests.report.page.chromium import CHROMIUM
from tests.report.page.conftest import serious_faults
from tests.trace.made import step

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
    pytest.mark.xdist_group("chromium"),
]
HOSTILE = (
    "\x1b]0;run\x07</style></desc></title></text><script>document.title='run'</script>"
    "<image href='http://example.com/x' onload=\"document.title='run'\"/>"
)


@pytest.fixture(scope="module")
def picture():
    """A picture with hostile names."""
    variants = [VariantTrace("tuned", step(), 21.0), VariantTrace(HOSTILE, step(), 20.0, notes=(HOSTILE,))]
    return svg(Trace(Source.RECORDED, HOSTILE, variants))


def written(picture, folder):
    path = folder / "trace.svg"
    path.write_text(picture)
    return path


def show(tab, path):
    tab.requests.clear()
    tab.messages.clear()
    tab.media()
    tab.call("Page.navigate", url=path.resolve().as_uri())
    tab.wait("document.readyState === 'complete' && !!document.querySelector('svg')")
    return tab


@pytest.fixture
def page(tab, picture, tmp_path):
    """Open the picture alone; the tab shows it."""
    tab.width(1400)
    return show(tab, written(picture, tmp_path))


@pytest.fixture
def inside(tab, picture, tmp_path):
    """Open a page with the picture inside it."""
    path = tmp_path / "inside.html"
    path.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>a page</title><main><h1>A page</h1><svg><text '
        f'id="other">a picture of the page</text></svg>{picture}</main></html>'
    )
    tab.width(1400)
    return show(tab, path)


def colour(tab, selector, what="fill"):
    return tab.run(f"getComputedStyle(document.querySelector('{selector}'))['{what}']")


def luminance(text):
    parts = [int(part) / 255 for part in text[4:-1].split(",")]
    linear = [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_it_is_drawn_and_asks_for_nothing(page):
    assert [address.partition(":")[0] for address in page.requests] == ["file"]
    assert page.messages == []
    assert page.run("document.querySelectorAll('rect.backward').length") == 1 + 2
    widths = "[...document.querySelectorAll('g rect.gradients')].map((each) => each.getBoundingClientRect().width)"
    assert all(width > 600 for width in page.run(widths))
    assert colour(page, "g rect.wait").startswith("url(")


def assert_hostile_names_are_texts(tab):
    assert tab.run("document.querySelectorAll('script, image, [onload]').length") == 0
    assert tab.run("document.title") != "run"
    assert [address.partition(":")[0] for address in tab.requests] == ["file"]
    assert tab.messages == []
    for name in ("title", "desc", "text"):
        shown = tab.run(f"[...document.querySelectorAll('.trace {name}')].map((each) => each.textContent).join(' ')")
        assert "<script>document.title='run'</script>" in shown
        assert "\x1b" not in shown


def test_hostile_names_are_shown_as_texts(page):
    assert_hostile_names_are_texts(page)


def test_hostile_names_are_shown_as_texts_inside_a_page(inside):
    assert_hostile_names_are_texts(inside)


def test_the_picture_does_not_change_the_page_around_it(inside):
    inside.media(dark=True)
    assert colour(inside, "#other") == "rgb(0, 0, 0)"
    assert inside.run("getComputedStyle(document.documentElement).colorScheme") == "normal"
    assert inside.run("document.querySelector('.trace').lastElementChild.tagName") == "text"


def test_a_phone_opens_the_picture_alone_in_full_size(tab, picture, tmp_path):
    tab.width(390)
    show(tab, written(picture, tmp_path))
    assert tab.run("visualViewport.scale") == 1
    assert tab.run("visualViewport.width") == 390
    assert tab.run("document.documentElement.getBoundingClientRect().width") == WIDTH


@pytest.mark.parametrize("dark", [False, True])
def test_an_accessibility_checker_finds_no_serious_fault_in_the_picture(page, axe, dark):
    page.media(dark=dark)
    assert serious_faults(page, axe) == []


@pytest.mark.parametrize("dark", [False, True])
def test_an_accessibility_checker_finds_no_serious_fault_in_a_page_with_it(inside, axe, dark):
    inside.media(dark=dark)
    assert serious_faults(inside, axe) == []


@pytest.mark.parametrize("dark", [False, True])
def test_texts_and_bars_are_readable_in_light_and_dark(page, dark):
    page.media(dark=dark)
    paper = luminance(colour(page, "rect.paper"))
    assert (paper < 0.1) is dark
    for selector, least in (
        *(("text.head", 4.5), ("text.muted", 4.5), ("text.row", 4.5), ("text.tick", 4.5)),
        *(("rect.forward", 3), ("rect.backward", 3), ("rect.gradients", 3), ("rect.critical-path", 3)),
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
