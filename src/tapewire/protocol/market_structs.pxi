# The layouts of the native structs; part of _native.pyx.

cdef extern from "tapewire/market/fields.hpp" namespace "tapewire::market":
    cppclass FieldRow:
        const char* name
        size_t offset
        size_t bytes
        char kind

    cppclass StructRow:
        const char* name
        size_t bytes
        vector[FieldRow] fields

    vector[StructRow] message_structs() except +

cdef extern from "tapewire/format/market.hpp" namespace "tapewire::format":
    const uint16_t kBookEvent, kBookTicker, kTrade, kQuote, kTradeTick, kVenueRaw
    const uint16_t kMarketVersion, kMarketVersionOldest, kMarketVersionLoss, kMaxLossCause
    const uint8_t kMaxScale
    const uint16_t kEventAbsolute, kEventHasScale
    const uint32_t kL3HasBidId, kL3HasAskId
    cdef enum class EventType:
        snapshot, diff, reset, heartbeat, loss
    cdef enum class BookMode:
        l2, l3

BOOK_EVENT = kBookEvent
BOOK_TICKER = kBookTicker
TRADE = kTrade
QUOTE = kQuote
TRADE_TICK = kTradeTick
VENUE_RAW = kVenueRaw
VERSION = kMarketVersion
OLDEST_VERSION = kMarketVersionOldest
LOSS_VERSION = kMarketVersionLoss
MAX_SCALE = kMaxScale


def struct_layouts():
    """The native structs: name to (size, {field: (offset, numpy format)}), unreserved fields."""
    cdef vector[StructRow] rows = message_structs()
    cdef size_t i, k
    layouts = {}
    for i in range(rows.size()):
        fields = {}
        for k in range(rows[i].fields.size()):
            size = rows[i].fields[k].bytes
            order = "<" if size > 1 else ""
            fields[(<bytes> rows[i].fields[k].name).decode()] = (
                rows[i].fields[k].offset, f"{order}{chr(rows[i].fields[k].kind)}{size}")
        layouts[(<bytes> rows[i].name).decode()] = (rows[i].bytes, fields)
    return layouts


cdef object _dtypes = None


def struct_dtype(str name):
    """Return the numpy dtype of a native struct; cached."""
    global _dtypes
    if _dtypes is None:
        import numpy
        _dtypes = {
            struct: numpy.dtype({
                "names": list(fields),
                "formats": [kind for _, kind in fields.values()],
                "offsets": [offset for offset, _ in fields.values()],
                "itemsize": size,
            })
            for struct, (size, fields) in struct_layouts().items()
        }
    return (<dict> _dtypes)[name]
