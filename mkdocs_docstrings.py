"""How docstrings are read for the site: `Example:` is a section of code, like `Examples:`."""

from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Give the section the name that Google's style knows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename it in the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            value = obj.docstring.value
            obj.docstring.value = value.replace("\nExample:\n", "\nExamples:\n")
