"""Loading the plug-in is cheap: pytest loads it in every run, also where no test uses it."""

from __future__ import annotations

import subprocess
import sys


def test_loading_the_plugin_does_not_load_the_heavy_libraries() -> None:
    code = (
        "import sys, harness.plugin.plugin\n"
        "heavy = {'onnx', 'numpy', 'pydantic', 'adbutils', 'jinja2', 'yaml', 'xdist',\n"
        " 'sqlalchemy'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(heavy)}' if heavy else 0)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr


def test_what_a_run_asks_of_earlier_ones_loads_no_database() -> None:
    code = (
        "import sys, harness.history.previous, harness.report.projections\n"
        "sys.exit('sqlalchemy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
