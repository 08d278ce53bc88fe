-- The owner remembers the stream no longer. KEYS: the stream, its events, the session's log
-- ARGV: me, my fence, the stream
local m = redis.call('HMGET', KEYS[1], 'o', 'f')
if m[1] == ARGV[1] and m[2] == ARGV[2] then
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('HDEL', KEYS[3], 'm:' .. ARGV[3])
end
return 1
