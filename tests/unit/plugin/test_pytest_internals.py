"""Private parts of pytest and pytest-xdist are used in one file, which explains them."""

import re
from pathlib import Path

HARNESS = Path(__file__).parents[3] / "harness"
ONE_FILE = HARNESS / "plugin/pytest_internals.py"
PRIVATE = re.compile(
    r"\b(?:from|import) (?:_pytest|xdist)\b|(?:[.'\"]|def )(?:_tw|_width_of_current_line|_getobj"
    r"|_setupstate|_fixtureinfo|_inicache|funcnamefilter|known_args_namespace|global_disabled"
    r"|global_and_fixture_disabled|reprcrash|reprtraceback|reprentries|errorstring)\b"
)


def test_no_other_file_uses_any() -> None:
    users = [path for path in HARNESS.rglob("*.py") if PRIVATE.search(path.read_text())]
    assert users == [ONE_FILE]
