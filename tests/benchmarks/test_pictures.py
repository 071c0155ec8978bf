"""The README's pictures: the committed files are what the committed records give, and they load nothing."""

import re
from random import Random
from xml.etree import ElementTree

import pytest

from benchmarks.instruments.pictures import FOLDER, PictureError, pictures
from dpbench.records.row import to_line
from tests.report.page.chromium import CHROMIUM
from tests.report.page.making_page import ABLATIONS, LANES, _record, made_case

TEXT = "{http://www.w3.org/2000/svg}text"
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
    pytest.mark.xdist_group("chromium"),
]


@pytest.fixture(scope="module")
def drawn():
    return pictures(FOLDER)


def test_the_committed_pictures_are_what_the_records_give(drawn):
    committed = {path.name: path.read_text() for path in FOLDER.glob("*.svg")}
    assert set(drawn) <= set(committed)
    assert [name for name, svg in drawn.items() if committed[name] != svg] == [], "run `make pictures`"


def test_a_picture_is_one_file_that_is_readable_in_light_and_dark(drawn):
    for name, svg in drawn.items():
        ElementTree.fromstring(svg)
        assert "<script" not in svg, name
        assert "var(" not in svg, name
        assert not re.search(r"(?:href|src|url)\s*[=(]", svg), name
        light, dark = svg.split("prefers-color-scheme:dark){", 1)[1].split("</style>")[::-1]
        assert set(re.findall(r'fill="(#\w{6})"', light)) - {"#ffffff"} <= set(re.findall(r'fill="(#\w{6})"', dark)), (
            name
        )


def test_the_ladder_and_the_ablation_are_drawn_from_records(tmp_path):
    schemes = ("naive", "floor", "tuned", "ddp")
    cases = [made_case(name, "cpu*2", 64, "mlp/small") for name in (*schemes, *ABLATIONS)]
    cases.append(made_case("single", "cpu", 64, "mlp/small"))
    write(tmp_path, [record for number in range(3) for record in made(cases, number)])
    svgs = pictures(tmp_path)
    assert set(svgs) == {"ladder.svg", "ablation.svg"}
    ladder, ablation = (texts(svg) for svg in svgs.values())
    assert {*schemes, "single"} <= set(ladder)
    assert not set(ABLATIONS) & set(ladder)
    assert {re.sub(r"[\[\]]", "", name) for name in ABLATIONS} <= set(ablation)  # a label has a line for the brackets
    assert "a CPU, 8 cores, torch 2.13.0+cpu, Python 3.12.4, 3 rounds, 2026-11-20" in " ".join(ladder)


def test_a_folder_without_the_variants_is_one_line(tmp_path):
    write(tmp_path, made([made_case("naive", "cpu*2", 64), made_case("single", "cpu", 64)], 0))
    with pytest.raises(PictureError, match=r"records\.jsonl: lacks variants of ablation"):
        pictures(tmp_path)
    with pytest.raises(PictureError, match=r"holds neither records\.jsonl nor projection\.json"):
        pictures(tmp_path / "none")


def texts(svg):
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(TEXT)]


def made(cases, number):
    return [_record(case, number, LANES, Random(number), place) for place, case in enumerate(cases)]


def write(folder, records):
    (folder / "records.jsonl").write_bytes(b"".join(map(to_line, records)))
