// Converts an Error of the core to the exception of tapewire.errors. Called by Cython inside a
// catch block, with the GIL held.
#pragma once

#include <Python.h>

#include <exception>
#include <new>
#include <string>

#include "tapewire/error.hpp"

namespace tapewire {

// The text may contain bytes of a damaged file.
inline PyObject* text_of(const std::string& text) {
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

inline void raise_python_error() {
    try {
        throw;
    } catch (const Error& e) {
        PyObject* module = PyImport_ImportModule("tapewire.errors");
        if (module == nullptr) return;
        PyObject* made = PyObject_CallMethod(
            module, "from_native", "iNNLNi(KKK)", static_cast<int>(e.code), text_of(e.message),
            PyUnicode_DecodeFSDefault(e.path.c_str()), static_cast<long long>(e.offset),
            text_of(e.hint), e.os_errno, static_cast<unsigned long long>(e.numbers[0]),
            static_cast<unsigned long long>(e.numbers[1]),
            static_cast<unsigned long long>(e.numbers[2]));
        Py_DECREF(module);
        if (made == nullptr) return;  // that failure is raised instead
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made)), made);
        Py_DECREF(made);
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
}

}  // namespace tapewire
