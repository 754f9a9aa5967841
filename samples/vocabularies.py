"""Train the tokenizers of the samples: pairs of bytes, and pieces of words.

Imported by the other samples; does nothing by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# The special tokens of BERT, in their order.
BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def byte_pairs(text: str, vocabulary: int, specials: Sequence[str], *, add_prefix_space: bool) -> Tokenizer:
    """Return a byte-level BPE tokenizer trained on lines (Sennrich et al., 2016; Radford et al., 2019).

    Its first tokens are ``specials``.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.split("\n"), trainer)
    return tokenizer


def word_pieces(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """Return a lower-case WordPiece tokenizer trained on texts, with the special tokens of BERT.

    The trainer visits letters in random order, which decides between equal pieces. So it gets the letters within words
    beforehand, in order.
    """
    blank = bert_tokenizer(models.WordPiece(unk_token="[UNK]"))
    normal = (blank.normalizer.normalize_str(text) for text in texts)
    words = {word for text in normal for word, _ in blank.pre_tokenizer.pre_tokenize_str(text)}
    letters = sorted({f"##{letter}" for word in words for letter in word[1:]})
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=[*BERT_SPECIALS, *letters], show_progress=False
    )
    blank.train_from_iterator(texts, trainer)
    tokenizer = bert_tokenizer(models.WordPiece(blank.get_vocab(), unk_token="[UNK]"))
    tokenizer.add_special_tokens([*BERT_SPECIALS])
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return tokenizer


def bert_tokenizer(model: models.WordPiece) -> Tokenizer:
    """Return a tokenizer that splits texts as BERT does, around a WordPiece model."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer
