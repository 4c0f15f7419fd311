"""The Android of tests besides adbd: a phone's properties, log and libraries."""

import shutil
from pathlib import Path

from harness.simulator.boot_files import device_properties, getprop_text
from tests.android.bionic import plain_signals, roots, x64_root
from tests.integration.transport.adb.real_adbd import Android
from tests.unit.runtimes.elf_files import elf_file

SOC = "QCS8550"
API = 30
_GETPROP = """#!/system/bin/sh
# as on a phone: all properties, or one
[ $# -gt 0 ] || exec cat "${0%/*}/properties"
while IFS= read -r line; do
  case $line in "[$1]: ["*) line=${line#*": ["}; echo "${line%]}"; exit ;; esac
done <"${0%/*}/properties"
echo "$2"
"""
# The kernel is this computer's.
_UNAME = '#!/system/bin/sh\n/system/bin/uname "$@" | sed s/x86_64/aarch64/g\n'
# There is no logd: what a test wrote there is its log.
_LOGCAT = "#!/system/bin/sh\nexec cat /data/misc/log 2>/dev/null\n"


def android(folder: Path, name: str = "phone") -> Android:
    """A phone's system, with what is not the kit's in a folder; `name` is its serial number."""
    programs, libraries = folder / f"programs-{name}", folder / f"vendor-{name}/lib64"
    programs.mkdir()
    properties = device_properties(name, SOC, abi="arm64-v8a")
    properties |= {"ro.build.version.sdk": str(API), "ro.build.version.release": "11"}
    for program, text in {"getprop": _GETPROP, "uname": _UNAME, "logcat": _LOGCAT}.items():
        (programs / program).write_text(text)
        (programs / program).chmod(0o755)
    (programs / "properties").write_text(getprop_text(properties))
    libraries.mkdir(parents=True)
    for library in ("libcdsprpc.so", "libOpenCL.so"):  # nobody opens them
        (libraries / library).write_bytes(elf_file(needed=[library]))
    return Android(
        root=str(x64_root()),
        vendor=str(libraries.parent),
        programs=str(programs),
        arm64=str(roots() / "arm64-android11"),
        qemu=str(shutil.which("qemu-aarch64")),
        preload=plain_signals(programs).name,
    )
