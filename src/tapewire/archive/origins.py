"""Which live queues a tap follows, and what each carries."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tapewire.archive.tree import RAW, Stream
from tapewire.bus.layout import Layout
from tapewire.bus.names import check_name
from tapewire.errors import InvalidName, InvalidOption, NotALog
from tapewire.files import is_queue

__all__ = ["Origin", "Origins"]


@dataclass(frozen=True)
class Origin:
    """A live queue and what it carries."""

    queue: Path
    stream: Stream


class Origins:
    """The queues below some roots, and single ones; `look` finds those that came since.

    Args:
        sources: Folders of queues, or roots of a bus.
        venue: Of the one queue given, where its path does not say it.
        symbol: Likewise; without one it carries all of a venue.
        stream: Likewise.
    """

    def __init__(
        self,
        sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        venue: str | None = None,
        symbol: str | None = None,
        stream: str | None = None,
    ) -> None:
        given = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
        if not given:
            raise InvalidOption("nothing to follow: sources=[]", hint="give a queue or a bus")
        self._buses: list[tuple[Layout, set[Stream]]] = []  # and what was seen of each
        self._queues: list[Origin] = []
        self._found: dict[Stream, Origin] = {}
        self._clashes: list[str] = []
        named = _named(venue, symbol, stream)
        if named is not None:
            if len(given) != 1 or not is_queue(Path(given[0])):
                raise InvalidOption(
                    f"venue, symbol and stream name one queue: sources={len(given)}, venue={venue}",
                    hint="give the folder of one queue with them, or a bus without",
                )
            self._queues = [Origin(Path(given[0]), named)]
        else:
            for source in given:
                self._take(Path(source))
        self._found.update((origin.stream, origin) for origin in self._queues)

    def look(self) -> Sequence[Origin]:
        """Every queue there is or was, each once, those that came since at the end."""
        for bus, seen in self._buses:
            for origin in _of_bus(bus, seen):
                seen.add(origin.stream)
                first = self._found.setdefault(origin.stream, origin)
                if not _same_queue(first, origin):
                    self._clashes.append(_clash(first, origin))
        return list(self._found.values())

    def clashes(self) -> list[str]:
        """Queues that are not followed, in words: another one carries their stream. Told once."""
        told, self._clashes = self._clashes, []
        return told

    @property
    def grows(self) -> bool:
        """Whether more queues may come."""
        return bool(self._buses)

    def _take(self, source: Path) -> None:
        if not source.is_dir():
            raise FileNotFoundError(2, "no such queue or bus", os.fspath(source))
        if not is_queue(source):
            if not (source / "streams").is_dir():
                raise NotALog(
                    "neither a queue nor a bus: it has neither control.meta nor streams/",
                    path=os.fspath(source),
                    hint="give the folder of a queue, or the root of a bus",
                )
            self._buses.append((Layout(source), set()))
            return
        stream = _of_path(source)
        twice = next((one for one in self._queues if one.stream == stream), None)
        origin = Origin(source, stream)
        if twice is None:
            self._queues.append(origin)
        elif not _same_queue(twice, origin):
            raise InvalidOption(_clash(twice, origin), hint=_ONE_NAME)


_ONE_NAME = "an archive keeps one queue under one name: tap them into two archives"


def _clash(first: Origin, second: Origin) -> str:
    return f"two queues carry the same stream: {first.stream}: {first.queue} and {second.queue}"


def _same_queue(one: Origin, other: Origin) -> bool:
    return os.path.realpath(one.queue) == os.path.realpath(other.queue)


def _named(venue: str | None, symbol: str | None, stream: str | None) -> Stream | None:
    if venue is None:
        if symbol is not None or stream is not None:
            raise InvalidOption(f"a symbol or stream needs its venue: {symbol=}, {stream=}")
        return None
    check_name("venue", venue)
    if symbol is None:
        if stream not in (None, RAW):
            raise InvalidOption(f"a stream needs its symbol: {stream=}")
        return Stream(venue)
    if stream is None:
        raise InvalidOption(f"a symbol needs its stream: {symbol=}", hint="book or trades")
    return Stream(venue, check_name("symbol", symbol), check_name("stream", stream))


def _of_path(queue: Path) -> Stream:
    """By the folders of a bus that it lies in."""
    parts = Path(os.path.abspath(queue)).parts
    if parts[-1] == "queue" and parts[-4:-2] == ("streams", "raw"):
        return Stream(check_name("venue", parts[-2]))
    if parts[-1] == "queue" and parts[-6:-4] == ("streams", "clean"):
        return Stream(*(check_name("folder", part) for part in parts[-4:-1]))
    raise InvalidOption(
        "the path does not say what the queue carries",
        path=os.fspath(queue),
        hint="give venue=, and symbol= and stream= where it carries one symbol",
    )


def _of_bus(bus: Layout, known: Collection[Stream]) -> Iterable[Origin]:
    """Those that are not known: to look at each of hundreds every second would cost."""
    found = [Stream(venue) for venue in bus.streams.venues()]
    found += [Stream(*names) for names in bus.streams.clean_streams()]
    for stream in found:
        if stream in known:
            continue
        try:
            queue = (
                bus.streams.raw(stream.venue)
                if stream.symbol is None
                else bus.streams.clean(stream.venue, stream.symbol, stream.stream)
            )
        except InvalidName:
            continue  # a link that leads out of the bus is none of its queues
        if is_queue(queue):
            yield Origin(queue, stream)
