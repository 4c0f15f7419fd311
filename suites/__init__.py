"""The hardware suites: `pytest -m device` here, `pytest --pyargs harness.suites` elsewhere."""
