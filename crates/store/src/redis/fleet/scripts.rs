//! What the fleet asks of the store. Each can be repeated.

use super::super::Script;

pub(super) static BEAT: Script = Script::new("fleet beat", include_str!("beat.lua"));
pub(super) static REGISTER: Script = Script::new("fleet register", include_str!("register.lua"));
pub(super) static SEND: Script = Script::new("fleet send", include_str!("send.lua"));
pub(super) static LEFTOVERS: Script = Script::new("fleet leftovers", include_str!("leftovers.lua"));
pub(super) static OWN: Script = Script::new("fleet own", include_str!("own.lua"));

pub(super) static LEAVE: Script = Script::new("fleet leave", include_str!("leave.lua"));

/// KEYS: alive, parted. Whether a replica lives, and whether it has said that it goes.
pub(super) static LOOK: Script = Script::new(
    "fleet look",
    "return {redis.call('EXISTS', KEYS[1]), redis.call('EXISTS', KEYS[2])}",
);
/// KEYS: replicas.
pub(super) static MEMBERS: Script = Script::new(
    "fleet members",
    "return redis.call('ZRANGE', KEYS[1], 0, -1)",
);
/// KEYS: replicas. ARGV: the replica.
pub(super) static FORGET: Script = Script::new(
    "fleet forget",
    "return redis.call('ZREM', KEYS[1], ARGV[1])",
);
/// KEYS: inbox. ARGV: how many.
pub(super) static READ: Script = Script::new(
    "fleet read",
    "return redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', ARGV[1])",
);
/// KEYS: inbox. ARGV: the command's id.
pub(super) static DONE: Script =
    Script::new("fleet done", "return redis.call('XDEL', KEYS[1], ARGV[1])");
/// KEYS: own, inbox. How much a replica has left.
pub(super) static LEFT: Script = Script::new(
    "fleet left",
    "return redis.call('SCARD', KEYS[1]) + redis.call('XLEN', KEYS[2])",
);
/// KEYS: own. ARGV: the name.
pub(super) static DISOWN: Script = Script::new(
    "fleet disown",
    "return redis.call('SREM', KEYS[1], ARGV[1])",
);
/// KEYS: own. ARGV: how many.
pub(super) static OWNED: Script = Script::new(
    "fleet owned",
    "return redis.call('SRANDMEMBER', KEYS[1], ARGV[1])",
);
