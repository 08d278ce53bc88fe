-- ARGV 5, 6: the version, the state that is to follow it. Answers with whether it was done.
local it = look()
if not it or it.over then
  return false
end
if it.version ~= ARGV[5] then
  return { 0, tell(it) }
end
it.version = whole(tonumber(it.version) + 1)
it.state = ARGV[6]
redis.call('HSET', KEYS[1], 'v', it.version, 'st', it.state)
return { 1, tell(it) }
