"""report.html in a real browser: what a reader does with it, at any width, with many cases."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from harness.core.outgoing_text import printable
from harness.lab.health import DeviceEvent
from harness.report.html import html_text
from harness.report.sections import RunData
from harness.results.journal import Contents
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder
from tests.integration.browser import Browser, chromium
from tests.unit.results.records import DEVICE, error, record


def write_page(run: RunData, path: Path) -> None:
    page = html_text(replace(run, folder=RunFolder(path.parent)))
    path.write_bytes(printable(page).encode())


CASES = 5000
VERSIONS = ("2.47.0", "2.48.40", "2.49.40", "2.50.40", "2.51.0")
EVIL = "<img src=x onerror='document.title=\"pwned\"'></script><b>\u202e\x1b[31m"


def many(count: int) -> list[CaseRecord]:
    """Cases as a night on four devices has them: a few fail, for two reasons."""
    start = record().started
    records = []
    for number in range(count):
        bad = number % 97 == 5
        contexts, version = 1 + number % 100, VERSIONS[number % len(VERSIONS)]
        device = f"phone-{number % 4}"
        name = f"test_contexts[{device}-htp-{version}-resident-{contexts}-{number}]"
        axes = {"backend": "htp", "qnn": version, "ort": None, "compiler": "2.47.0"}
        loads = [300 + (number * 7919 + index * 104729) % 900 for index in range(min(contexts, 50))]
        memory = [5_000_000 + 1_300_000 * index for index in range(len(loads))]
        message = "DSP transport error 0x8000040e" if number % 2 else None
        changed: dict[str, Any] = {"error": error(message=message)} if bad and message else {}
        records.append(
            record(
                case=f"suites/test_context_count.py::{name}",
                axes=axes | {"contexts": contexts, "residency": "resident"},
                device=DEVICE | {"name": device},
                outcome="failed" if bad else "passed",
                measurements={"loaded": len(loads), "load_us": loads, "load_rss_bytes": memory},
                started=start + timedelta(seconds=number / 4),
                duration_s=0.2 + number % 13 / 10,
                logs=[f"logs/{number}/probe.jsonl", f"logs/{number}/stderr.txt"],
                **changed,
            )
        )
    return records


def events() -> tuple[DeviceEvent, ...]:
    fields = {"run": "r", "device": "phone-1", "started": record().started, "duration_s": 2.0}
    hot = DeviceEvent(event="health", state="suspect", vitals={"hottest_c": 71.5}, **fields)
    return (hot, DeviceEvent(event="reboot", state="good", detail="it answers", **fields))


class Reader(Browser):
    """Somebody who reads pages in a browser that has no network."""

    def open(self, page: Path, hash_: str = "") -> None:
        """Opens a page anew, and waits until its table stands."""
        self.driver.get("about:blank")
        self.driver.get(f"{page.as_uri()}{hash_}")
        self.wait(lambda: self.all("#cases tbody tr[data-at]"))

    def count(self) -> str:
        return self.one("#count").text

    def first_case(self) -> str:
        return str(self.one("#cases tbody tr[data-at] td:nth-child(2)").get_attribute("title"))


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with chromium() as driver:
        yield Reader(driver)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a night with 5,000 cases."""
    folder = tmp_path_factory.mktemp("night")
    for number in (5, 102):
        log = folder / f"logs/{number}/stderr.txt"
        log.parent.mkdir(parents=True)
        log.write_text(f"what the library of case {number} said")
    contents = Contents(tuple(many(CASES)), (), events())
    info = {"command": ["pytest", "-m", "device", "--lab", "my lab.yaml"], "selected": CASES}
    write_page(RunData("20261121T060000Z-00ff", contents, info), folder / "report.html")
    return folder / "report.html"


@pytest.mark.slow
def test_thousands_of_cases_are_light_and_quiet(reader: Reader, night: Path) -> None:
    assert night.stat().st_size < 3_000_000
    reader.see(1400, "light")
    reader.open(night)
    assert reader.count() == "5,000 of 5,000"
    assert "52 failures, 4948 passed" in reader.one(".verdict").text
    assert len(reader.all("#cases tbody tr[data-at]")) < 120, (
        "rows are drawn as they come into view"
    )
    assert reader.complaints() == []


