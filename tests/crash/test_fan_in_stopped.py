"""A fan-in whose sources are processes, one of which stops, or dies, in the middle."""

import hashlib
import os
import signal
import time

import pytest

import tapewire as tw
from tapewire import bus

NAMES = [f"strategy-{i}" for i in range(8)]
MAX_SKEW = 0.2


def open_fan(tmp, max_skew):
    readers = {name: tw.open_log(tmp / name) for name in NAMES}
    return bus.FanInReader(readers, max_skew=max_skew)


def replay(tmp):
    """A digest and the number of all records of a replay."""
    digest, count = hashlib.sha256(), 0
    with open_fan(tmp, None) as fan:
        for record in fan:
            digest.update(f"{record.source} {record.seq} {record.timestamp_ns}".encode())
            digest.update(record.payload)
            count += 1
        assert fan.late == 0
    return digest.hexdigest(), count


@pytest.fixture
def tickers(tmp, crew):
    children = {
        name: crew.start("actors.ticker", queue=str(tmp / name), pause_s=0.002) for name in NAMES
    }
    for child in children.values():
        child.expect("open")
    return children


@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
def test_one_of_eight_sources_stops_and_the_other_seven_arrive(tmp, tickers, end):
    ended = NAMES[3]
    with open_fan(tmp, MAX_SKEW) as fan:
        while fan.sources[ended].records < 20:
            assert fan.wait(10)
            fan.read_batch()
        os.kill(tickers[ended].pid, end)
        stopped_at = time.time_ns()
        others = {name: 0 for name in NAMES if name != ended}
        delays = []
        while min(others.values()) < 100:
            assert fan.wait(10), "the seven continue"
            batch = fan.read_batch()
            now = time.time_ns()
            for record in batch:
                if record.source != ended and record.timestamp_ns > stopped_at:
                    others[record.source] += 1
                    delays.append(now - record.timestamp_ns)
        assert min(delays) >= MAX_SKEW * 1e9, "each was held back for the one that is silent"
        counts = fan.sources

    if end == signal.SIGSTOP:
        assert replay(tmp)[1] >= sum(source.records for source in counts.values())
        os.kill(tickers[ended].pid, signal.SIGCONT)
    appended = {}
    for name, child in tickers.items():
        if end == signal.SIGKILL and name == ended:
            assert child.wait() == -signal.SIGKILL
            continue
        child.say("stop")
        appended[name] = child.expect("appended")[0]
        child.wait()
    first, second = replay(tmp), replay(tmp)
    assert first == second
    if end == signal.SIGSTOP:
        assert first[1] == sum(appended.values())
