"""Numbers in one spelling: 三万, 3万, 30,000 and 30k are the same number."""

import re

_DIGITS = {
    "零": 0,
    "〇": 0,
    "一": 1,
    "二": 2,
    "两": 2,
    "三": 3,
    "四": 4,
    "五": 5,
    "六": 6,
    "七": 7,
    "八": 8,
    "九": 9,
}
_UNITS = {"十": 10, "百": 100, "千": 1_000}
_LARGE = {"万": 10_000, "亿": 100_000_000}
_FACTORS = {"k": 1_000, "千": 1_000, "w": 10_000, "万": 10_000, "m": 1_000_000, "亿": 100_000_000}

_ARABIC = re.compile(
    r"(?<![a-z0-9_.])(\d{1,3}(?:,\d{3})+|\d{1,15})(\.\d+)?(?:(?:([千万亿])|([kw])(?![a-z0-9])))?"
)
_HAN = re.compile(
    "(?<![第周期拜万])(?:[一二两三四五六七八九]?[十百千万亿][零〇一二两三四五六七八九十百千万亿]*"
    "|[一二两三四五六七八九](?=[点岁年月日号天元块杯个小分]))"
)
_NO_NUMBERS = re.compile("千万[别不要]|万一|十分(?!钟|之)|百分|一[点些天年月日]|万[能岁]|千[里秋]")
_LONGEST = 12


def plain_numbers(text: str) -> str:
    """The text with its numbers in digits, where they are numbers beyond doubt."""
    return _HAN.sub(_from_han, _ARABIC.sub(_from_digits, text))


def _from_digits(found: re.Match[str]) -> str:
    whole, fraction, unit, letter = found.groups()
    factor = _FACTORS.get(unit or letter or "", 1)
    if factor == 1:  # leading zeros are part of telephone numbers, dates and clock times
        return whole.replace(",", "") + (fraction or "")
    if not fraction:
        return str(int(whole.replace(",", "")) * factor)
    return f"{float(whole.replace(',', '') + fraction) * factor:.10g}"


def _from_han(found: re.Match[str]) -> str:
    word = found.group()
    if len(word) > _LONGEST or _NO_NUMBERS.match(found.string, found.start()):
        return word
    return str(han_number(word))


def han_number(word: str) -> int:
    """The value of a Chinese numeral, such as 三万五千."""
    total = section = digit = 0
    for character in word:
        if character in _DIGITS:
            digit = _DIGITS[character]
        elif character in _UNITS:
            section += (digit or 1) * _UNITS[character]
            digit = 0
        else:
            total = (total + section + digit or 1) * _LARGE[character]
            section = digit = 0
    return total + section + digit
