"""Build tokenizers from vocab.txt, or from vocab.json and merges.txt.

WordPiece is that of Devlin et al. (2019), byte-level BPE that of Radford et al. (2019), which RoBERTa (Liu et al.,
2019) took over and put special tokens around.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from edgebert.checkpoints.folder import some
from edgebert_runtime.errors import TokenizerError

# Classes of tokenizer that are nothing but BERT's WordPiece over vocab.txt, and RoBERTa's and GPT-2's over vocab.json.
WORDPIECE_CLASSES = (
    "BertTokenizer",
    "BertTokenizerFast",
    "DistilBertTokenizer",
    "DistilBertTokenizerFast",
    "ElectraTokenizer",
    "ElectraTokenizerFast",
)
ROBERTA_CLASSES = ("RobertaTokenizer", "RobertaTokenizerFast", "BartTokenizer", "BartTokenizerFast")
GPT2_CLASSES = ("GPT2Tokenizer", "GPT2TokenizerFast")

# The special tokens of BERT and of RoBERTa under their names in tokenizer_config.json.
SPECIAL_TOKENS = {
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}
ROBERTA_TOKENS = {
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
ROBERTA_SPECIAL_TOKENS = {**ROBERTA_TOKENS, "bos_token": "<s>", "eos_token": "</s>"}
END_OF_TEXT = "<|endoftext|>"
GPT2_SPECIAL_TOKENS = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END_OF_TEXT)
GPT2_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
MASKS = [SPECIAL_TOKENS["mask_token"], ROBERTA_TOKENS["mask_token"]]


def build_wordpiece(text: str, settings: dict[str, Any]) -> Tokenizer:
    """Build BERT's tokenizer from the text of vocab.txt."""
    vocabulary = parse_vocabulary(text)
    names = special_names(settings, SPECIAL_TOKENS, vocabulary, "vocab.txt")
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=names["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    cls, sep = names["cls_token"], names["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[cls, "$A", sep],
        pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def parse_vocabulary(text: str) -> dict[str, int]:
    """Parse vocab.txt, a token a line; empty lines are unused.

    The id of a token is its line, from 0.
    """
    vocabulary: dict[str, int] = {}
    for index, token in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")):
        if token in vocabulary:
            raise TokenizerError(
                f"vocab.txt: line {index + 1} repeats {token!r:.80} of line {vocabulary[token] + 1}; "
                "use the file that came with the model"
            )
        if token:
            vocabulary[token] = index
    if not vocabulary:
        raise TokenizerError("vocab.txt is empty; save or download it again")
    return vocabulary


def has_upper_case(text: str) -> bool:
    """Say whether vocab.txt has words in upper case."""
    return any(token != token.lower() and not token.startswith(("[", "<")) for token in text.split())


def special_names(
    settings: dict[str, Any], usual: Mapping[str, str], vocabulary: Mapping[str, int], source: str
) -> dict[str, str]:
    """Return the special tokens, which must be in the vocabulary.

    The mask token may be missing.
    """
    names = {key: settings.get(key) or token for key, token in usual.items()}
    if missing := [token for key, token in names.items() if token not in vocabulary and key != "mask_token"]:
        raise TokenizerError(f"{source} lacks the special tokens {some(missing)}; use the one of the model")
    return names


def build_roberta(pieces: Any, merges: str, settings: dict[str, Any]) -> Tokenizer:
    """Build RoBERTa's tokenizer from vocab.json and merges.txt."""
    vocabulary = check_pieces(pieces)
    names = special_names(settings, ROBERTA_TOKENS, vocabulary, "vocab.json")
    prefix, trim = settings.get("add_prefix_space", False), settings.get("trim_offsets", True)
    tokenizer = build_byte_level(vocabulary, parse_merges(merges), add_prefix_space=prefix)
    cls, sep = names["cls_token"], names["sep_token"]
    tokenizer.post_processor = processors.RobertaProcessing(
        (sep, vocabulary[sep]), (cls, vocabulary[cls]), trim_offsets=trim, add_prefix_space=prefix
    )
    return tokenizer


def build_gpt2(pieces: Any, merges: str, settings: dict[str, Any]) -> Tokenizer:
    """Build GPT-2's tokenizer from vocab.json and merges.txt.

    It puts nothing around a text. A special token that stands in a text is read as such.

    Raises:
        TokenizerError: if the files do not fit each other, or ``add_bos_token`` asks for a token before each text.
    """
    if settings.get("add_bos_token"):
        raise TokenizerError(
            "tokenizer_config.json: add_bos_token asks for a token before each text, which is not built from "
            "vocab.json; save the tokenizer as tokenizer.json"
        )
    vocabulary = check_pieces(pieces)
    tokenizer = build_byte_level(
        vocabulary, parse_merges(merges), add_prefix_space=settings.get("add_prefix_space", False)
    )
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def build_byte_level(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], *, add_prefix_space: bool = False
) -> Tokenizer:
    """Build a byte-level BPE without special tokens."""
    try:
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    except Exception as error:  # the library raises no narrower class
        raise TokenizerError(
            f"merges.txt does not fit vocab.json ({error}); use the files that came with the model"
        ) from error
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def check_pieces(pieces: Any, source: str = "vocab.json") -> dict[str, int]:
    """Check that a vocabulary maps tokens to ids."""
    if not isinstance(pieces, dict) or not pieces:
        raise TokenizerError(
            f"{source} should hold tokens and their ids, holds {pieces!r:.60}; save or download it again"
        )
    if wrong := [
        f"{key!r:.60}: {id!r:.60}" for key, id in pieces.items() if type(id) is not int or not 0 <= id < 1 << 32
    ]:
        raise TokenizerError(f"{source} has ids that are none: {some(wrong)}; save or download it again")
    return pieces


def parse_merges(text: str) -> list[tuple[str, str]]:
    """Parse merges.txt, two tokens a line.

    A first line may give the version.
    """
    merges = []
    for index, line in enumerate(text.replace("\r\n", "\n").split("\n")):
        if not line or (index == 0 and line.startswith("#version")):
            continue
        first, _, second = line.partition(" ")
        if not first or not second or " " in second:
            raise TokenizerError(
                f"merges.txt: line {index + 1} is {line!r:.80} and not two tokens; save or download it again"
            )
        merges.append((first, second))
    return merges