@pytest.mark.slow
def test_sorting_and_filters_stand_in_the_address(reader: Reader, night: Path) -> None:
    reader.open(night)
    reader.one("#filters button.o-failed").click()
    assert reader.count() == "52 of 5,000"
    (time_heading,) = [
        element for element in reader.all("#cases thead button") if element.text == "time"
    ]
    time_heading.click()
    reader.all("#cases th[aria-sort=ascending] button")[0].click()
    assert len(reader.all("#cases th[aria-sort=descending]")) == 1
    first, address = reader.first_case(), reader.driver.current_url
    reader.one("#filters input").send_keys("2.51.0")
    reader.wait(lambda: reader.count() != "52 of 5,000")
    reader.open(night, f"#{address.partition('#')[2]}")
    assert reader.count() == "52 of 5,000"
    assert reader.first_case() == first
    reader.js("location.hash = '#a.qnn=2.51.0&a.device=phone-1'")
    reader.wait(lambda: reader.count() == "250 of 5,000")
    assert reader.complaints() == []


def test_a_reason_and_a_cell_of_the_heat_map_lead_to_their_cases(
    reader: Reader, night: Path
) -> None:
    reader.open(night)
    numbers = [int(element.text) for element in reader.all("table.reasons td:first-child")]
    assert sum(numbers) == 52
    reader.all("table.reasons a[href^='#group=']")[1].click()
    reader.wait(lambda: reader.count() == f"{numbers[1]} of 5,000")
    reader.open(night, "#rows=device&columns=qnn")
    reader.wait(lambda: len(reader.all("#heat button")) == 4 * len(VERSIONS))
    # the page may draw the cells anew between a look for one and a click
    reader.js("document.querySelector('#heat td button').click()")
    reader.wait(lambda: reader.count() == "250 of 5,000")


def test_each_test_has_a_grid_whose_cells_open_their_cases(reader: Reader, tmp_path: Path) -> None:
    records = []
    for residency in ("resident", "sequential"):
        for contexts in (1, 50, 66):
            axes = {"backend": "htp", "contexts": contexts, "residency": residency}
            measured: dict[str, Any] = {"load_us": [300] * 54, "load_rss_bytes": [9] * 54}
            changed: dict[str, Any] = {"measurements": measured | {"grid": ["contexts", "device"]}}
            if (residency, contexts) == ("resident", 66):
                full = {"refused_estimate_bytes": 66_595_840}
                changed = {"measurements": measured | full, "error": error(code=1002, context=54)}
                changed["outcome"] = "failed"
            case = f"suites/test_context_count.py::test_count[phone-{residency}-{contexts}]"
            records.append(record(case=case, axes=axes, suite="context_count", **changed))
    page = tmp_path / "report.html"
    write_page(RunData("r", Contents(tuple(records), ()), {}), page)
    reader.see(1280, "light")
    reader.open(page)
    assert [head.text for head in reader.all("#matrix thead th[scope=col]")] == [
        *("residency", "1", "50", "66")
    ]
    assert [cell.text for cell in reader.all("#matrix tbody td")] == ["", "", "1002", *[""] * 3]
    reader.all("#matrix tbody td button")[2].click()
    dialog = reader.wait(lambda: next(iter(reader.all("dialog[open]")), None))
    assert "test_count[phone-resident-66]" in dialog.text
    assert "Distribution of load_us, 54 values" in dialog.text
    assert "p99 300 µs" in dialog.text
    reader.js("document.querySelector('dialog').close()")
    # five cases came to the same, and are one row until it is opened
    rows = reader.all("#cases tbody tr[data-at]")
    assert [row.get_attribute("data-cases") for row in rows] == ["1", "5"]
    rows[1].send_keys(Keys.ENTER)
    reader.wait(lambda: len(reader.all("#cases tbody tr[data-at]")) == 6)
    assert "PD full: 54 fit, 3,600 MB to 3,660 MB" in reader.one("#ladder").text
    assert reader.complaints() == []


def test_grids_with_failures_come_first_and_are_open(reader: Reader, tmp_path: Path) -> None:
    records = [record(case=f"suites/test_a.py::test_{number}") for number in range(5)]
    records.append(record(case="suites/test_b.py::test_last", outcome="failed"))
    page = tmp_path / "report.html"
    write_page(RunData("r", Contents(tuple(records), ()), {}), page)
    reader.open(page)
    assert [grid.text for grid in reader.all("#matrix details[open] summary")] == [
        "test_last test_b.py: 1 failed",
        *(f"test_{number} test_a.py: 1 passed" for number in range(3)),
    ]
    reader.one("#matrix td button").send_keys(Keys.ENTER)
    reader.wait(lambda: "test_b.py::test_last" in reader.one("dialog[open] h2").text)


