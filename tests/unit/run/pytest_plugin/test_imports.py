"""Loading the plug-in is cheap: pytest loads it in every run, also where no test uses it."""

from __future__ import annotations

import subprocess
import sys


def test_loading_the_plugin_does_not_load_the_heavy_libraries() -> None:
    code = (
        "import sys, harness.run.pytest_plugin.plugin\n"
        "heavy = {'onnx', 'numpy', 'pydantic', 'adbutils', 'jinja2', 'yaml', 'xdist'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
