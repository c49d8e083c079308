"""Trouble 12: an adapter's name and a salt give the same key, because they are joined into one string.

Right: tenant, adapter and salt are fields of their own, compared as such: no value of one can pass for another's.
"""

from __future__ import annotations

from itertools import product

from pagoda.core.prefix_cache import Namespace, PrefixCache

TEXT = (1, 2, 3, 4)


def test_no_value_of_one_domain_passes_for_another_s() -> None:
    names = ("", "a", "b", "ab", "a|b", "a\0b", "tenant=a")
    namespaces = {Namespace(*fields) for fields in product(names, repeat=3)}
    for namespace in namespaces:
        cache = PrefixCache(4, lambda before, token_ids: 7)  # all hashes collide: only comparing tells texts apart
        cache.insert(namespace, TEXT, 0)
        assert [other for other in namespaces if cache.find(other, TEXT, 0, 4)] == [namespace]
