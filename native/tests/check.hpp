// A minimal test frame for the native tests. One executable per file:
//
//     #include "check.hpp"
//
//     TEST(appends_grow_the_file) {
//         CHECK(queue.open());
//         CHECK_EQ(queue.size(), 3);
//         CHECK_THROWS(queue.read(99), std::out_of_range);
//     }
//
//     TEST_MAIN()
//
// A failed check is reported and counted, and the test continues. Any thread may make checks.
// Arguments of the executable select the tests whose name contains one of them.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <exception>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace check {

struct Test {
    const char* name;
    void (*body)();
};

struct State {
    std::vector<Test> tests;  // in the order of definition
    std::atomic<std::size_t> passed{0};
    std::atomic<std::size_t> failed{0};
    const char* running = "(outside of a test)";
    std::mutex output;
};

// A function-local static: usable while other static objects register their tests.
inline State& state() {
    static State instance;
    return instance;
}

struct Registration {
    Registration(const char* name, void (*body)()) { state().tests.push_back({name, body}); }
};

inline void pass() { state().passed.fetch_add(1, std::memory_order_relaxed); }

inline void fail(const char* file, int line, const std::string& what) {
    state().failed.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard lock(state().output);
    std::cerr << file << ':' << line << ": in " << state().running << ": " << what << std::endl;
}

inline bool verify(bool ok, const char* file, int line, const char* expression) {
    if (ok) {
        pass();
    } else {
        fail(file, line, std::string("CHECK(") + expression + ") failed");
    }
    return ok;
}

template <typename T>
concept Printable = requires(std::ostream& out, const T& value) { out << value; };

// Integers that std::cmp_equal accepts: not bool and not the character types.
template <typename T>
concept Number = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                 !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                 !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

template <typename T>
std::string show(const T& value) {
    std::ostringstream out;
    out << std::boolalpha;
    if constexpr (Number<T>) {
        out << +value << " (0x" << std::hex << +static_cast<std::make_unsigned_t<T>>(value) << ')';
    } else if constexpr (std::is_enum_v<T>) {
        out << "enumerator " << +static_cast<std::underlying_type_t<T>>(value);
    } else if constexpr (std::is_null_pointer_v<T>) {
        out << "nullptr";
    } else if constexpr (std::convertible_to<const T&, std::string_view>) {
        if constexpr (std::is_pointer_v<T>) {
            if (value == nullptr) {
                return "nullptr";
            }
        }
        out << '"' << std::string_view(value) << '"';
    } else if constexpr (Printable<T>) {
        out << value;
    } else {
        out << "<value of " << sizeof(T) << " bytes>";
    }
    return out.str();
}

template <typename A, typename B>
bool equal(const A& a, const B& b) {
    if constexpr (Number<A> && Number<B>) {
        return std::cmp_equal(a, b);  // by value, whatever the signs: -1 != SIZE_MAX
    } else {
        return a == b;
    }
}

template <typename A, typename B>
bool verify_equal(const A& a, const B& b, const char* file, int line, const char* expressions) {
    const bool ok = equal(a, b);
    if (ok) {
        pass();
    } else {
        fail(file, line,
             std::string("CHECK_EQ(") + expressions + ") failed: " + show(a) + " != " + show(b));
    }
    return ok;
}

/// Prints "N passed, N failed" (checks, not tests) and returns main's result. A run that has
/// checked nothing is a failure: most likely its arguments select no test.
inline int report() {
    const std::size_t passed = state().passed;
    const std::size_t failed = state().failed;
    std::cout << passed << " passed, " << failed << " failed" << std::endl;
    return failed == 0 && passed > 0 ? 0 : 1;
}

inline bool selected(std::string_view name, int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        if (name.find(argv[i]) != std::string_view::npos) {
            return true;
        }
    }
    return argc <= 1;
}

inline int run_tests(int argc, char** argv) {
    for (const Test& test : state().tests) {
        if (!selected(test.name, argc, argv)) {
            continue;
        }
        state().running = test.name;
        try {
            test.body();
        } catch (const std::exception& e) {
            fail(test.name, 0, std::string("uncaught exception: ") + e.what());
        } catch (...) {
            fail(test.name, 0, "uncaught exception of an unknown type");
        }
    }
    return report();
}

}  // namespace check

// The checks are expressions that return whether they passed: if (!CHECK(p != nullptr)) return;
// They are variadic, so that a comma in a template argument list needs no parentheses.
#define CHECK(...) ::check::verify(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, #__VA_ARGS__)

#define CHECK_EQ(a, b) ::check::verify_equal((a), (b), __FILE__, __LINE__, #a ", " #b)

#define CHECK_THROWS(expression, exception)                                              \
    do {                                                                                 \
        bool thrown_ = false;                                                            \
        try {                                                                            \
            static_cast<void>(expression);                                               \
        } catch (const exception&) {                                                     \
            thrown_ = true;                                                              \
        }                                                                                \
        ::check::verify(thrown_, __FILE__, __LINE__, #expression " throws " #exception); \
    } while (false)

#define TEST(name)                                                          \
    static void test_##name();                                              \
    static const ::check::Registration register_##name(#name, test_##name); \
    static void test_##name()

#define TEST_MAIN() \
    int main(int argc, char** argv) { return ::check::run_tests(argc, argv); }
