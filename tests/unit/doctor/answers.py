"""Answers of devices of several kinds to the doctor, as such systems print them."""

_VITALS = """@qnn-harness:boot\r
0f6c9f1e-6d5c-4a55-9df0-0b1c6e9f7a11\r
@qnn-harness:booted\r
1\r
@qnn-harness:uptime\r
86400.51 600000.10\r
@qnn-harness:user\r
2000\r
@qnn-harness:memory\r
MemAvailable:    6291456 kB\r
@qnn-harness:storage\r
Filesystem      1K-blocks     Used Available Use% Mounted on\r
/dev/block/dm-51 233523180 48291176 185100932  21% /data\r
@qnn-harness:writable\r
ok\r
@qnn-harness:battery\r
  status: 3\r
  present: true\r
  level: 9\r
  temperature: 312\r
@qnn-harness:thermal\r
Temperature{mValue=44.5, mType=3, mName=SKIN, mStatus=0}\r
@qnn-harness:remoteprocs\r
/sys/class/remoteproc/remoteproc1/name:32300000.remoteproc-cdsp\r
/sys/class/remoteproc/remoteproc1/state:running\r
"""

# A phone with Android 14: nodes of the vendor's kernel, unsigned shell in the dsp partition.
PHONE = (
    _VITALS
    + """@qnn-harness:nodes\r
r /dev/adsprpc-smd\r
- /dev/adsprpc-smd-secure\r
@qnn-harness:owners\r
crw-rw-r-- 1 system system  489,   0 2026-11-20 08:15 adsprpc-smd\r
crw-r----- 1 system system  489,   1 2026-11-20 08:15 adsprpc-smd-secure\r
@qnn-harness:selinux\r
Enforcing\r
@qnn-harness:who\r
uid=2000(shell) gid=2000(shell) groups=2000(shell),1004(input),3009(readproc) context=u:r:shell:s0\r
@qnn-harness:denials\r
@qnn-harness:rpc\r
r /vendor/lib64/libcdsprpc.so\r
@qnn-harness:rpc-builds\r
libcdsprpc.so 7f454c4604000000140000000300000\
0474e5500a1b2c3d4e5f60718293a4b5c6d7e8f9000112233aa /vendor/lib64/libcdsprpc.so\r
@qnn-harness:shells\r
- /vendor/dsp/cdsp/fastrpc_shell_3\r
r /vendor/dsp/cdsp/fastrpc_shell_unsigned_3\r
@qnn-harness:skels\r
r /vendor/lib/rfsa/adsp/libQnnHtpV75Skel.so\r
r /vendor/lib/rfsa/adsp/libSnpeHtpV75Skel.so\r
@qnn-harness:opencl\r
r /vendor/lib64/libOpenCL.so\r
@qnn-harness:executable\r
exit 7\r
@qnn-harness:interpreter\r
there\r
@qnn-harness:missing\r
@qnn-harness:tools\r
toybox 0.8.9-android\r
@qnn-harness:end\r
"""
)

# A Yocto board with busybox: the nodes are root's, nothing of the vendor's userspace is installed.
BOARD = (
    _VITALS.replace("\r", "").replace("present: true", "present: false")
    + """@qnn-harness:nodes
- /dev/fastrpc-adsp
- /dev/fastrpc-cdsp
@qnn-harness:owners
crw------- 1 root root 10, 121 Nov 20 08:15 fastrpc-cdsp
@qnn-harness:selinux
@qnn-harness:who
uid=1000(weston) gid=1000(weston) groups=1000(weston),44(video)
@qnn-harness:denials
@qnn-harness:rpc
@qnn-harness:rpc-builds
@qnn-harness:shells
r /usr/lib/dsp/cdsp/fastrpc_shell_3
@qnn-harness:skels
@qnn-harness:opencl
r /etc/OpenCL/vendors
@qnn-harness:executable
sh: /data/local/tmp/qnn-harness/.doctor-311: Permission denied
exit 126
@qnn-harness:interpreter
there
@qnn-harness:missing
tar
$(reboot)
@qnn-harness:tools
BusyBox v1.36.1 () multi-call binary.
@qnn-harness:end
"""
)
