"""What a sender of files tells of its progress, whatever the link takes at a time."""

from __future__ import annotations

from typing import cast

from hypothesis import given, strategies as st

from harness.device.adb.sync import QUEUED_BYTES, Pusher, SyncLink
from harness.device.adb.sync_protocol import Dialect, Okay, Reply
from harness.device.transport.files import PushItem, RemoteStat


class StandInLink:
    """A link that takes as much at a time as it is told, and answers at the end."""

    dialect = Dialect(stat_v2=True, send_v2=True)

    def __init__(self, sizes: list[int], taken: list[int]) -> None:
        self.channel, self.queued_bytes = self, 0
        self._taken = taken
        self._answers: list[Reply] = []
        for size in reversed(sizes):
            self._answers += [RemoteStat(mode=0o100644, size=size, mtime_s=0), Okay()]

    def queue(self, *messages: bytes) -> None:
        self.queued_bytes += sum(map(len, messages))

    def exchange(self, command: str) -> None:
        more = self._taken.pop() if self._taken else 0
        least = self.queued_bytes - QUEUED_BYTES + 1
        self.queued_bytes -= min(self.queued_bytes, max(least, more))

    def arrived(self, command: str) -> None:
        return None

    def reply(self, command: str) -> Reply:
        self.queued_bytes = 0
        return self._answers.pop()


@given(
    st.lists(st.sampled_from([0, 10, 70_001, 600_000, 1_000_000]), max_size=6),
    st.lists(st.sampled_from([0, 20, 100_000, 1_000_000]), max_size=40),
)
def test_progress_never_goes_back_and_ends_with_all(sizes: list[int], taken: list[int]) -> None:
    told: list[int] = []
    link = cast(SyncLink, StandInLink(sizes, taken))
    Pusher(link, told.append).run(PushItem(bytes(size), f"/f{size}") for size in sizes)
    assert told == sorted(told)
    assert told[-1] == sum(sizes)
