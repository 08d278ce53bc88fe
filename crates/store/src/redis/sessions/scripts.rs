//! What sessions ask of the store. Each can be repeated, but for what says whether it was the first.

use super::super::Script;

/// One script of a session, after what all of them begin with.
macro_rules! of_session {
    ($static:ident, $name:literal, $file:literal) => {
        pub(super) static $static: Script = Script::new(
            $name,
            concat!(include_str!("session.lua"), include_str!($file)),
        );
    };
}

of_session!(LOAD, "session load", "load.lua");
of_session!(CREATE, "session create", "create.lua");
of_session!(UPDATE, "session update", "update.lua");
of_session!(STREAMS, "session streams", "streams.lua");
of_session!(FINISH, "session finish", "finish.lua");
of_session!(KEEP, "session keep", "keep.lua");
of_session!(SWAP, "session swap", "swap.lua");
of_session!(KEPT, "session kept", "kept.lua");
of_session!(ALL_KEPT, "session all kept", "all_kept.lua");

pub(super) static ENTER: Script = Script::new("index enter", include_str!("enter.lua"));
pub(super) static USED: Script = Script::new("index used", include_str!("used.lua"));
pub(super) static LEAVE: Script = Script::new("index leave", include_str!("leave.lua"));
pub(super) static OVER: Script = Script::new("index over", include_str!("over.lua"));
pub(super) static OLDEST: Script = Script::new("index oldest", include_str!("oldest.lua"));
/// KEYS: session.
pub(super) static EXISTS: Script =
    Script::new("session exists", "return redis.call('EXISTS', KEYS[1])");
/// KEYS: one of the sorted sets.
pub(super) static COUNT: Script = Script::new("index count", "return redis.call('ZCARD', KEYS[1])");

/// KEYS: tenants. ARGV: the tenant, now, the net (ms).
pub(super) static TENANT: Script = Script::new(
    "tenants add",
    "redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1]) \
     redis.call('PEXPIRE', KEYS[1], ARGV[3]) return 1",
);
/// KEYS: tenants. ARGV: from, to.
pub(super) static TENANTS: Script = Script::new(
    "tenants page",
    "return redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[2])",
);
/// KEYS: tenants. ARGV: the tenant, since when nothing may have been opened for it.
pub(super) static NO_TENANT: Script = Script::new(
    "tenants remove",
    "local since = redis.call('ZSCORE', KEYS[1], ARGV[1]) \
     if since and tonumber(since) < tonumber(ARGV[2]) then \
     redis.call('ZREM', KEYS[1], ARGV[1]) end return 1",
);