def test_a_case_is_opened_by_keys_and_copied_as_a_bug_report(reader: Reader, night: Path) -> None:
    reader.open(night, "#state=failed&sort=outcome")
    rows = reader.all("#cases tbody tr[data-at]")
    reader.js("document.querySelector('#cases tbody tr[data-at]').focus()")
    rows[0].send_keys(Keys.ARROW_DOWN)
    reader.driver.switch_to.active_element.send_keys(Keys.ARROW_UP)
    reader.driver.switch_to.active_element.send_keys(Keys.ENTER)
    dialog = reader.wait(lambda: next((element for element in reader.all("dialog[open]")), None))
    text = dialog.text
    assert "QnnContext_createFromBinary" in text
    assert reader.js("return document.querySelector('dialog details pre').textContent") == (
        "what the library of case 5 said"
    )
    assert "--lab 'my lab.yaml'" in text
    reader.js("navigator.clipboard.writeText = async text => { window.copied = text; }")
    reader.one("dialog .top button").click()
    copied = str(reader.wait(lambda: reader.js("return window.copied")))
    case = reader.js("return document.querySelector('dialog h2').textContent")
    assert copied.startswith("## test_contexts[phone-1-htp-2.47.0-resident-6-5]: failed")
    assert (
        f"pytest -m device suites/test_context_count.py::test_contexts -o 'qnn_only_case={case}'"
        in (copied)
    )
    assert "| qnn | 2.47.0 |" in copied
    assert copied.count("```") % 2 == 0
    reader.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    reader.wait(lambda: not reader.all("dialog[open]"))
    reader.wait(lambda: "case=" not in reader.driver.current_url)
    assert reader.complaints() == []


def test_charts_are_drawn_from_what_the_filters_leave(reader: Reader, night: Path) -> None:
    reader.open(night)
    shown = "return document.querySelectorAll('{}').length"
    assert reader.js(shown.format("#ladder polyline")) == 12, "six cases, time and memory"
    assert reader.js(shown.format("#ladder path")) > 0, "where a load failed"
    assert "device phone-1: health, reboot; at the end it answers" in reader.one("body").text
    before = reader.js(shown.format("#times rect"))
    reader.js("location.hash = '#a.device=phone-1'")
    reader.wait(lambda: reader.js(shown.format("#times rect")) < before)


@pytest.mark.parametrize(("width", "scheme"), [(420, "dark"), (1400, "light")])
def test_nothing_lies_beside_the_page(reader: Reader, night: Path, width: int, scheme: str) -> None:
    reader.see(width, scheme)
    try:
        reader.open(night, "#sort=outcome")
        beyond = reader.js(
            f"return [...document.querySelectorAll('main > *, section > *')]"
            f".filter(one => one.getBoundingClientRect().right > {width}).map(one => one.outerHTML)"
        )
        assert beyond == []
        assert reader.js("return document.documentElement.scrollWidth") <= width
        # outcome, case and time can be read without scrolling sideways
        view = "const view = document.querySelector('#cases .view');"
        assert reader.js(f"{view} return view.scrollWidth <= view.clientWidth")
        colours = reader.js(
            "const {color, backgroundColor} = getComputedStyle(document.body);"
            "return [color, backgroundColor]"
        )
        ink, paper = (sum(json.loads(f"[{colour[4:-1]}]")) for colour in colours)
        assert (ink < paper) == (scheme == "light")
        reader.one("#cases tbody tr[data-at]").click()
        dialog = reader.wait(
            lambda: next((element for element in reader.all("dialog[open]")), None)
        )
        box = reader.js("return document.querySelector('dialog').getBoundingClientRect().toJSON()")
        assert box["left"] >= 0
        assert box["right"] <= width
        assert dialog.text
    finally:
        reader.see(1400, "light")


def test_ops_are_sorted_by_the_column_that_is_clicked(reader: Reader, tmp_path: Path) -> None:
    some = enumerate((900, 12, 10_000, 1100))
    ops = [
        {"op": f"op{number}", "cycles": cycles, "share": cycles / 12012} for number, cycles in some
    ]
    measured = {"profile": {"level": "ops", "ops": ops, "notes": []}}
    page = tmp_path / "report.html"
    write_page(RunData("r", Contents((record(measurements=measured),), ())), page)
    reader.open(page)

    def names() -> list[str]:
        return [element.text for element in reader.all("table.sortable tbody tr td:first-child")]

    assert names() == ["op2", "op3", "op0", "op1"]
    op, _, cycles, *_ = reader.all("table.sortable thead th")
    for head, order in (
        (cycles, "2301"),
        (cycles, "1032"),
        (op, "3210"),
        (op, "0123"),
        (cycles, "2301"),
    ):
        head.click()
        assert names() == [f"op{number}" for number in order]
        order_shown = head.get_attribute("aria-sort")
        assert order_shown == ("ascending" if order in ("1032", "0123") else "descending")
    assert len(reader.all("table.sortable th[aria-sort]")) == 1
    assert reader.complaints() == []


