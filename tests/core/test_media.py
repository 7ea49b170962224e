"""What bytes are.

Found from their content, with the size of an image, and no word for a broken one.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.chat import Attachment
from conductor_cli.core.media import attachment_tokens, describe_refused, image_size, media_type_of
from tests.media_files import gif, jpeg, pdf, png, webp

IMAGES = {"image/png": png, "image/jpeg": jpeg, "image/gif": gif, "image/webp": webp}


@pytest.mark.parametrize("media_type", IMAGES)
def test_an_image_has_its_type_and_size(media_type: str) -> None:
    content = IMAGES[media_type](640, 480)
    assert media_type_of(content) == media_type
    assert image_size(content, media_type) == (640, 480)


@pytest.mark.parametrize("media_type", IMAGES)
def test_an_image_without_its_end_has_no_size(media_type: str) -> None:
    content = IMAGES[media_type](640, 480)
    for length in range(12, len(content) - 1):
        assert image_size(content[:length], media_type) is None, length


@given(st.sampled_from(sorted(IMAGES)), st.binary(max_size=60), st.integers(0, 60))
def test_no_bytes_make_the_reader_fail(media_type: str, noise: bytes, kept: int) -> None:
    size = image_size(IMAGES[media_type](3, 2)[:kept] + noise, media_type)
    assert size is None or min(size) > 0


def test_a_pdf_may_have_something_before_its_first_line_but_text_about_one_is_text() -> None:
    assert media_type_of(pdf("Hello")) == "application/pdf"
    assert media_type_of(b"\n\n" + pdf("Hello")) == "application/pdf"
    assert media_type_of(b"A file that begins with %PDF- is a PDF.") == ""


def test_known_types_that_cannot_be_attached_have_a_name() -> None:
    assert "ZIP" in describe_refused(b"PK\x03\x04\x14\x00")
    assert "HEIC" in describe_refused(b"\x00\x00\x00\x18ftypheic")
    assert describe_refused(b"plain words") == ""


def test_tokens_grow_with_the_image_up_to_a_bound_and_with_the_pages() -> None:
    def tokens(**sizes: Any) -> int:
        kind = "application/pdf" if "pages" in sizes else "image/png"
        return attachment_tokens(Attachment(name="x", media_type=kind, sha256="", size=1, **sizes))

    assert tokens(width=75, height=100) == 10
    assert tokens(width=9000, height=9000) == tokens() == 1600
    assert tokens(pages=4) == 4 * tokens(pages=1)
