"""Many requests at a time over one model: continuous and dynamic batching, without HTTP.

::

    scheduler.py      continuous batching of a generative model: rows join and leave between steps
    slots.py          which row of which request is in which slot of the KV cache
    prefix_cache.py   keys and values of prompts, by their tokens
    fair_queue.py     requests that wait, in an order in which nobody starves
"""
