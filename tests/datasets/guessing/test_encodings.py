"""Bytes of unknown encoding: marks and UTF-8 are certain, the rest is told by the letters, a wrong name is answered."""

from __future__ import annotations

import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.guessing.decision import Wishes
from xdpx.datasets.guessing.encodings import better, text_of

CHINESE = "标签,文本\n1,这家酒店很好，服务员很热情\n0,房间太小，不会再来了\n"
TEXTS = [
    ("utf-8", "utf-8", "certain", CHINESE),
    ("utf-8-sig", "utf-8", "certain", CHINESE),
    ("utf-16", "utf-16", "certain", CHINESE),
    ("gb18030", "gb18030", "likely", CHINESE),
    ("gbk", "gb18030", "likely", CHINESE),
    ("big5", "big5", "likely", "這家酒店非常好，服務員很熱情，下次還會再來。\n房間太小了，不會再來\n"),
    ("cp932", "cp932", "likely", "このホテルはとても良かったです。またきます。\n"),
    ("cp949", "cp949", "likely", "이 호텔은 정말 좋았습니다. 다시 오겠습니다\n"),
    ("cp1251", "cp1251", "likely", "Очень хороший отель, приедем ещё раз\n"),
    ("cp1252", "cp1252", "likely", "L'hôtel était très agréable, à côté de la forêt – oui\n"),
    ("ascii", "utf-8", "certain", "plain\n"),
    ("gbk", "gb18030", "likely", "标签,内容\n好评,好吃 满意 推荐\n差评,难吃 失望 服务 差\n好评,环境 喜欢 味道 热情\n"),
    ("euc_kr", "cp949", "likely", "맛집,추천\n최고,친절 편안 깨끗 넓음\n별로,불친절 좁음 더럽 비쌈 최악\n"),
    ("cp1252", "cp1252", "likely", "ÉTÉ À LA FORÊT, ÇA VA; Ä Ö Ü ÄÖ ÜÄ, GRÖSSE ÜBER ÄRZTE, ÉCOLE ÎLE\n" * 3),
]


@pytest.mark.parametrize(
    ("written", "found", "sure", "text"), TEXTS, ids=[f"{number} {case[0]}" for number, case in enumerate(TEXTS)]
)
def test_an_encoding_is_found_and_the_text_comes_out_whole(written: str, found: str, sure: str, text: str) -> None:
    read, decision = text_of(text.encode(written), "f.csv", Wishes())
    assert read == text
    assert (decision.value, decision.sure) == (found, sure)


def test_line_ends_of_all_kinds_become_line_feeds() -> None:
    assert text_of(b"a\r\nb\rc\n", "f", Wishes())[0] == "a\nb\nc\n"


def test_a_few_carriage_returns_are_within_texts() -> None:
    assert text_of(b"a\rb\n" + b"c\r\n" * 9, "f", Wishes())[0] == "a b\n" + "c\n" * 9


def test_a_wrong_encoding_is_answered_with_the_likely_one() -> None:
    with pytest.raises(ConfigError, match="It is likely gb18030: encoding=gb18030"):
        text_of(CHINESE.encode("gb18030"), "f.csv", Wishes(encoding="utf-8"))
    with pytest.raises(ConfigError, match="there is no 'utf8x'"):
        text_of(b"a", "f.csv", Wishes(encoding="utf8x"))


RUSSIAN = "Очень хороший отель, приедем ещё раз; номер маленький, но чистый\n"
GREEK = "Άθλια ταινία, βαρετή και αργή, δεν μου άρεσε καθόλου\n"
SINGLE_BYTES = [
    ("koi8-r", RUSSIAN), ("iso8859-5", RUSSIAN), ("cp866", RUSSIAN),
    ("koi8-u", "Дуже хороший готель, приїдемо ще раз; номер маленький, але її чисто\n"), ("cp1253", GREEK),
    ("iso8859-7", GREEK), ("cp1255", "מלון נהדר, השירות היה טוב מאוד והחדר נקי\n"),
    ("cp1256", "فندق رائع جدا والخدمة ممتازة، سنعود مرة أخرى\n"), ("cp874", "โรงแรมดีมาก ห้องพักสะอาด พนักงานบริการดี\n"),
    ("cp1250", "świetny hotel, bardzo mi się podobało, źle tylko łóżko\n"),
    ("iso8859-2", "výborný hotel, příště určitě zase, moc se mi líbil\n"),
    ("cp1254", "çok güzel bir otel, herkese tavsiye ederim, şaşırdım\n"),
    ("cp1252", "è una città più bella, però lunedì c'è sempre felicità\n"),
    ("mac-roman", "très bon hôtel, génial, à côté de la forêt, l’été\n"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "text"), SINGLE_BYTES, ids=[written for written, _ in SINGLE_BYTES])
def test_letters_of_one_byte_come_out_as_they_were(written: str, text: str) -> None:
    assert text_of(text.encode(written), "f.csv", Wishes())[0] == text


def test_an_encoding_in_which_all_bytes_are_valid_but_letters_are_odd_has_a_better_one() -> None:
    data = (RUSSIAN * 3).encode("koi8-r")
    assert (better(data, "cp1252"), better(data, "cp1251"), better(data, "koi8-r")) == ("koi8_u", "koi8_u", "")
    assert better((RUSSIAN * 3).encode("cp1251"), "cp1251") == ""
