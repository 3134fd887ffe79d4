"""What the attacks run within: standard library only. Each takes what its trap tells it, tries once, and says how it went.

All are harmless when they succeed: they touch only what the suite made for them, stop at a small multiple of the limit, and
end by themselves.
"""
