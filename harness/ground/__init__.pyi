from .errors import (
    Cause as Cause,
    ConfigError as ConfigError,
    DeviceError as DeviceError,
    DeviceLost as DeviceLost,
    DeviceRefused as DeviceRefused,
    HarnessError as HarnessError,
    InfraError as InfraError,
    InternalError as InternalError,
    VersionError as VersionError,
)
from .errors.outgoing_text import (
    counted as counted,
    outgoing as outgoing,
    without_secrets as without_secrets,
    without_secrets_in as without_secrets_in,
)
from .facts.axes import AxisName as AxisName
from .facts.backends import BACKENDS as BACKENDS
from .facts.engines import ENGINES as ENGINES, QNN as QNN
from .facts.platforms import PLATFORMS as PLATFORMS, Target as Target
from .facts.socs import SOCS as SOCS
from .facts.versions import QnnVersion as QnnVersion
from .files.cache import cache_root as cache_root
from .files.local_file import LocalFile as LocalFile
from .files.names_inside import name_problem as name_problem
from .files.scratch import scratch_folder as scratch_folder
from .files.whole_file import (
    disk_errors as disk_errors,
    read_bounded as read_bounded,
    write_whole as write_whole,
)
from .host.deadline import Deadline as Deadline
from .host.guard import spawn_guarded as spawn_guarded
