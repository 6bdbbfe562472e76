"""The full-screen live view: `tapewire monitor BUS`. Needs the extra `monitor` (Textual)."""

from __future__ import annotations

import time
from typing import ClassVar

from rich.text import Text
from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.message import Message
from textual.widgets import DataTable, Footer, Input, Static

from tapewire.monitor.alerts import Alert
from tapewire.monitor.sampler import Watch
from tapewire.monitor.snapshot import Snapshot, printable
from tapewire.monitor.tables import COLOURS, SORTS, queue_cells, reader_cells, sorted_queues
from tapewire.text import BARS, bytes_text, end_of, short_count, sparkline, time_text

__all__ = ["LiveView"]


_HISTORY = "history"
_Rows = list[tuple[str, tuple[str, ...]]]  # key, and a cell for each column


class _Table(DataTable[Text]):
    """Names, states and numbers; rows and cursor keep their position between updates."""

    def head(self, *labels: str) -> None:
        """Add the columns."""
        for i, label in enumerate(labels):
            left = i < 2 or label == _HISTORY
            self.add_column(Text(label, justify="left" if left else "right"), key=label)

    def show(self, rows: _Rows) -> None:
        """Show rows by key; the first cell is shortened to the width that the others leave."""
        rows = self._fitted(rows)
        keys = [key for key, _ in rows]
        if keys != [row.key.value for row in self.ordered_rows]:
            chosen = self.chosen
            self.clear()
            for key, cells in rows:
                self.add_row(*map(self._cell, range(len(cells)), cells), key=key)
            if chosen in keys:
                self.move_cursor(row=keys.index(chosen), animate=False)
            return
        for key, cells in rows:
            for i, column in enumerate(self.ordered_columns):
                cell = self._cell(i, cells[i])
                if self.get_cell(key, column.key) != cell:
                    self.update_cell(key, column.key, cell, update_width=True)

    @property
    def chosen(self) -> str | None:
        """The key of the row at the cursor."""
        if not self.is_valid_row_index(self.cursor_row):
            return None
        return self.ordered_rows[self.cursor_row].key.value

    def spare(self, rows: _Rows) -> int:
        """Return how many characters of the width these rows leave free; may be negative."""
        columns = [
            max([len(column.label), *(len(cells[i]) for _, cells in rows)])
            for i, column in enumerate(self.ordered_columns)
        ]
        taken = sum(columns) + 2 * self.cell_padding * len(columns)
        return self.size.width - taken - self.styles.scrollbar_size_vertical

    def _fitted(self, rows: _Rows) -> _Rows:
        longest = max((len(cells[0]) for _, cells in rows), default=0)
        width = max(longest + min(self.spare(rows), 0), 10)
        return [(key, (end_of(cells[0], width), *cells[1:])) for key, cells in rows]

    @staticmethod
    def _cell(index: int, text: str) -> Text:
        """Return text without markup, so that brackets in names are shown."""
        if index == 0:
            return Text(text, no_wrap=True)
        if index == 1:
            return Text(text, COLOURS[text])
        if text and text[0] in BARS:
            return Text(text, "cyan", no_wrap=True)
        return Text(text, justify="right", no_wrap=True)


