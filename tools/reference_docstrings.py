"""A griffe extension for the reference pages: docstrings as mkdocstrings wants them.

griffe reads `_native.pyi`, which has types and no docstrings; those are in the `.pyx` and so in the
compiled module. They are fetched from there. And a section "Example:" becomes "Examples:", the only
name under which griffe shows `>>>` lines as code.
"""

import importlib
import inspect
import re

import griffe


class ReferenceDocstrings(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring is None and _is_stub(obj):
            text = _compiled_docstring(obj)
            if text:
                obj.docstring = griffe.Docstring(text, parent=obj, lineno=obj.lineno)
        if obj.docstring is not None:
            value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = value


def _is_stub(obj):
    return not isinstance(obj.filepath, list) and obj.filepath.suffix == ".pyi"


def _compiled_docstring(obj):
    if obj.name.startswith("__"):
        return None  # what Python itself says about them is no help
    found = importlib.import_module(obj.module.path)
    for name in obj.path.removeprefix(obj.module.path).split("."):
        if name:
            found = getattr(found, name, None)
    if obj.is_attribute and not inspect.isdatadescriptor(found):
        return None  # a value: its class has nothing to say about this name
    head, _, rest = (found.__doc__ or "").partition("\n")
    if head.startswith((f"{obj.name}(", f"{obj.parent.name}.{obj.name}(")):
        return inspect.cleandoc(rest)  # without the signature that Cython embeds
    return inspect.cleandoc(f"{head}\n{rest}")
