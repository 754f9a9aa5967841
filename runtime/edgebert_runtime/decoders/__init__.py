"""KV caches and the step models over them, for decoders and encoder-decoder models.

::

    causal_signature.py   seq2seq_signature.py   inputs and outputs of the graphs
    kv_cache.py                                  the two ways in which graphs keep a KV cache
    causal_kv_cache.py    seq2seq_kv_cache.py    the KV cache of a batch of rows
    causal_decoder.py     seq2seq_decoder.py     step models, for the searches of ``generation``
    prompt_lookup.py      scoring.py             speculative tokens; log-probabilities of texts
"""