class LiveView(App[None]):
    """Shows the queues, the readers of the selected queue, and the alerts.

    Args:
        watch: Sampled by a thread of the application.
        interval: Seconds between samples.
        light: Start with the light theme.
    """

    CSS = """
    #top { height: 1; background: $panel; color: $foreground; padding: 0 1; }
    #filter { display: none; height: 1; border: none; padding: 0 1; background: $surface; }
    #filter.open { display: block; }
    #panes { layout: vertical; }
    .-wide #panes { layout: horizontal; }
    #left { height: 3fr; }
    #right { height: 4fr; }
    .-wide #left { height: 1fr; width: 11fr; }
    .-wide #right { height: 1fr; width: 10fr; border-left: solid $panel; }
    .title { height: 1; padding: 0 1; color: $text-muted; text-style: bold; background: $boost; }
    _Table { height: 1fr; scrollbar-size-horizontal: 1; scrollbar-size-vertical: 1; }
    #alerts { height: auto; max-height: 45%; padding: 0 1; overflow-y: auto; }
    """
    TITLE = "tapewire monitor"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - as Textual declares it
        (0, "-narrow"),
        (130, "-wide"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "unfilter", "Show all", show=False),
        Binding("s", "sort", "Sort"),
        Binding("p", "pause", "Pause"),
        Binding("t", "theme", "Light/dark"),
    ]

    class Sampled(Message):
        """A sample, or why it failed."""

        def __init__(self, snapshot: Snapshot | None, fault: str) -> None:
            super().__init__()
            self.snapshot = snapshot
            self.fault = fault

    def __init__(self, watch: Watch, *, interval: float = 1.0, light: bool = False) -> None:
        super().__init__()
        self._watch = watch
        self._interval = interval
        self._sort = SORTS[0]
        self._paused = False
        self._sampling = False
        self._light = light
        self._fault = ""
        self.snapshot: Snapshot | None = None

    def compose(self) -> ComposeResult:
        """Yield the parts of the screen."""
        yield Static(id="top")
        yield Input(placeholder="part of a queue's name", id="filter", compact=True)
        with Container(id="panes"):
            with Vertical(id="left"):
                yield Static("Queues", classes="title", id="queues-title")
                yield _Table(id="queues", cursor_type="row", zebra_stripes=True)
            with Vertical(id="right"):
                yield Static("Readers", classes="title", id="readers-title")
                yield _Table(id="readers", cursor_type="none", zebra_stripes=True)
                yield Static("Alerts", classes="title", id="alerts-title")
                yield Static(id="alerts")
        yield Footer()

    def on_mount(self) -> None:
        """Set columns and theme, and take the first sample."""
        self.theme = "textual-light" if self._light else "textual-dark"
        self._queues.head("queue", "writer", "rec/s", "bytes/s", "last seq", "lag", "disk")
        self._readers.head("reader", "state", "lag rec", "bytes", "time", "rec/s", _HISTORY)
        self._queues.focus()
        self._tick()
        self.set_interval(self._interval, self._tick)

    @property
    def _queues(self) -> _Table:
        return self.query_one("#queues", _Table)

    @property
    def _readers(self) -> _Table:
        return self.query_one("#readers", _Table)

    def _tick(self) -> None:
        if not (self._paused or self._sampling):  # a slow sample delays the next one
            self._sampling = True
            self._sample()

    @work(thread=True, group="sample")
    def _sample(self) -> None:
        """Sample in a thread, so that a slow disk does not block the keyboard."""
        try:
            snapshot: Snapshot | None = self._watch.sample()
            fault = ""
        except OSError as error:  # the bus was removed; it may come back
            snapshot, fault = None, printable(str(error))
        self.post_message(self.Sampled(snapshot, fault))  # ignored if the view has ended

    def on_live_view_sampled(self, message: Sampled) -> None:
        """Show a sample."""
        self._sampling = False
        if self._paused:
            return
        self._fault = message.fault
        self.snapshot = message.snapshot or self.snapshot
        self._show()

    def _show(self) -> None:
        self._show_top()
        if self.snapshot is None:
            return
        wanted = self.query_one("#filter", Input).value.lower()
        queues = [queue for queue in self.snapshot.queues if wanted in queue.name.lower()]
        title = f"Queues {len(queues)}"
        if wanted:
            title += f" of {len(self.snapshot.queues)} with {wanted!r}"
        self.query_one("#queues-title", Static).update(Text(f"{title}, by {self._sort}"))
        self._queues.show(
            [(queue.name, queue_cells(queue)) for queue in sorted_queues(queues, self._sort)]
        )
        self._show_readers()
        self._show_alerts(self.snapshot.alerts)

    def _show_top(self) -> None:
        top = Text("tapewire ", style="bold")
        top.append(printable(self._watch.root), style="not bold")
        if self.snapshot is not None:
            queues = self.snapshot.queues
            records = sum(queue.records_per_second or 0 for queue in queues)
            written = sum(queue.bytes_per_second or 0 for queue in queues)
            at = time.strftime("%H:%M:%S", time.localtime(self.snapshot.time_ns // 10**9))
            top.append(
                f"   {short_count(records)} rec/s   {bytes_text(written)}/s   {at}", "not bold"
            )
        if self._paused:
            top.append("   paused", "bold yellow")
        if self._fault:
            top.append(f"   {self._fault}", "bold red")
        self.query_one("#top", Static).update(top)

    def _show_readers(self) -> None:
        queue = self.snapshot and self.snapshot.queue(self._queues.chosen or "")
        readers = queue.readers if queue else ()
        title = f"Readers {len(readers)}" + (f" of {queue.name}" if queue else "")
        self.query_one("#readers-title", Static).update(Text(title))
        rows = [(reader.name, (*reader_cells(reader), "")) for reader in readers]
        width = min(max(self._readers.spare(rows) + len(_HISTORY), 8), 40)
        self._readers.show(
            [
                (name, (*cells[:-1], sparkline(self._watch.lag_history(queue.name, name), width)))
                for name, cells in rows
                if queue
            ]
        )

    def _show_alerts(self, alerts: tuple[Alert, ...]) -> None:
        self.query_one("#alerts-title", Static).update(Text(f"Alerts {len(alerts)}"))
        text = Text()
        for alert in alerts:
            text.append(f"{alert.severity:<9}", f"bold {COLOURS[alert.severity]}")
            text.append(f"{alert.text} ({time_text(alert.age)})")
            text.append(f" → {alert.remedy}\n", "dim")
        text.rstrip()
        self.query_one("#alerts", Static).update(text if alerts else Text("none", "dim"))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the readers of the selected queue."""
        if event.data_table.id == "queues":
            self._show_readers()

    def on_resize(self, event: events.Resize) -> None:
        """Fit names and history to the new width."""
        self.call_after_refresh(self._show)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return to the table and keep the filter."""
        if not event.value:
            self.query_one("#filter", Input).remove_class("open")
        self._queues.focus()

    def action_filter(self) -> None:
        """Open the filter."""
        box = self.query_one("#filter", Input)
        box.add_class("open")
        box.focus()

    def action_unfilter(self) -> None:
        """Show every queue again."""
        box = self.query_one("#filter", Input)
        box.value = ""
        box.remove_class("open")
        self._queues.focus()

    def action_sort(self) -> None:
        """Sort by the next of name, rate, lag, disk."""
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self._show()

    def action_pause(self) -> None:
        """Pause or resume the display and the sampling."""
        self._paused = not self._paused
        self._show_top()

    def action_theme(self) -> None:
        """Switch between dark and light."""
        self._light = not self._light
        self.theme = "textual-light" if self._light else "textual-dark"
