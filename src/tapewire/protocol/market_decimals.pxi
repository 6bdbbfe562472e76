# Conversion of decimal text to integers, and hashes of names; part of _native.pyx.

cdef extern from *:
    """
    #include "tapewire/market/decimal.hpp"
    #include "tapewire/xxhash.hpp"
    // Null for text with other characters, which is no number anyway.
    static inline const char* tw_ascii(PyObject* text, Py_ssize_t* n) {
        if (!PyUnicode_IS_COMPACT_ASCII(text)) return nullptr;
        *n = PyUnicode_GET_LENGTH(text);
        return reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(text));
    }
    static inline int tw_parse_decimal(const char* text, Py_ssize_t n, int scale, int64_t* out) {
        return static_cast<int>(
            tapewire::market::parse_decimal({text, static_cast<size_t>(n)}, scale, *out));
    }
    static inline uint64_t tw_xxh64(const char* data, Py_ssize_t n) {
        return tapewire::xxh64({reinterpret_cast<const std::byte*>(data), static_cast<size_t>(n)});
    }
    """
    const char* tw_ascii(object, Py_ssize_t*)
    int tw_parse_decimal(const char*, Py_ssize_t, int, int64_t*)
    uint64_t tw_xxh64(const char*, Py_ssize_t)

cdef extern from "tapewire/xxhash.hpp" namespace "tapewire":
    cppclass Hash128:
        uint64_t low
        uint64_t high

    cppclass CXxh3 "tapewire::Xxh3":
        void update(const void*, size_t)
        Hash128 digest()


# Further results, after those of market::Decimal.
cdef enum:
    NOT_TEXT = 4


cdef int _parse(object text, int scale, int64_t* value):
    """Return 0 or a reason; raises no exception, since it runs in loops over thousands."""
    cdef const char* data
    cdef Py_ssize_t size
    cdef int overflow = 0
    if PyUnicode_Check(text):
        data = tw_ascii(text, &size)
        return 1 if data is NULL else tw_parse_decimal(data, size, scale, value)
    if PyBytes_Check(text):
        return tw_parse_decimal(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), scale, value)
    if PyLong_Check(text) and text is not True and text is not False:  # JSON's are no numbers
        PyLong_AsLongLongAndOverflow(text, &overflow)
        if overflow:
            return 3
        return _parse(str(int(text)), scale, value)
    return NOT_TEXT


cdef object _refusal(int why, object text, int scale, str place=""):
    if why == 1:
        return InvalidMessage(f"{place}must be a decimal number: text={text!r}")
    if why == 2:
        return InvalidMessage(f"{place}a number must not lose digits: text={text!r}, scale={scale}",
                              hint="use a larger scale")
    if why == 3:
        return InvalidMessage(
            f"{place}a scaled number must fit 64 bits: text={_shown(text)}, scale={scale}",
            hint="use a smaller scale")
    return InvalidMessage(
        f"{place}must be text or bytes, which are exact: {text!r}",
        hint="make the parser keep numbers as text: json.loads(…, parse_float=str)")


cdef int _scale(str name, object scale) except -1:
    return <int> _unsigned(name, scale, kMaxScale)


def scaled(text, scale):
    """Convert a decimal number to an integer with `scale` decimals, exactly.

    Args:
        text: Text or bytes such as ``"101.5"``, with an optional sign and exponent (``"1E-8"``); or
            an int.
        scale: Number of decimals, 0 to 18.

    Raises:
        InvalidMessage: It is not a number, has more decimals than `scale`, or does not fit 64 bits.

    Example:
        >>> from tapewire.protocol.market import scaled
        >>> scaled("101.50", 2), scaled(b"-3e-2", 2)
        (10150, -3)
        >>> scaled("101.505", 2)
        Traceback (most recent call last):
          ...
        tapewire.errors.InvalidMessage: a number must not lose digits: text='101.505', scale=2; \
use a larger scale
    """
    cdef int digits = _scale("scale", scale)
    cdef int64_t value = 0
    cdef int why = _parse(text, digits, &value)
    if why:
        raise _refusal(why, text, digits)
    return value


