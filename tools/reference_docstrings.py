"""A griffe extension for the reference pages: adapts docstrings for mkdocstrings.

griffe reads `_native.pyi`, which has types but no docstrings; this takes them from the compiled
module. It also renames the section "Example:" to "Examples:", the only name under which griffe
shows `>>>` lines as code.
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
        return None  # Python's own docstrings of these do not help
    found = importlib.import_module(obj.module.path)
    for name in obj.path.removeprefix(obj.module.path).split("."):
        if name:
            found = getattr(found, name, None)
    if obj.is_attribute and not inspect.isdatadescriptor(found):
        return None  # a value: the docstring would be that of its class
    head, _, rest = (found.__doc__ or "").partition("\n")
    if head.startswith((f"{obj.name}(", f"{obj.parent.name}.{obj.name}(")):
        return inspect.cleandoc(rest)  # without the signature that Cython embeds
    return inspect.cleandoc(f"{head}\n{rest}")
