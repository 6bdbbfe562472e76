"""The live queues that a tap follows, and what each carries."""

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

__all__ = ["TapSource", "TapSources"]


@dataclass(frozen=True)
class TapSource:
    """A live queue and what it carries."""

    queue: Path
    stream: Stream


class TapSources:
    """Single queues, and all queues of buses; `scan` finds new ones.

    Args:
        sources: Directories of queues, or roots of a bus.
        venue: The venue of the only queue given, if its path does not name it.
        symbol: The symbol, likewise; without one, the queue carries all symbols of the venue.
        stream: The stream, likewise.
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
        self._buses: list[tuple[Layout, set[Stream]]] = []  # and the streams found in each
        self._queues: list[TapSource] = []
        self._found: dict[Stream, TapSource] = {}
        self._clashes: list[str] = []
        named = _named(venue, symbol, stream)
        if named is not None:
            if len(given) != 1 or not is_queue(Path(given[0])):
                raise InvalidOption(
                    f"venue, symbol and stream name one queue: sources={len(given)}, venue={venue}",
                    hint="give the directory of one queue with them, or a bus without",
                )
            self._queues = [TapSource(Path(given[0]), named)]
        else:
            for path in given:
                self._add(Path(path))
        self._found.update((source.stream, source) for source in self._queues)

    def scan(self) -> Sequence[TapSource]:
        """Every queue found so far, each once, new ones last."""
        for bus, seen in self._buses:
            for source in _of_bus(bus, seen):
                seen.add(source.stream)
                first = self._found.setdefault(source.stream, source)
                if not _same_queue(first, source):
                    self._clashes.append(_clash(first, source))
        return list(self._found.values())

    def clashes(self) -> list[str]:
        """Pairs of queues with the same stream, as text, of which the second is not followed.

        Each pair is returned once.
        """
        found, self._clashes = self._clashes, []
        return found

    @property
    def grows(self) -> bool:
        """Whether queues may be added later."""
        return bool(self._buses)

    def _add(self, path: Path) -> None:
        if not path.is_dir():
            raise FileNotFoundError(2, "no such queue or bus", os.fspath(path))
        if not is_queue(path):
            if not (path / "streams").is_dir():
                raise NotALog(
                    "neither a queue nor a bus: it has neither control.meta nor streams/",
                    path=os.fspath(path),
                    hint="give the directory of a queue, or the root of a bus",
                )
            self._buses.append((Layout(path), set()))
            return
        stream = _of_path(path)
        first = next((one for one in self._queues if one.stream == stream), None)
        source = TapSource(path, stream)
        if first is None:
            self._queues.append(source)
        elif not _same_queue(first, source):
            raise InvalidOption(_clash(first, source), hint=_ONE_NAME)


_ONE_NAME = "an archive holds one queue for each stream: tap them into two archives"


def _clash(first: TapSource, second: TapSource) -> str:
    return f"two queues carry the same stream: {first.stream}: {first.queue} and {second.queue}"


def _same_queue(one: TapSource, other: TapSource) -> bool:
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
    """What a queue carries, by its path in a bus."""
    parts = Path(os.path.abspath(queue)).parts
    if parts[-1] == "queue" and parts[-4:-2] == ("streams", "raw"):
        return Stream(check_name("venue", parts[-2]))
    if parts[-1] == "queue" and parts[-6:-4] == ("streams", "clean"):
        return Stream(*(check_name("directory", part) for part in parts[-4:-1]))
    raise InvalidOption(
        "the path does not name what the queue carries",
        path=os.fspath(queue),
        hint="give venue=, and symbol= and stream= if it carries one symbol",
    )


def _of_bus(bus: Layout, known: Collection[Stream]) -> Iterable[TapSource]:
    """The queues that are not known yet: checking each of hundreds every second is expensive."""
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
            continue  # a link that leads out of the bus
        if is_queue(queue):
            yield TapSource(queue, stream)
