-- ARGV 5 ...: the name, the record, how many there may be, how many bytes. Answers with the record that
-- is there and whether it is this one, or with 0 when there is no room.
local it = look()
if not it or it.over then
  return false
end
local there = redis.call('HGET', KEYS[3], ARGV[5])
if there then
  return { there, 0 }
end
local bytes = tonumber(redis.call('HGET', KEYS[1], 'bytes') or '0')
-- The first letter of a name is its kind.
local more = #ARGV[5] - 1 + #ARGV[6]
if redis.call('HLEN', KEYS[3]) >= tonumber(ARGV[7]) or bytes + more > tonumber(ARGV[8]) then
  return 0
end
redis.call('HSET', KEYS[3], ARGV[5], ARGV[6])
redis.call('HINCRBY', KEYS[1], 'bytes', more)
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return { ARGV[6], 1 }
