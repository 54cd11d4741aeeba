"""Docstrings of methods that share texts, and of asynchronous functions that follow others."""

from __future__ import annotations

import inspect
from typing import Any, Self

from cuzarr._docstrings import complete_class, described, documented, follow

SHARED = """
    key, path : str
        The key of the value.
    **options
        Options of the store.
    >>> store = Store()
    """


@documented(SHARED, errors={"key": "KeyError\n    There is no such key."})
class Store:
    def get(self, default: Any, *rest: Any, key: str, **options: Any) -> dict[str, Any] | None:
        """The value of a key.

        Parameters
        ----------
        default : object
            The result for a missing key.
        *rest
            Nothing.

        >>> store.get(None, key=(1, (2)))
        {}
        """

    def reopened(self, path: int) -> Self:
        """The store, opened again.

        Parameters
        ----------
        path : int
            Another kind of path.

        Examples
        --------
        >>> import os
        >>> Store().reopened(3).get(1)
        """
        return self

    def hidden(self, key: str) -> int:
        """A method without an example."""
        return 0


def sections(text: str | None) -> list[str]:
    return inspect.cleandoc(text or "").split("\n\n")


def test_shared_descriptions_come_in_the_order_of_the_signature() -> None:
    assert described(inspect.cleandoc(Store.get.__doc__ or "")) == ["default", "rest", "key", "path", "options"]


def test_results_errors_and_setup_are_put_in() -> None:
    assert sections(Store.get.__doc__)[2:] == [
        "Returns\n-------\ndict[str, Any] | None",
        "Raises\n------\nKeyError\n    There is no such key.",
        "Examples\n--------\n>>> store = Store()\n>>> store.get(None, key=(1, (2)))\n{}",
    ]


def test_a_method_keeps_its_own_description_and_imports() -> None:
    assert sections(Store.reopened.__doc__)[1:] == [
        "Parameters\n----------\npath : int\n    Another kind of path.",
        "Returns\n-------\nStore",
        "Examples\n--------\n>>> import os\n>>> Store().reopened(3).get(1)",
    ]


def test_a_docstring_without_an_example_stays() -> None:
    assert Store.hidden.__doc__ == "A method without an example."


def test_twins_await_in_their_examples() -> None:
    async def get(default: Any, key: str) -> None: ...

    follow(get, Store.get, "Store.get", "twin({})", errors=("KeyError", "ValueError"))
    assert "This call is awaited. Its synchronous form is :meth:`Store.get`." in sections(get.__doc__)[1]
    assert sections(get.__doc__)[-2:] == [
        "Raises\n------\nValueError\n    There is no such key.",
        "Examples\n--------\n>>> store = Store()\n>>> asyncio.run(twin(store).get(None, key=(1, (2))))\n{}",
    ]


def test_twins_keep_what_they_say_themselves() -> None:
    async def reopened(path: int) -> None:
        """Open it anew."""
        yield

    follow(reopened, Store.reopened, "Store.reopened", "twin({})")
    text = sections(reopened.__doc__)
    assert text[0] == "Open it anew."
    assert text[1] == "The items are listed by ``async for``. Its synchronous form is :meth:`Store.reopened`."
    assert ">>> asyncio.run(listed(twin(Store()).reopened(3))).get(1)" in text[-1]


def test_classes_of_a_family_share_errors() -> None:
    class Codec:
        """A codec.

        >>> Codec()
        """

    complete_class(Codec, "ValueError\n    A setting is not allowed.", ">>> import codecs")
    assert sections(Codec.__doc__)[1:] == [
        "Raises\n------\nValueError\n    A setting is not allowed.",
        "Examples\n--------\n>>> import codecs\n>>> Codec()",
    ]


def test_stripped_docstrings_stay_away() -> None:
    def silent() -> None: ...

    documented("")(silent)
    assert silent.__doc__ is None