@pytest.mark.slow
def test_the_end_of_a_name_is_seen_and_all_of_it_on_paper(reader: Reader, night: Path) -> None:
    """Cases of a test have the same beginning: what tells them apart stands at the end."""
    cut = "return [...document.querySelectorAll('#cases td.mono span, #cases tbody td')]"
    cut += ".filter(one => one.scrollWidth > one.clientWidth && one.clientWidth).length"
    reader.see(1400, "light")
    reader.open(night, "#sort=outcome")
    assert reader.js(cut) > 0
    ends = "return [...document.querySelectorAll('#cases .tail')].map(one => "
    ends += "one.querySelector('bdi').getBoundingClientRect().right - "
    ends += "one.getBoundingClientRect().right)"
    assert all(beyond < 1 for beyond in reader.js(ends))
    reader.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert reader.js(cut) == 0
    finally:
        reader.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_versions_are_seen_before_the_end_that_all_names_have(
    reader: Reader, tmp_path: Path
) -> None:
    page, end = tmp_path / "report.html", "-executorch-3-contexts-of-a-long-name.pte]"
    loads = {"loaded": 2, "load_us": [5, 6], "load_rss_bytes": [1, 2]}
    cases = [f"m.pte::test_program[sim-v73-htp-{version}{end}" for version in VERSIONS]
    records = tuple(record(case=case, measurements=loads) for case in cases)
    write_page(RunData("r", Contents(records, ()), {}), page)
    reader.see(1400, "light")
    reader.open(page, "#sort=outcome")
    shown = [element.text for element in reader.all("#cases .tail")]
    assert shown == [f"[sim-v73-htp-{version}…" for version in VERSIONS]
    script = "return [...document.querySelectorAll('#cases .tail bdi')].map(one => one.textContent)"
    assert all(name.endswith(end) for name in reader.js(script)), "all of it is there on paper"
    counts = "return [...document.querySelector('#ladder svg').querySelectorAll('text[text-anchor"
    counts += "=middle]')].map(one => one.textContent)"
    assert reader.js(counts) == ["0", "1", "2"]


def test_whatever_names_and_logs_hold_is_text(reader: Reader, tmp_path: Path) -> None:
    evil = record(
        case=EVIL,
        suite=EVIL,
        axes={EVIL: EVIL, "n": 1},
        measurements={EVIL: [EVIL, {EVIL: EVIL}], "load_us": [1, 2, 3]},
        device=DEVICE | {"name": EVIL},
        outcome="failed",
        error=error(message=EVIL * 50, api=EVIL),
        logs=["logs/evil.txt", "logs/link.txt"],
    )
    (tmp_path / "run/logs").mkdir(parents=True)
    (tmp_path / "run/logs/evil.txt").write_bytes(EVIL.encode() + b"\xff\xfe\x00")
    (tmp_path / "secret.txt").write_text("not for this page")
    (tmp_path / "run/logs/link.txt").symlink_to(tmp_path / "secret.txt")
    contents = Contents((evil, record(axes={"n": 2})), (), events())
    page = tmp_path / "run/report.html"
    write_page(RunData(EVIL, contents, {EVIL: EVIL, "problem": EVIL}), page)
    reader.open(page)
    reader.one("#cases tbody tr[data-at]").click()
    dialog = reader.wait(lambda: next((element for element in reader.all("dialog[open]")), None))
    reader.js("document.querySelectorAll('dialog details').forEach(one => { one.open = true; })")
    assert "<img src=x" in dialog.text
    assert "\\u202e" in dialog.text
    assert "\u202e" not in reader.js("return document.body.textContent")
    assert "not for this page" not in page.read_text() + dialog.text
    time.sleep(0.2)
    assert reader.driver.title != "pwned"
    assert reader.all("img") == []
    assert [
        complaint
        for complaint in reader.complaints()
        if "img" in complaint or "Refused" in complaint
    ] == []


def test_without_its_script_the_first_screen_is_there(tmp_path: Path) -> None:
    text = html_text(RunData("r", Contents(tuple(many(200)), ())))
    still = text.partition("<script")[0]
    assert "3 failures, " in still
    assert "QnnContext_createFromBinary" in still
    assert "<noscript>" in still
