from .history.brief import Brief as Brief
from .history.comparison import FailOn as FailOn, Pair as Pair
from .history.comparison_json import Bisectable as Bisectable, ComparisonReport as ComparisonReport
from .history.comparison_text import markdown as markdown, told as told
from .history.database import open_database as open_database
from .history.importing import import_run as import_run
from .history.noise import needs_scipy as needs_scipy
from .history.performance import MOST_RUNS as MOST_RUNS, Change as Change, judge as judge
from .history.previous import (
    last_durations as last_durations,
    previous_of as previous_of,
    since_previous as since_previous,
)
from .history.side_by_side import compared as compared
from .history.timeline_json import HistoryReport as HistoryReport
from .history.units import known_to as known_to
from .merging.shards import Shard as Shard
from .report.ci import tell_ci as tell_ci
from .report.document import as_code as as_code
from .report.projections import project as project
from .report.summary import summary_lines as summary_lines
