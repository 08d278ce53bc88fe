-- How many streams a replica has open. ARGV 5 ...: the replica, the number, its deadline, the turn in
-- which the replica said so, 1 when one has just opened.
local it = look()
local before, turn = 0, 0
local there = redis.call('HGET', KEYS[2], ARGV[5])
if there then
  before, turn = string.match(there, '^(%d+):%d+:(%d+)$')
  before, turn = tonumber(before), tonumber(turn)
end
-- A session whose streams were open until now was in use until now, whatever its deadline was.
if not it or it.over == 'age' or (it.over and (ARGV[9] == '1' or before == 0)) then
  return false
end
if turn < tonumber(ARGV[8]) then
  redis.call('HSET', KEYS[2], ARGV[5], ARGV[6] .. ':' .. ARGV[7] .. ':' .. ARGV[8])
end
if before > 0 or ARGV[6] ~= '0' then
  used(it)
end
-- Replicas that are long gone need not be remembered.
local open = redis.call('HGETALL', KEYS[2])
for i = 1, #open, 2 do
  local deadline = string.match(open[i + 1], '^%d+:(%d+):')
  if tonumber(deadline) < now - 3600000 then
    redis.call('HDEL', KEYS[2], open[i])
  end
end
renew()
it = look()
return tell(it)
