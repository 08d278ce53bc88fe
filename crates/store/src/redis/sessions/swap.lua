-- ARGV 5 ...: the name, what is expected, how many bytes there may be, the record (none: remove).
-- Answers 1, or 0 when something else is there, or -1 when there is no room.
local it = look()
if not it or it.over then
  return 0
end
local there = redis.call('HGET', KEYS[3], ARGV[5])
if there ~= ARGV[6] then
  return 0
end
if not ARGV[8] then
  redis.call('HDEL', KEYS[3], ARGV[5])
  redis.call('HINCRBY', KEYS[1], 'bytes', 1 - #ARGV[5] - #there)
  return 1
end
local more = #ARGV[8] - #there
local bytes = tonumber(redis.call('HGET', KEYS[1], 'bytes') or '0')
if bytes + more > tonumber(ARGV[7]) then
  return -1
end
redis.call('HSET', KEYS[3], ARGV[5], ARGV[8])
redis.call('HINCRBY', KEYS[1], 'bytes', more)
return 1
