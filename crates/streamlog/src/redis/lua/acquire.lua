-- Takes a stream over (EL-7): from now on whoever owned it is fenced off, and told so.
-- KEYS: the stream, its events, the session's log
-- ARGV: me, tag and stream, the fence that is expected ('' whichever), its lifetime
if redis.call('HEXISTS', KEYS[3], 'gone') == 1 then return {'GONE'} end
local m = redis.call('HMGET', KEYS[1], 'f', 'o')
if not m[1] then return {'NONE'} end
if ARGV[3] ~= '' and m[1] ~= ARGV[3] then return {'TAKEN'} end
local fence = redis.call('HINCRBY', KEYS[1], 'f', 1)
redis.call('HSET', KEYS[1], 'o', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
if m[2] and m[2] ~= ARGV[1] then
  redis.call('PUBLISH', 'vestibule:r:' .. m[2], 'F ' .. ARGV[2] .. ' ' .. fence .. ' ' .. ARGV[1])
end
return record(KEYS[1], KEYS[2], 0)
