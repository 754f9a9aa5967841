"""Tokenizers of a few hundred tokens at most, in the files that each kind of model publishes."""

from __future__ import annotations

import json
import string
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the cat sat on a mat and dog ran in rain sun moon farm ship mail school ##ing , . ? [ ] é ü 日 本".split()
VOCAB = [*SPECIALS, *WORDS, *string.ascii_lowercase[1:], *(f"##{letter}" for letter in string.ascii_lowercase)]
MERGES = ["Ġ t", "h e", "Ġt he", "Ġ c", "Ġc a", "Ġca t", "i n", "in g", "a t", "Ã ©"]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", *BYTES, *(merge.replace(" ", "") for merge in MERGES), "<mask>"]
GPT2 = [*BYTES, *(merge.replace(" ", "") for merge in MERGES), "<|endoftext|>"]
PIECES = [f"▁{word}" for word in WORDS if word.isalpha()]
PIECES += ["▁", *string.ascii_letters, *",.?!'-[]é日本ü", *string.digits]
BYTE_LEVEL = {"roberta": ROBERTA, "gpt2": GPT2}
UNIGRAM = {
    "xlm-roberta": ["<s>", "<pad>", "</s>", "<unk>", *PIECES, "<mask>"],
    "camembert": ["<s>", "<pad>", "</s>", "<unk>", *PIECES, "<mask>"],
    "albert": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *PIECES],
}


def vocabulary(model_type: str) -> list[str]:
    """Return the tokens, by id, of the tokenizer that a model of this type comes with here."""
    return BYTE_LEVEL.get(model_type) or UNIGRAM.get(model_type, VOCAB)


def write_tokenizer(folder: Path, model_type: str, vocab_size: int) -> None:
    """Write the files of a tokenizer into ``folder``, with unused tokens up to ``vocab_size``."""
    tokens = vocabulary(model_type)
    tokens = [*tokens, *(f"[unused{i}]" for i in range(vocab_size - len(tokens)))]
    if model_type in BYTE_LEVEL:
        ids = {token: index for index, token in enumerate(tokens)}
        (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *MERGES, ""]), encoding="utf-8")
    elif model_type in UNIGRAM:
        unigram(tokens, model_type == "albert").save(str(folder / "tokenizer.json"))
    else:
        (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")


def unigram(tokens: list[str], albert: bool) -> Tokenizer:
    """Return a tokenizer such as transformers makes of a file of sentencepiece."""
    cls, sep, mask = ("[CLS]", "[SEP]", "[MASK]") if albert else ("<s>", "</s>", "<mask>")
    scores = [
        (token, 0.0 if index < 5 else -1.0 - len(tokens) / (9 + len(token))) for index, token in enumerate(tokens)
    ]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=tokens.index("<unk>")))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    specials = [(token, tokens.index(token)) for token in (cls, sep)]
    pair = [cls, "$A", sep, "$B:1", f"{sep}:1"] if albert else [cls, "$A", sep, sep, "$B", sep]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[cls, "$A", sep], pair=pair, special_tokens=specials
    )
    known = [token for token in (cls, "<pad>", sep, "<unk>", mask)]
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True, lstrip=token == mask) for token in known]
    )
    return tokenizer
