from .containers.artefact import (
    Artefact as Artefact,
    ArtefactError as ArtefactError,
    Blob as Blob,
    Piece as Piece,
)
from .containers.extract import piece_file as piece_file
from .containers.manifest import Expects as Expects, Manifest as Manifest, RunPlan as RunPlan
from .containers.open import open_artefact as open_artefact, open_artefacts as open_artefacts
from .runtimes.catalog import (
    Catalog as Catalog,
    CatalogEntry as CatalogEntry,
    choose_runtimes as choose_runtimes,
    resolve_versions as resolve_versions,
)
from .runtimes.deployed import DeployedRuntime as DeployedRuntime
from .runtimes.difference import Difference as Difference
from .runtimes.executorch import EXECUTORCH_VERSION as EXECUTORCH_VERSION, RUNNER as RUNNER
from .runtimes.findings import Finding as Finding
from .runtimes.known_facts import KnownFacts as KnownFacts
from .runtimes.library_facts import LibraryFacts as LibraryFacts, build_id_of as build_id_of
from .runtimes.needed_files import narrowed as narrowed
from .runtimes.ort import PLUGIN as PLUGIN
from .runtimes.preflight import ContextFacts as ContextFacts, PreflightInput as PreflightInput
from .runtimes.pypi import all_versions as all_versions
from .runtimes.runtime import Runtime as Runtime
