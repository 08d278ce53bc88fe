-- A session of a tenant is to be. KEYS: places, ages, uses, uses of the principal, how many of each
-- revision. ARGV: the session, its place, now, how many the principal may have, how many the tenant, the
-- net (ms), 1 when it is there already and only its entry is missing, its revision. Answers OK; or EXISTS and the place; or PRINCIPAL or TENANT and
-- their number; or EVICT and how many of which sessions must make room, of the principal and of all, each
-- with its place and its last use.
local id, place, now = ARGV[1], ARGV[2], ARGV[3]
local there = redis.call('HGET', KEYS[1], id)
if there then
  return { 'EXISTS', there }
end
if ARGV[7] ~= '1' then
  local mine, all = redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[2])
  local of_principal = math.max(mine + 1 - tonumber(ARGV[4]), 0)
  local of_tenant = math.max(all + 1 - of_principal - tonumber(ARGV[5]), 0)
  -- Who has an open stream is in use until a moment that is still to come.
  if redis.call('ZCOUNT', KEYS[4], '-inf', now) < of_principal then
    return { 'PRINCIPAL', mine }
  end
  if redis.call('ZCOUNT', KEYS[3], '-inf', now) < of_principal + of_tenant then
    return { 'TENANT', all }
  end
  of_principal = math.min(of_principal, 100)
  of_tenant = math.min(of_tenant, 100)
  -- The index hears of a use late: some more, in case that those have been used since.
  local chosen = {}
  local function choose(key, most)
    local victims, left = {}, most > 0 and most + 16 or 0
    local found = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 2 * left)
    for i = 1, #found, 2 do
      if left > 0 and not chosen[found[i]] then
        chosen[found[i]] = true
        victims[#victims + 1] = found[i]
        victims[#victims + 1] = redis.call('HGET', KEYS[1], found[i])
        victims[#victims + 1] = found[i + 1]
        left = left - 1
      end
    end
    return victims
  end
  local mine_first, then_any = choose(KEYS[4], of_principal), choose(KEYS[3], of_tenant)
  if of_principal + of_tenant > 0 then
    return { 'EVICT', of_principal, mine_first, of_tenant, then_any }
  end
end
redis.call('HSET', KEYS[1], id, place .. ARGV[8])
redis.call('HINCRBY', KEYS[5], ARGV[8], 1)
redis.call('ZADD', KEYS[2], now, id)
redis.call('ZADD', KEYS[3], now, id)
redis.call('ZADD', KEYS[4], now, id)
for i = 1, 5 do
  redis.call('PEXPIRE', KEYS[i], ARGV[6])
end
return { 'OK' }
