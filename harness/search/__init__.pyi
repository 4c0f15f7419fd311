from .bisect.answers import Point as Point, Stopped as Stopped
from .bisect.case_run import task_of as task_of
from .bisect.findings import AxisFinding as AxisFinding, GridFinding as GridFinding
from .bisect.folder import LOG as LOG, BisectFolder as BisectFolder
from .bisect.match import Judged as Judged
from .bisect.new_failures import NewFailure as NewFailure
from .bisect.result import BisectionResult as BisectionResult
from .minimize.driver import Result as Result
from .nightly.night import Night as Night
