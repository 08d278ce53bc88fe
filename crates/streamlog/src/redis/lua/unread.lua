-- That reader is gone. KEYS: the stream. ARGV: me, its number
local m = redis.call('HMGET', KEYS[1], 'r', 'g')
if m[1] == ARGV[1] and m[2] == ARGV[2] then redis.call('HDEL', KEYS[1], 'r') end
return 1
