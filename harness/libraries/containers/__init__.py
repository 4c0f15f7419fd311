"""Files that users have, with contexts inside: `open_artefact` in `open.py` reads them all."""
