"""A complete session of the demo in one process, in a moment: every queue, no kills."""

import random
import time

import tapewire as tw
from tapewire import bus, replay
from tapewire.demo.account import Account
from tapewire.demo.books import book_of, join, snapshots_of
from tapewire.demo.events import Close, Side
from tapewire.demo.exchange import Exchange, order_of
from tapewire.demo.participants import Participants
from tapewire.demo.paths import DemoPaths
from tapewire.demo.process_group import ProcessEvent
from tapewire.demo.queue_records import records
from tapewire.demo.router import Router
from tapewire.demo.run import Options, Restart, SessionHistory
from tests.unit.demo.queue_rows import SMALL

NAMES = ("alpha", "beta")


def play(root, steps=60):
    """The paths and the history of a session."""
    paths = DemoPaths(root, SMALL)
    choose, participants = random.Random(4), Participants(4)
    history = SessionHistory(Options(seconds=1.0), began_ns=time.time_ns())
    accounts = {name: Account(paths.strategy(name), SMALL) for name in NAMES}
    for name in NAMES:
        bus.mark_ready(paths.strategy(name).orders_out)
    taken = dict.fromkeys(NAMES, 0)

    def process_everything():
        while router.step(timeout=0):
            pass
        for record in records(paths.orders, start=exchange.next_router_seq):
            exchange.accept(order_of(record), record.seq)
        router.poll()
        while router.step(timeout=0):
            pass
        for name, account in accounts.items():
            for record in records(paths.strategy(name).orders_in, start=taken[name]):
                account.take(record)
                taken[name] = record.seq + 1

    with Exchange(paths, checkpoint_every=20) as exchange, Router(paths) as router:
        router.poll()
        for _ in range(steps):
            for _ in range(3):
                number = exchange.next_market_seq
                exchange.accept(participants.next(exchange.engine, number), number)
            tick = list(records(paths.raw))[-1]
            account = accounts[choose.choice(NAMES)]
            if account.open and choose.random() < 0.4:
                account.cancel(choose.choice(list(account.open)))
            else:
                price = 100_000 + choose.randint(-4, 4)
                side = choose.choice(list(Side))
                account.send(tick, side, price, 3, immediate=choose.random() < 0.5)
            process_everything()
        exchange.accept(Close(), exchange.next_market_seq)
        process_everything()
        book = book_of(exchange.engine).hash()
    for account in accounts.values():
        account.close()
    return paths, finished(history, paths, book)


def finished(history, paths, book):
    """The history with the events that processes would have reported; writes snapshots."""
    replay.Snapshotter(paths.raw, every=replay.Every(records=40)).run(follow=False)
    snapshots_of(paths.raw)[-1].path.unlink()  # it is of the end, so no record would follow it
    with tw.open_log(paths.raw) as log:
        joiner, snapshot = join(log, paths.raw)
        joiner.apply_batch(log.read_batch())
        last = log.last_seq
    now = history.closed_ns = time.time_ns()
    joined = {"snapshot": snapshot, "replayed": last - snapshot, "seconds": 0.001}
    at_joining = {"seq": last, "hash": joiner.hash()}
    history.events += [
        ProcessEvent("joiner", "joined", now, joined | at_joining),
        ProcessEvent("joiner", "closed", now, {"hash": joiner.hash()}),
        ProcessEvent("exchange", "stopped", now, {"hash": book}),
        ProcessEvent("router", "stopped", now, {"skipped": 2}),
    ]
    # Before the session, so that they delay no sample.
    times = (history.began_ns - 3 * 10**9, history.began_ns - 2 * 10**9, history.began_ns - 10**9)
    exchange = {"checkpoint": 3, "replayed": 2, "published": 1, "seconds": 0.1}
    history.restarts = [
        Restart("exchange", *times, exchange),
        Restart("router", *times, {"last_routed": {"alpha": 3}, "seconds": 0.1}),
        Restart("beta", *times, {"position": -3, "open_orders": 1, "seconds": 0.1}),
        Restart("snapshotter", *times, {"before": 40, "snapshot": 80}),
    ]
    return history
