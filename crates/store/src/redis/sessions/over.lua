-- Sessions whose time may be over. KEYS: places, ages, uses, how many of each revision. ARGV: the newest
-- use, the newest birth (-inf: none), how many. Answers with how many sessions of each revision there
-- are, and with those, each with its place.
local found, seen = {}, {}
local function add(ids)
  for i = 1, #ids do
    local place = redis.call('HGET', KEYS[1], ids[i])
    if not place then
      redis.call('ZREM', KEYS[2], ids[i])
      redis.call('ZREM', KEYS[3], ids[i])
    elseif not seen[ids[i]] then
      seen[ids[i]] = true
      found[#found + 1] = ids[i]
      found[#found + 1] = place
    end
  end
end
add(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[2], 'LIMIT', 0, ARGV[3]))
add(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3]))
return { redis.call('HGETALL', KEYS[4]), found }