def scaled_many(texts, scale):
    """Convert each text as `scaled` does; return an array of int64.

    Raises:
        InvalidMessage: A text is invalid; the message has its index.
    """
    import numpy
    cdef int digits = _scale("scale", scale)
    cdef tuple rows = tuple(texts)  # a copy: Python code may change the caller's
    cdef Py_ssize_t i, n = len(rows)
    values = numpy.empty(n, numpy.int64)
    cdef int64_t[::1] into = values
    cdef int why
    for i in range(n):
        why = _parse(rows[i], digits, &into[i])
        if why:
            raise _refusal(why, rows[i], digits, f"[{i}]: ")
    return values


def scaled_levels(levels, price_scale, size_scale):
    """Convert levels as venues send them, ``[["101.5", "0.25"], …]``, to an (n, 2) array of int64.

    Values of a level after its size are ignored.

    Raises:
        InvalidMessage: A number is invalid; the message has its index.

    Example:
        >>> from tapewire.protocol.market import scaled_levels
        >>> scaled_levels([["101.5", "0.25"], ["101", "3"]], 1, 2).tolist()
        [[1015, 25], [1010, 300]]
    """
    import numpy
    cdef int price_digits = _scale("price_scale", price_scale)
    cdef int size_digits = _scale("size_scale", size_scale)
    cdef tuple rows = tuple(levels)  # a copy: Python code may change the caller's
    cdef Py_ssize_t i, n = len(rows)
    values = numpy.empty((n, 2), numpy.int64)
    cdef int64_t[:, ::1] into = values
    cdef int why
    for i in range(n):
        row = rows[i]
        if type(row) is not list and type(row) is not tuple or len(row) < 2:
            raise InvalidMessage(f"a level must be [price, size]: levels[{i}]={row!r}")
        price, size = row[0], row[1]
        why = _parse(price, price_digits, &into[i, 0])
        if why:
            raise _refusal(why, price, price_digits, f"levels[{i}] price: ")
        why = _parse(size, size_digits, &into[i, 1])
        if why:
            raise _refusal(why, size, size_digits, f"levels[{i}] size: ")
    return values


def unscaled(value, scale):
    """Convert an integer with `scale` decimals to text, with all its decimals.

    Example:
        >>> from tapewire.protocol.market import unscaled
        >>> unscaled(10150, 2), unscaled(-3, 2), unscaled(7, 0)
        ('101.50', '-0.03', '7')
    """
    cdef int digits = _scale("scale", scale)
    value = int(value)
    sign = "-" if value < 0 else ""
    text = str(abs(value)).rjust(digits + 1, "0")
    if not digits:
        return sign + text
    return f"{sign}{text[:len(text) - digits]}.{text[len(text) - digits:]}"


def xxh64(data):
    """Return the XXH64 of bytes, with seed 0."""
    cdef bytes whole = bytes(data)
    return tw_xxh64(PyBytes_AS_STRING(whole), PyBytes_GET_SIZE(whole))


def xxh3_128(*pieces):
    """Return the XXH3-128 of the concatenated pieces, as 32 hexadecimal digits."""
    cdef CXxh3 state
    cdef bytes whole
    for piece in pieces:
        whole = bytes(piece)
        state.update(PyBytes_AS_STRING(whole), PyBytes_GET_SIZE(whole))
    cdef Hash128 digest = state.digest()
    return f"{digest.high:016x}{digest.low:016x}"


def symbol_hash(str venue not None, str symbol not None):
    """Return the XXH64 of ``venue:symbol``, the `symbol_hash` of market messages."""
    cdef bytes name = f"{venue}:{symbol}".encode()
    return tw_xxh64(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
