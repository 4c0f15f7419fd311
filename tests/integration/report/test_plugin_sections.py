"""Sections of report.html from a package outside of the tree."""

from pathlib import Path

from harness.results.run_folder import RunFolder
from tests.integration.extend_page import run_with_plugin, shown_module
from tests.unit.results.records import record

SECTION = shown_module("the energy of cases")


def written_page(plugin: str, folder: Path) -> tuple[str, str]:
    """Write the reports of a run of two cases anew; return report.html, and the output."""
    run = RunFolder.create(folder / "reports", command=["pytest"], lab={}, devices=["phone"])
    for name, energy_mj in (("small", 20), ("<b>large", 1234.5)):
        measurements = {"acme_energy_mj": energy_mj}
        run.journal.append(record(case=f"test_a.py::test[{name}]", measurements=measurements))
    run.end({"exit_code": 0})
    words = ("harness.cli.main", "report", "write", run.path)
    completed = run_with_plugin(plugin, folder, *words)
    assert completed.returncode == 0, completed.stdout
    return (run.path / "report.html").read_text(), completed.stdout


def test_a_package_adds_a_section_with_a_table_and_markup(tmp_path: Path) -> None:
    page, _ = written_page(SECTION, tmp_path)
    section = page.partition("<h2>Energy, measured on ")[2].partition("<dialog")[0]
    cells = section.partition("<tbody>")[2].partition("</tbody>")[0]
    first, second = cells.strip().splitlines()
    assert first.startswith("<tr><td><code>test_a.py::test[&lt;b&gt;large]</code></td>")
    assert first.endswith("<td>1,234.5</td></tr>")
    assert "test[small]" in second
    assert '<p class="">The most of a case:</p>' in section
    assert '<svg width="1234.5" height="8">' in section


def test_what_fails_in_a_package_names_it_and_the_rest_stays(tmp_path: Path) -> None:
    for name, right, wrong, error in (
        ("section", "if not measured:", "if measured[9]:", "IndexError: list index out of range"),
        ("hook", "run.info['host']", "run.info['machine']", "KeyError: 'machine'"),
    ):
        (tmp_path / name).mkdir()
        page, output = written_page(SECTION.replace(right, wrong), tmp_path / name)
        assert "<h2>Run</h2>" in page
        assert ("<h2>acme</h2>" in page) == (name == "hook")
        assert error.replace("'", "&#39;") in page
        assert error in output
        named = "plug-in acme: section 'Energy, measured on" in output
        assert named == (name == "section")
