"""Pages: text is escaped, and a page is replaced atomically."""

from tapewire import page


def test_text_arguments_are_escaped_everywhere():
    hostile = "<img src=x onerror=alert(1)>"
    text = page.document(
        hostile,
        page.cards([(hostile, hostile)])
        + page.table([hostile], [[hostile]])
        + page.items([hostile])
        + page.section(hostile, "", hostile, [(hostile, "c0")]),
    )
    assert "<img" not in text
    assert text.count("&lt;img") == 9


def test_a_page_replaces_an_earlier_one_and_leaves_no_temporary_file(tmp):
    path = tmp / "out" / "report.html"
    page.write_file(path, "first")
    page.write_file(path, "second")
    assert path.read_text() == "second"
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_a_page_has_both_colour_schemes_and_fetches_nothing():
    text = page.document("title", "")
    assert "prefers-color-scheme: dark" in text
    assert "http" not in text
