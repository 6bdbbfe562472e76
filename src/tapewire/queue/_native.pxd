# Declarations of the native engine for _native.pyx.
from libcpp cimport bool as cbool
from libcpp.memory cimport unique_ptr
from libcpp.optional cimport optional
from libcpp.string cimport string
from libcpp.vector cimport vector

from tapewire._native cimport (Cursor, CursorReader, MappingRef, RecordView, TypeFilter, WaitKind,
                               byte, int64_t, nap_1ms, nap_50us, raise_python_error, seconds_to_ns,
                               time_to_seek, uint16_t, uint32_t, uint64_t, wait_option)

cdef extern from "tapewire/clock.hpp" namespace "tapewire":
    int64_t mono_ns() nogil
    int64_t wall_ns() nogil

cdef extern from "tapewire/format/stats.hpp":
    """
    static inline std::string_view tw_stat_name(size_t i) { return tapewire::format::kStatNames[i];
    } static inline std::string tw_stat_text(size_t i) { return std::string(tw_stat_name(i)); }
    """
    size_t kStatCount "tapewire::format::kStatCount"
    string tw_stat_text(size_t)

cdef extern from "tapewire/format/record.hpp" namespace "tapewire::format":
    size_t kRecordHeaderBytes

cdef extern from "tapewire/queue/retention.hpp" namespace "tapewire::queue":
    cppclass RetentionRules:
        cbool enabled
        int64_t reader_ttl_ns
        uint64_t max_reader_lag_bytes

cdef extern from "tapewire/queue/writer.hpp" namespace "tapewire::queue":
    cppclass WriterOptions:
        uint64_t segment_bytes
        uint64_t max_bytes
        uint64_t max_segments
        cbool preallocate
        cbool require_prealloc
        int64_t prealloc_wait_ns
        cbool defer_seal_sync
        cbool memlock
        cbool checksum
        uint32_t index_stride
        RetentionRules retention
        uint64_t flush_records
        int64_t flush_interval_ns
        optional[uint64_t] first_seq
        optional[cbool] sparse
        cbool repair

    cppclass BatchRows:
        uint64_t count
        const byte* base
        int64_t stride
        uint32_t row_bytes
        const byte** pointers
        const uint64_t* lengths
        uint16_t type_id
        const uint16_t* type_ids
        uint16_t flags
        const uint16_t* flags_each
        uint64_t timestamp_ns
        const uint64_t* timestamps_ns
        const uint64_t* seqs

    uint64_t kNoSeq "tapewire::queue::Writer::kNoSeq"

    cppclass CWriter "tapewire::queue::Writer":
        CWriter(const string&, const WriterOptions&) except +raise_python_error nogil
        bint try_append(uint16_t, uint16_t, uint64_t, uint64_t, const void*, uint64_t,
                        bint) noexcept nogil
        bint try_append_numbered(uint16_t, uint16_t, uint64_t, uint64_t, const void*, uint64_t,
                                 bint) noexcept nogil
        uint64_t next_seq()
        bint sparse()
        uint64_t segment_bytes()
        uint64_t first_seq()
        uint64_t epoch()
        bint lost()
        bint forked_away()
        void suspend()
        void resume()
        bint make_room(uint64_t) except +raise_python_error nogil
        bint make_room_at_once(uint64_t) except +raise_python_error
        void throw_full() except +raise_python_error nogil
        bint batch_fits(const BatchRows&) except +raise_python_error nogil
        void append_batch(const BatchRows&, uint64_t&) except +raise_python_error nogil
        byte* reserve(uint64_t)
        void commit_reserved(uint16_t, uint16_t, uint64_t, uint64_t,
                             uint64_t) except +raise_python_error
        void abort_reserved()
        bint reservation_open()
        const MappingRef& current_map()
        void check_number(uint64_t) except +raise_python_error
        void check_usable() except +raise_python_error
        void flush_async() except +raise_python_error nogil
        void flush_sync() except +raise_python_error nogil
        vector[uint64_t] stats()
        vector[string] take_events()
        void close() except +raise_python_error nogil

