"""The Redis and Valkey store.

Every operation is one Lua script (``lua/``), so it is atomic and on the server's clock. The
connections are joblock's own and speak the protocol themselves (`wire`), so no client library is
needed, and none of a caller's settings for pools, timeouts or decoding can get in the way.
"""

from joblock.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
