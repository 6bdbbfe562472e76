"""A whole session of the demo in one process and within a moment: every queue, nobody killed."""

import random
import time

import tapewire as tw
from tapewire import bus, replay
from tapewire.demo.account import Account
from tapewire.demo.books import book_of, join, snapshots_of
from tapewire.demo.crowd import Crowd
from tapewire.demo.events import Close, Side
from tapewire.demo.exchange import Exchange, order_of
from tapewire.demo.places import Places
from tapewire.demo.router import Router
from tapewire.demo.run import Options, Restart, Story
from tapewire.demo.stage import Told
from tapewire.demo.tape import records
from tests.unit.demo.tapes import SMALL

NAMES = ("alpha", "beta")


def play(root, steps=60):
    """The places and the story of a session."""
    places = Places(root, SMALL)
    choose, crowd = random.Random(4), Crowd(4)
    story = Story(Options(seconds=1.0), began_ns=time.time_ns())
    accounts = {name: Account(places.strategy(name), SMALL) for name in NAMES}
    for name in NAMES:
        bus.mark_ready(places.strategy(name).orders_out)
    taken = dict.fromkeys(NAMES, 0)

    def all_do_their_part():
        while router.step(timeout=0):
            pass
        for record in records(places.orders, start=exchange.next_router_seq):
            exchange.accept(order_of(record), record.seq)
        router.look()
        while router.step(timeout=0):
            pass
        for name, account in accounts.items():
            for record in records(places.strategy(name).orders_in, start=taken[name]):
                account.take(record)
                taken[name] = record.seq + 1

    with Exchange(places, checkpoint_every=20) as exchange, Router(places) as router:
        router.look()
        for _ in range(steps):
            for _ in range(3):
                number = exchange.next_crowd_seq
                exchange.accept(crowd.next(exchange.engine, number), number)
            tick = list(records(places.raw))[-1]
            account = accounts[choose.choice(NAMES)]
            if account.open and choose.random() < 0.4:
                account.cancel(choose.choice(list(account.open)))
            else:
                price = 100_000 + choose.randint(-4, 4)
                side = choose.choice(list(Side))
                account.send(tick, side, price, 3, immediate=choose.random() < 0.5)
            all_do_their_part()
        exchange.accept(Close(), exchange.next_crowd_seq)
        all_do_their_part()
        book = book_of(exchange.engine).hash()
    for account in accounts.values():
        account.close()
    return places, told(story, places, book)


def told(story, places, book):
    """The story's end, as processes would have told it; with the snapshots of one of them."""
    replay.Snapshotter(places.raw, every=replay.Every(records=40)).run(follow=False)
    snapshots_of(places.raw)[-1].path.unlink()  # it is of the end: nothing would lie behind it
    with tw.open_log(places.raw) as log:
        joiner, snapshot = join(log, places.raw)
        joiner.apply_batch(log.read_batch())
        last = log.last_seq
    now = story.closed_ns = time.time_ns()
    joined = {"snapshot": snapshot, "replayed": last - snapshot, "seconds": 0.001}
    at_joining = {"seq": last, "hash": joiner.hash()}
    story.told += [
        Told("joiner", "joined", now, joined | at_joining),
        Told("joiner", "closed", now, {"hash": joiner.hash()}),
        Told("exchange", "stopped", now, {"hash": book}),
        Told("router", "stopped", now, {"skipped": 2}),
    ]
    # Before the session: nothing of it was held up.
    times = (story.began_ns - 3 * 10**9, story.began_ns - 2 * 10**9, story.began_ns - 10**9)
    exchange = {"checkpoint": 3, "replayed": 2, "published": 1, "seconds": 0.1}
    story.restarts = [
        Restart("exchange", *times, exchange),
        Restart("router", *times, {"last_routed": {"alpha": 3}, "seconds": 0.1}),
        Restart("beta", *times, {"position": -3, "open_orders": 1, "seconds": 0.1}),
        Restart("snapshotter", *times, {"before": 40, "snapshot": 80}),
    ]
    return story