cdef extern from "tapewire/queue/reader.hpp" namespace "tapewire::queue":
    cdef enum class Disconnect:
        none
        lock_lost
        heartbeat_stale
        segment_missing

    cppclass ReaderOptions:
        string name
        cbool pinned
        WaitKind wait
        int64_t wait_ns

    cppclass CWriterStatus "tapewire::queue::WriterStatus":
        cbool alive
        int64_t pid
        uint64_t epoch
        int64_t heartbeat_age_ns

    cppclass CPosition "tapewire::queue::Position":
        uint64_t segment
        uint64_t offset

    cppclass CReader "tapewire::queue::Reader":
        CReader(const string&, const ReaderOptions&) except +raise_python_error nogil
        void filter(unique_ptr[TypeFilter])
        bint resume_committed() except +raise_python_error nogil
        void register_position() except +raise_python_error nogil
        void commit() except +raise_python_error
        optional[CPosition] committed()
        CPosition position()
        optional[uint64_t] last_seq()
        bint sparse()
        uint64_t segment_bytes()
        CWriterStatus writer_status(int64_t) except +raise_python_error nogil
        Disconnect detect_disconnect(int64_t) except +raise_python_error nogil
        void interrupt()
        bint forked_away()
        void check_usable() except +raise_python_error
        void close(bint) except +raise_python_error nogil

cdef extern from "tapewire/queue/status.hpp" namespace "tapewire::queue":
    cppclass CReaderState "tapewire::queue::ReaderState":
        CPosition position
        uint64_t heartbeat_ns
        cbool pinned

    cppclass CLockOwner "tapewire::queue::LockOwner":
        int64_t pid
        uint64_t start_ticks
        uint64_t epoch

    cppclass CLockLook "tapewire::queue::LockLook":
        cbool held
        optional[CLockOwner] owner

    cppclass CSegmentLook "tapewire::queue::SegmentLook":
        uint32_t id
        string path
        uint64_t bytes
        cbool sealed
        cbool readable
        cbool has_index
        optional[cbool] holds_records
        optional[uint64_t] first_seq

    cppclass CReaderLook "tapewire::queue::ReaderLook":
        string name
        string path
        cbool alive
        CReaderState state
        optional[uint64_t] lag_records
        uint64_t lag_bytes
        uint64_t lag_segments
        uint64_t lag_ns
        optional[uint64_t] next_seq

    cppclass CGeometry "tapewire::queue::Geometry":
        uint64_t segment_bytes
        uint64_t first_seq

    cppclass CQueueLook "tapewire::queue::QueueLook":
        uint32_t version
        CGeometry geometry
        int sync_errno
        cbool sparse
        CPosition hint
        CPosition end
        optional[CPosition] checkpoint
        optional[uint64_t] last_seq
        optional[uint64_t] last_timestamp_ns
        optional[uint64_t] first_available_seq
        optional[uint64_t] records
        vector[CSegmentLook] segments
        CLockLook lock
        uint64_t epoch
        uint64_t heartbeat_ns
        vector[CReaderLook] readers
        vector[uint64_t] stats
        vector[string] temporary_files
        vector[string] damaged_copies
        vector[string] problems

    cppclass CQueueWatch "tapewire::queue::QueueWatch":
        CQueueWatch(const string&) except +raise_python_error
        CQueueLook look() except +raise_python_error nogil

    vector[uint64_t] c_indexed_seqs "tapewire::queue::indexed_seqs"(
        const string&, uint32_t) except +raise_python_error nogil

cdef extern from "tapewire/queue/upkeep.hpp" namespace "tapewire::queue":
    cppclass CUpkeep "tapewire::queue::Upkeep":
        CUpkeep(const string&) except +raise_python_error nogil
        void clear_owner()
        vector[string] remove_temporary_files() except +raise_python_error

    bint c_remove_reader "tapewire::queue::remove_reader"(
        const string&, const string&, optional[uint64_t]) except +raise_python_error nogil
    vector[string] c_wrong_indexes "tapewire::queue::wrong_indexes"(
        const string&) except +raise_python_error nogil

cdef extern from "tapewire/arrow.hpp":
    cdef struct ArrowSchema:
        void (*release)(ArrowSchema*) noexcept nogil
    cdef struct ArrowArray:
        void (*release)(ArrowArray*) noexcept nogil
    cdef struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept nogil
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept nogil
        const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil
    cppclass ArrowRows "tapewire::ArrowRows":
        vector[const byte*] pointers
        vector[uint64_t] lengths
        void add(const ArrowSchema&, const ArrowArray&) except +raise_python_error

cdef extern from *:
    """
    #include "tapewire/queue/reader.hpp"
    static inline tapewire::Cursor* tw_cursor(tapewire::queue::Reader* r) { return r; }
    """
    Cursor* tw_cursor(CReader*)
