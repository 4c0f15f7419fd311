from .compiler.compiler import CompileError as CompileError
from .compiler.litert import litert_host as litert_host
from .compiler.models import Model as Model
from .context.metadata import (
    Tensor as Tensor,
    memory_bytes as memory_bytes,
    named_build as named_build,
    needs as needs,
)
from .context.schedule import (
    RESIDENCIES as RESIDENCIES,
    Residency as Residency,
    Schedule as Schedule,
    schedule as schedule,
)
from .context.session_plan import (
    DeployedContext as DeployedContext,
    DeployedModel as DeployedModel,
    Libraries as Libraries,
    within_session as within_session,
)
from .context.source import Context as Context, Reference as Reference
from .sources.artefact_sources import (
    Given as Given,
    WholeFile as WholeFile,
    artefacts_with_contexts as artefacts_with_contexts,
    contexts_of as contexts_of,
)
from .sources.context_file import ContextFile as ContextFile, Files as Files
from .sources.contexts import Source as Source, SourceList as SourceList, required as required
from .sources.inspection import Inspection as Inspection
from .sources.onnx_model import OnnxModel as OnnxModel
from .sources.tensor_files import TensorFiles as TensorFiles
