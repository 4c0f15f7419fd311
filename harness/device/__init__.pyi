from .adb.address import (
    USER_SERVER as USER_SERVER,
    ServerAddress as ServerAddress,
    TcpAddress as TcpAddress,
)
from .adb.device import AdbDevice as AdbDevice
from .adb.server import AdbServer as AdbServer, adb_binary as adb_binary
from .evidence.case_evidence import CaseEvidence as CaseEvidence
from .lab.attach import AttachedDevice as AttachedDevice, LabDevice as LabDevice, OpenLab as OpenLab
from .lab.device_answers import ask as ask
from .lab.device_watch import DeviceWatch as DeviceWatch
from .lab.facts import Coprocessors as Coprocessors
from .lab.health import (
    LabEvent as LabEvent,
    RecoveryRules as RecoveryRules,
    State as State,
    judge_health as judge_health,
)
from .lab.inventory import (
    SIMULATED_LAB as SIMULATED_LAB,
    DeviceConfig as DeviceConfig,
    Lab as Lab,
    load_lab as load_lab,
)
from .lab.lease import DeviceHeld as DeviceHeld, Leases as Leases
from .lab.lease_files import Held as Held
from .lab.matching import kinds as kinds
from .lab.quarantine import Quarantine as Quarantine, Quarantined as Quarantined
from .store.deploy import Deployer as Deployer
from .transport.device import Transport as Transport
from .transport.shell import ScriptTimeout as ScriptTimeout
