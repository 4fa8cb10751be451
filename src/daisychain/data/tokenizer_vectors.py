"""Texts and their ids: `python -m daisychain.data.tokenizer_vectors [folder]` writes tokenizer.json into it.

Ids are arrays as in numerics/golden.py. `texts_of` holds ids of no text, cut and mixed UTF-8, with what they decode
to.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from daisychain.base.files import write_atomic
from daisychain.data.tokenizer import END, load_tokenizer
from daisychain.numerics.golden import encode

RANDOM_BYTES = 1_000
RANDOM_IDS = 300

TEXTS = {
    "nothing": "",
    "English": "The photosynthesis of plants isn't simple; they're green, we'd say, and I'll show you what I've found.",
    "capitals": "WE'RE HERE, IT'S FINE. O'Neill said 'tis 'twas 'S 's's 't'll",
    "code": "def f(x: int) -> int:\n\tif x != 0:\n        return x ** 2  # squared\n\n\n    else:\r\n\t\t pass\n",
    "Chinese": "今天天气很好,我们去公园散步吧。機器學習是人工智慧的一個分支。",
    "Japanese": "日本語のテキストを、カタカナとひらがなで書きます。ー々〆",
    "Korean": "안녕하세요, 세계! 각각",
    "Thai": "สวัสดีชาวโลก น้ำตาล",
    "Arabic": "مرحبا بالعالم ١٢٣ لَا إِلٰهَ",
    "Hebrew": "שָׁלוֹם עוֹלָם 2024",
    "Hindi": "नमस्ते दुनिया १२३ क्षत्रिय",
    "Greek, Cyrillic, Turkish": "Καλημέρα κόσμε — Привет, мир! İstanbul ılık ß ſ ǅ",
    "combining marks": "e\u0301 \u0065\u0301\u0327 Z\u0351\u036b\u0343\u036a a\u20dd \u0301alone \u00e9",
    "emoji": "😀👍🏽👨‍👩‍👧‍👦🏳️‍🌈🇩🇪❤️ 1️⃣ \U0001f9d1\u200d\U0001f680!",
    "beyond the basic plane": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠜎𠜱 \U0010fffd\U000e0041 \U0001d7d8\U0001d7d9",
    "digits of all scripts": "0 12 123 1234 12345 3.14159 ٣٤ ४५ 一二 ⅷ ½ ² ₂ ① 𝟘",
    "control characters": "".join(map(chr, range(0x20))) + "\x7f" + "".join(map(chr, range(0x80, 0xA1))),
    "spaces": f"a b  c   d{' ' * 31}e{' ' * 32}f{' ' * 33}g{' ' * 70}",
    "spaces of all kinds": "a\u00a0b\u2003c\u3000d\u200be\u2009f\u1680g\u180eh\u202fi\u205fj",
    "ends of lines": "a\nb\r\nc\rd\x0be\x0cf\x85g\u2028h\u2029i\n\n\nj\r\n\r\nk \n l\t\n",
    "byte-order marks": "\ufeffa\ufeff \ufeff\ufffe\uffff",
    "signs": "!!! ... --- === (){}[]<>|\\/~`^ '\"' a.b,c;d:e @#$%&*+" + "=" * 40 + "|" * 17,
    "long words": "a" * 31 + " " + "b" * 32 + " " + "c" * 33 + " " + "é" * 70 + "x" * 100,
    "the end": f"one{END}two {END}\n{END}{END}<|end|<|end|>|> <|END|> <|en\u0064|>",
    "lone surrogates": "a\ud800b\udc00c\udc00\ud800d \ud83d\ude00 \ud83d",
    "file names": "https://example.org/a/b?c=d&e=%20#f C:\\Users\\me foo_bar fooBar foo-bar v1.2.3rc4",
    "names of objects": "constructor __proto__ toString hasOwnProperty",
}


def collect() -> dict[str, Any]:
    """The content of the file."""
    tokenizer = load_tokenizer()
    generator = np.random.Generator(np.random.PCG64(0))
    random = generator.integers(0, 256, RANDOM_BYTES, np.uint8).tobytes()
    texts = TEXTS | {
        "random bytes": random.decode("utf-8", "replace"),
        "random Latin": random.decode("latin-1"),
        "random ASCII": bytes(byte & 127 for byte in random).decode(),
        "random characters": random.decode("utf-16-le", "replace"),
    }
    ids_of = [
        {"name": name, "text": text, "ids": encode(tokenizer.encode(text))} for name, text in texts.items()
    ]
    ids = generator.integers(0, tokenizer.size, RANDOM_IDS).astype(np.uint16)
    bytes_alone = generator.integers(1, 257, RANDOM_IDS).astype(np.uint16)
    texts_of = [{"ids": encode(some), "text": tokenizer.decode(some)} for some in (ids, bytes_alone)]
    return {"end": tokenizer.end, "ids_of": ids_of, "texts_of": texts_of}


def main(folder: Path) -> None:
    """Write the file."""
    write_atomic(folder / "tokenizer.json", (json.dumps(collect(), indent=1) + "\n").encode())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "vectors"))
