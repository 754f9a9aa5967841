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
LANGUAGES = ["de_DE", "en_XX", "ro_RO"]
BYTE_LEVEL = {"roberta": ROBERTA, "gpt2": GPT2, "bart": ROBERTA}
UNIGRAM = {
    "xlm-roberta": ["<s>", "<pad>", "</s>", "<unk>", *PIECES, "<mask>"],
    "camembert": ["<s>", "<pad>", "</s>", "<unk>", *PIECES, "<mask>"],
    "albert": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *PIECES],
    "marian": ["</s>", "<unk>", *PIECES, "<pad>"],
    "mbart": ["<s>", "<pad>", "</s>", "<unk>", *PIECES, *LANGUAGES, "<mask>"],
    "seq2seq": ["<pad>", "<unk>", "<s>", "</s>", *PIECES],
}
# The tokens of the target where they are others than those of the source.
TARGETS = {"seq2seq": ["<pad>", "<unk>", "<s>", "</s>", "▁", *string.ascii_uppercase, *string.digits]}
MARKED = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[MASK]", *LANGUAGES]
# What a tokenizer of sentencepiece puts around one text, and around two.
FRAMES = {
    "albert": (["[CLS]", "$A", "[SEP]"], ["[CLS]", "$A", "[SEP]", "$B:1", "[SEP]:1"]),
    **dict.fromkeys(("marian", "seq2seq"), (["$A", "</s>"], ["$A", "</s>", "$B", "</s>"])),
    "mbart": (["en_XX", "$A", "</s>"], ["en_XX", "$A", "$B", "</s>"]),
}
FRAME = (["<s>", "$A", "</s>"], ["<s>", "$A", "</s>", "</s>", "$B", "</s>"])


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
    elif model_type in TARGETS:
        unigram(tokens, model_type).save(str(folder / "source_tokenizer.json"))
        unigram(TARGETS[model_type], model_type).save(str(folder / "target_tokenizer.json"))
    elif model_type in UNIGRAM:
        unigram(tokens, model_type).save(str(folder / "tokenizer.json"))
    else:
        (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")


def unigram(tokens: list[str], model_type: str) -> Tokenizer:
    """Return a tokenizer such as transformers makes of a file of sentencepiece."""
    single, pair = FRAMES.get(model_type, FRAME)
    scores = [
        (token, 0.0 if index < 5 else -1.0 - len(tokens) / (9 + len(token))) for index, token in enumerate(tokens)
    ]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=tokens.index("<unk>")))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    framing = [(token, tokens.index(token)) for token in single if token != "$A"]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=framing)
    tokenizer.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True, lstrip=token in ("[MASK]", "<mask>"))
            for token in MARKED
            if token in tokens
        ]
    )
    return tokenizer
