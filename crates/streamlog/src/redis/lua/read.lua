-- A reader of a POST stream comes (EL-17): the one before it, wherever it is, is told to stop.
-- KEYS: the stream, the session's log. ARGV: me, tag and stream, my fence ('' not the owner)
if redis.call('HEXISTS', KEYS[2], 'gone') == 1 then return {'GONE'} end
local m = redis.call('HMGET', KEYS[1], 'f', 'o', 'r')
if not m[1] then return {'NONE'} end
if ARGV[3] ~= '' and (m[1] ~= ARGV[3] or m[2] ~= ARGV[1]) then return {'FENCED'} end
local number = redis.call('HINCRBY', KEYS[1], 'g', 1)
local before = m[3] or m[2]
redis.call('HSET', KEYS[1], 'r', ARGV[1])
if before ~= ARGV[1] then
  redis.call('PUBLISH', 'vestibule:r:' .. before, 'S ' .. ARGV[2] .. ' ' .. number .. ' ' .. ARGV[1])
end
return {'OK', number, before}
