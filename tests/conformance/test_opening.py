"""open_log, kind_of, caps, kind, the empty log."""

import tapewire as tw
from tests.conformance.kinds import needs
from tests.support.entries import entries


def files(where):
    return {path.relative_to(where): path.stat().st_size for path in where.rglob("*")}


@needs("path")
def test_kind_of_recognises_the_log(kind, log):
    assert tw.kind_of(log.where) == kind.name
    assert tw.kind_of(str(log.where)) == kind.name


@needs("path")
def test_open_log_reads_it_from_the_start(kind, log):
    log.fill(5)
    for where in (log.where, str(log.where)):
        with tw.open_log(where) as reader:
            assert reader.kind == kind.name
            assert entries(reader) == log.model


@needs("path", "types")
def test_open_log_takes_types(log):
    log.fill(9)
    with tw.open_log(log.where, types={2}) as reader:
        assert entries(reader) == [e for e in log.model if e.type_id == 2]


@needs("path")
def test_open_log_reads_a_log_without_a_writer(log):
    log.fill(5)
    log.close()
    with tw.open_log(log.where) as reader:
        assert entries(reader) == log.model


@needs("path")
def test_open_log_leaves_no_trace(log):
    log.fill(300)
    log.close()
    before = files(log.where)
    with tw.open_log(log.where) as reader:
        list(reader)
        reader.seek_time(0)
        reader.wait(0)
    assert files(log.where) == before


@needs()
def test_caps_are_those_of_the_kind(kind, log, read):
    reader = read()
    assert reader.caps == kind.caps
    assert isinstance(reader.caps, frozenset)
    assert reader.kind == kind.name


@needs()
def test_a_reader_has_every_method_of_the_protocol(read):
    assert isinstance(read(), tw.Reader)


@needs()
def test_an_empty_log_has_no_records(read):
    reader = read()
    assert reader.next() is None
    assert list(reader) == []
    assert len(reader.read_batch()) == 0
    assert reader.for_each(lambda record: None) == 0
    assert reader.last_seq is None


@needs("live")
def test_what_is_appended_to_an_empty_log_is_seen(log, read):
    reader = read()
    assert reader.next() is None
    log.fill(300)
    assert entries(reader) == log.model


@needs()
def test_a_log_continues_where_it_was_closed(kind, tmp):
    with kind.create(tmp / "log") as log:
        log.fill(150)
        model = log.model
    with kind.create(tmp / "log") as log:
        log.model = model
        log.fill(150)
    with kind.open_reader(tmp / "log") as reader:
        assert entries(reader) == model
    assert [e.seq for e in model] == list(range(300))
